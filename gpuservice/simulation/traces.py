# SPDX-License-Identifier: Apache-2.0
"""Traces that others published: Standard Workload Format, ITP, Philly."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import IO

from gpuservice.simulation.faults import InputFault
from gpuservice.simulation.workload import Limits, Reading, WorkloadJob, in_order, shaped

ITP_HEADER = ("job_id", "submission_time", "duration", "num_gpu")
PHILLY_HEADER = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")

#: Fields of the Standard Workload Format that are read, by their place.
_SWF = {
    "job": 0,
    "submit": 1,
    "runtime": 3,
    "used": 4,
    "asked": 7,
    "limit": 8,
    "status": 10,
    "user": 11,
    "group": 12,
    "queue": 14,
}
_SWF_OUTCOMES = {"0": "failed", "5": "failed"}


def read_itp(file: IO[str], reading: Reading, path: str = "") -> tuple[WorkloadJob, ...]:
    """``job_id,submission_time,duration,num_gpu``: a job of no GPUs or no time is left out."""
    limits, jobs = Limits(reading), []
    for line, row in _rows(file, ITP_HEADER, path):
        gpus = int(_number(row, "num_gpu", line, path))
        duration = _number(row, "duration", line, path)
        if gpus > 0 and duration > 0:
            jobs.append(
                WorkloadJob(
                    row["job_id"],
                    _number(row, "submission_time", line, path),
                    duration,
                    shaped(gpus, reading.host_gpus),
                    max_runtime_s=limits.of(duration),
                )
            )
    return in_order(jobs, reading)


def read_philly(file: IO[str], reading: Reading, path: str = "") -> tuple[WorkloadJob, ...]:
    """``timestamp,duration,num_gpus,gpu_time,cluster``: a virtual cluster is a queue (and a
    project); seconds count from the first submission."""
    limits, jobs = Limits(reading), []
    first: float | None = None
    rows = [
        (line, row, _stamp(row["timestamp"], line, path))
        for line, row in _rows(file, PHILLY_HEADER, path)
    ]
    first = min((stamp for _, _, stamp in rows), default=0.0)
    for line, row, stamp in rows:
        gpus = int(_number(row, "num_gpus", line, path))
        duration = _number(row, "duration", line, path)
        if gpus > 0 and duration > 0:
            jobs.append(
                WorkloadJob(
                    f"philly-{line:06d}",
                    stamp - first,
                    duration,
                    shaped(gpus, reading.host_gpus),
                    project=row["cluster"],
                    queue=row["cluster"],
                    max_runtime_s=limits.of(duration),
                )
            )
    return in_order(jobs, reading)


def read_swf(file: IO[str], reading: Reading, path: str = "") -> tuple[WorkloadJob, ...]:
    """Eighteen fields a line (more are passed over): a processor is a GPU, the requested time the
    limit; jobs of negative run time or without processors are left out."""
    limits, jobs = Limits(reading), []
    for line, text in enumerate(file, 1):
        if not text.strip() or text.lstrip().startswith(";"):
            continue
        fields = text.split()
        if len(fields) < 18:
            raise InputFault(
                f"{path}: line {line}: {len(fields)} fields; a line of the Standard Workload "
                "Format has 18"
            )
        row = {name: fields[place] for name, place in _SWF.items()}
        values = {
            name: _number(row, name, line, path)
            for name in ("submit", "runtime", "used", "asked", "limit")
        }
        gpus = int(values["asked"] if values["asked"] > 0 else values["used"])
        runtime = values["runtime"]
        if runtime < 0 or gpus <= 0:
            continue
        asked = int(values["limit"]) if values["limit"] > 0 else limits.of(max(runtime, 1.0))
        jobs.append(
            WorkloadJob(
                row["job"],
                values["submit"],
                runtime,
                shaped(gpus, reading.host_gpus),
                project=f"group-{row['group']}",
                queue=f"queue-{row['queue']}",
                user=f"user-{row['user']}",
                max_runtime_s=asked,
                outcome=_SWF_OUTCOMES.get(row["status"], "succeeded"),
            )
        )
    start = min((job.submit_s for job in jobs), default=0.0)
    return in_order(_from_zero(jobs, start), reading)


def _from_zero(jobs: list[WorkloadJob], start: float) -> Iterator[WorkloadJob]:
    """Logs that say seconds since 1970 in the place of seconds since their own beginning."""
    for job in jobs:
        yield replace(job, submit_s=job.submit_s - start) if start > 1e8 else job


def _rows(
    file: IO[str], header: tuple[str, ...], path: str
) -> Iterator[tuple[int, dict[str, str]]]:
    reader = csv.reader(file)
    found = [name.strip() for name in next(reader, [])]
    missing = [name for name in header if name not in found]
    if missing:
        raise InputFault(f"{path}: line 1: no column {', '.join(missing)}; the header has {found}")
    for cells in reader:
        if not cells:
            continue
        if len(cells) != len(found):
            raise InputFault(
                f"{path}: line {reader.line_num}: {len(cells)} values for {len(found)} columns"
            )
        yield reader.line_num, dict(zip(found, (cell.strip() for cell in cells), strict=True))


def _number(row: dict[str, str], column: str, line: int, path: str) -> float:
    try:
        value = float(row[column])
    except ValueError:
        value = float("nan")
    if value != value or value in (float("inf"), float("-inf")):
        raise InputFault(
            f"{path}: line {line}: column {column}: '{row[column]}' is no number; "
            "write such as 3600 or 0.5"
        )
    return value


def _stamp(text: str, line: int, path: str) -> float:
    try:
        found = datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        raise InputFault(
            f"{path}: line {line}: column timestamp: '{text}' is no time; "
            "write such as 2017-10-09 07:01:55"
        ) from None
    return found.timestamp()
