# SPDX-License-Identifier: Apache-2.0
"""The workload file: what is left out, and what is said of a mistake."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from gpuservice.planner.snapshot import Request
from gpuservice.simulation.faults import InputFault
from gpuservice.simulation.workload import Reading, WorkloadJob
from gpuservice.simulation.workload_csv import COLUMNS, read_csv


def read(text: str, **reading: object) -> tuple[WorkloadJob, ...]:
    return read_csv(io.StringIO(text), replace(Reading(), **reading), "w.csv")


def one(columns: str, values: str) -> WorkloadJob:
    return read(f"submit_s,duration_s,{columns}\n0,10,{values}\n")[0]


def test_what_is_left_out_is_as_in_the_api() -> None:
    (job,) = read("submit_s,duration_s\n5,10\n")
    assert job == WorkloadJob("job-1", 5, 10, Request())
    assert (job.project, job.queue, job.kind, job.priority) == (
        "default",
        "default",
        "training",
        500,
    )
    assert (job.preemptible, job.max_runtime_s) == (True, None)


def test_all_columns() -> None:
    values = (
        "1.5,n,p,q,u,interactive,high,4,2,8,1000,a100-80gb|h100,40000,16,65536,rack,preferred,"
        "60,120,no"
    )
    (job,) = read(",".join(COLUMNS) + "\n" + values + "\n")
    assert job == WorkloadJob(
        "n",
        1.5,
        60,
        Request(
            4, 2, 8000, None, ("a100-80gb", "h100"), 40000, 16, 65536, within="rack", required=False
        ),
        "p",
        "q",
        "u",
        "interactive",
        700,
        120,
        False,
    )


@pytest.mark.parametrize(
    ("columns", "values", "milli"),
    [
        ("gpus_per_task", "4", 4000),
        ("gpus_per_task", "0", 0),
        ("gpu_milli", "250", 250),
        ("gpu_milli", "1000", 1000),
        ("gpu_milli", "3000", 3000),
        ("gpus_per_task,gpu_milli", "1,250", 250),
        ("gpus_per_task,gpu_milli", "2,1000", 2000),
        ("gpus_per_task,gpu_milli", "2,2000", 2000),
    ],
)
def test_gpus(columns: str, values: str, milli: int) -> None:
    assert one(columns, values).request.gpu_milli == milli


def test_a_share_by_memory() -> None:
    assert one("gpu_memory_mib", "20000").request.gpu_memory_mib == 20000


def test_topology_is_required_unless_it_is_said_otherwise() -> None:
    assert one("within", "node").request.required
    assert not one("within", "").request.required


def test_arrays_and_dependencies() -> None:
    job = one("array_size,array_max_running,depends_on,deadline_s", "5,2,a;b:ended,99")
    assert (job.array_size, job.max_running, job.deadline_s) == (5, 2, 99)
    assert job.depends_on == (("a", "succeeded"), ("b", "ended"))


def test_jobs_come_by_submission_and_those_of_a_moment_as_in_the_file() -> None:
    jobs = read("submit_s,duration_s,name\n5,1,c\n0,1,a\n5,1,b\n", first=2)
    assert [job.name for job in jobs] == ["a", "c"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "submit_s,duration_s,tasks\n0,1,x\n",
            "line 2: column tasks: 'x' is wrong; it must be a whole",
        ),
        ("submit_s,duration_s,tasks\n0,1,0\n", "from 1 to 10000"),
        ("submit_s,duration_s\n0,1\n-1,1\n", "line 3: column submit_s: '-1'"),
        ("submit_s,duration_s\n0,nan\n", "column duration_s: 'nan'"),
        ("submit_s,duration_s\n0,\n", "column duration_s: ''"),
        ("submit_s,duration_s,kind\n0,1,batch\n", "one of interactive, training"),
        ("submit_s,duration_s,priority\n0,1,1001\n", "0 to 1000 or one of low, normal"),
        ("submit_s,duration_s,preemptible\n0,1,maybe\n", "true or false"),
        ("submit_s,duration_s,min_tasks\n0,1,2\n", "no more than tasks, which is 1"),
        ("submit_s,duration_s,gpus_per_task,gpu_milli\n0,1,2,500\n", "a share is of one GPU"),
        ("submit_s,duration_s,gpu_milli\n0,1,1500\n", "column gpu_milli: '1500'"),
        (
            "submit_s,duration_s,depends_on\n0,1,a:done\n",
            "one of succeeded, failed, ended, started",
        ),
        ("submit_s,duration_s,max_runtime_s\n0,1,0\n", "column max_runtime_s: '0'"),
        ("submit_s,duration_s\n0,1,2\n", "line 2: 3 values for the 2 columns"),
        ("submit_s,duration\n0,1\n", "line 1: there is no column 'duration'; the columns are"),
        ("submit_s,name\n0,1\n", "column 'duration_s' is missing"),
        ("submit_s,submit_s,duration_s\n", "column 'submit_s' is there twice"),
    ],
)
def test_mistakes(text: str, said: str) -> None:
    with pytest.raises(InputFault) as fault:
        read(text)
    assert str(fault.value).startswith("w.csv: line ")
    assert said in str(fault.value)
