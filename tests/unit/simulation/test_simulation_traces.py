# SPDX-License-Identifier: Apache-2.0
"""Traces of others."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest

from gpuservice.planner.snapshot import Request
from gpuservice.simulation import reading
from gpuservice.simulation.faults import InputFault
from gpuservice.simulation.traces import read_itp, read_philly, read_swf
from gpuservice.simulation.workload import Reading

ITP = "job_id,submission_time,duration,num_gpu\na,5,100,1\nb,3,50,8\nc,9,10,20\nd,9,0,1\n"
PHILLY = (
    "timestamp,duration,num_gpus,gpu_time,cluster\n"
    "2017-10-09 07:01:55,66.0,1,66.0,vc1\n2017-10-09 06:59:55,30.0,16,480.0,vc2\n"
)
SWF = """; UnixStartTime: 0
1 10 -1 100 4 -1 -1 4 200 -1 1 7 3 1 2 1 -1 -1 extra
2 20 -1 -5 4 -1 -1 4 200 -1 1 7 3 1 2 1 -1 -1
3 30 -1 50 16 -1 -1 -1 -1 -1 0 8 3 1 2 1 -1 -1
"""


def test_itp() -> None:
    jobs = read_itp(io.StringIO(ITP), Reading())
    assert [(job.name, job.submit_s, job.duration_s, job.max_runtime_s) for job in jobs] == [
        ("b", 3, 50, 50),
        ("a", 5, 100, 100),
        ("c", 9, 10, 10),
    ]
    assert jobs[0].request == Request(gpu_milli=8000)
    assert jobs[2].request == Request(count=3, min_count=3, gpu_milli=8000)


def test_philly() -> None:
    jobs = read_philly(io.StringIO(PHILLY), Reading())
    assert [(job.submit_s, job.queue, job.duration_s) for job in jobs] == [
        (0, "vc2", 30),
        (120, "vc1", 66),
    ]


def test_swf() -> None:
    jobs = read_swf(io.StringIO(SWF), Reading(host_gpus=4))
    assert [(job.name, job.max_runtime_s, job.user, job.queue, job.outcome) for job in jobs] == [
        ("1", 200, "user-7", "queue-2", "succeeded"),
        ("3", 50, "user-8", "queue-2", "failed"),
    ]
    assert jobs[1].request == Request(count=4, min_count=4, gpu_milli=4000)


def test_limits_are_longer_than_needed_and_never_shorter() -> None:
    lines = "".join(f"j{one},0,100,1\n" for one in range(200))
    text = "job_id,submission_time,duration,num_gpu\n" + lines
    exact = read_itp(io.StringIO(text), Reading(limit_factor=5))
    assert {job.max_runtime_s for job in exact} == {500}
    given = [
        [job.max_runtime_s or 0 for job in read_itp(io.StringIO(text), Reading(5, 1.0, 1.0, seed))]
        for seed in (1, 1, 2)
    ]
    assert given[0] == given[1] != given[2]
    assert min(given[0]) >= 100
    assert len(set(given[0])) > 50


@pytest.mark.parametrize(
    ("name", "text", "form"),
    [
        ("a.csv", ITP, "itp"),
        ("a.csv", PHILLY, "philly"),
        ("a.swf", SWF, "swf"),
        ("a.swf.gz", SWF[2:], "swf"),
        ("a.txt", SWF, "swf"),
        ("a.csv", "submit_s,duration_s\n", "csv"),
        ("a.csv", "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n", "openb"),
    ],
)
def test_formats_are_found_by_name_and_header(name: str, text: str, form: str) -> None:
    assert reading.format_of(name, text) == form


def test_packed_files_are_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "itp.csv.gz"
    path.write_bytes(gzip.compress(ITP.encode()))
    assert len(reading.workload(str(path), Reading())) == 3


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", ITP.replace("100", "x"), "line 2: column duration: 'x' is no number"),
        ("a.csv", PHILLY.replace("2017", "17", 1), "line 2: column timestamp: '17-10-09"),
        ("a.swf", "1 2 3\n", "line 1: 3 fields"),
        ("a.csv", "submit_s,duration_s\n", "there is no job in it"),
        ("a.csv", "name,cpu_milli,num_gpu,gpu_milli\n", "needs --mode packing"),
        ("a.csv.gz", "no gzip", "cannot be read"),
    ],
)
def test_mistakes(tmp_path: Path, name: str, content: str, said: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(InputFault) as fault:
        reading.workload(str(path), Reading())
    assert str(path) in str(fault.value)
    assert said in str(fault.value)


def test_a_format_that_is_told_is_kept_to(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("submit_s,duration_s\n1,2\n")
    with pytest.raises(InputFault, match="no column job_id"):
        reading.workload(str(path), Reading(), "itp")


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(InputFault, match="--workload none: there is no such file"):
        reading.workload("none", Reading())
