# SPDX-License-Identifier: Apache-2.0
"""The simulator's own workload file: CSV with named columns; what is left out is as in the API."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from gpuservice.domain.jobspec import PRIORITIES
from gpuservice.planner.snapshot import LEVELS, Request
from gpuservice.simulation.faults import InputFault
from gpuservice.simulation.workload import Limits, Reading, WorkloadJob, in_order, moment

#: The columns of the design, in its order, and those that only some workloads need.
COLUMNS = (
    "submit_s",
    "name",
    "project",
    "queue",
    "user",
    "kind",
    "priority",
    "tasks",
    "min_tasks",
    "gpus_per_task",
    "gpu_milli",
    "gpu_types",
    "min_gpu_memory_mib",
    "vcpus",
    "memory_mib",
    "within",
    "topology_policy",
    "duration_s",
    "max_runtime_s",
    "preemptible",
)
MORE_COLUMNS = (
    "gpu_memory_mib",
    "array_size",
    "array_max_running",
    "depends_on",
    "deadline_s",
    "outcome",
)
NEEDED = ("submit_s", "duration_s")
KINDS = ("interactive", "training", "evaluation", "data", "service")
CONDITIONS = ("succeeded", "failed", "ended", "started")
YES_NO = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True, slots=True)
class Row:
    """One line, whose values are asked for by column; an empty or missing one is its default."""

    path: str
    line: int
    cells: Mapping[str, str]

    def text(self, column: str, default: str) -> str:
        """A word."""
        return self.cells.get(column) or default

    def whole(self, column: str, default: int | None, least: int, most: int) -> int | None:
        """A whole number within bounds."""
        right = f"a whole number from {least} to {most}"
        found: int | None = self._read(column, default, int, right)
        if found is not None and not least <= found <= most:
            raise self.fault(column, right)
        return found

    def seconds(self, column: str, default: float | None) -> float | None:
        """Seconds, 0 or more."""
        right = "a number of seconds, 0 or more, such as 3600 or 0.5"
        found: float | None = self._read(column, default, float, right)
        if found is not None and not 0 <= found < float("inf"):
            raise self.fault(column, right)
        return None if found is None else moment(found)

    def one_of(self, column: str, default: str, choices: Sequence[str]) -> str:
        """One of some words."""
        found = self.text(column, default)
        if found and found not in choices:
            raise self.fault(column, f"one of {', '.join(choices)}")
        return found

    def yes(self, column: str, default: bool) -> bool:
        """True or false."""
        found = self.cells.get(column)
        if not found:
            return default
        if found.lower() not in YES_NO:
            raise self.fault(column, "true or false")
        return YES_NO[found.lower()]

    def fault(self, column: str, right: str) -> InputFault:
        """What is wrong where, and what would be right."""
        value = self.cells.get(column, "")
        return InputFault(
            f"{self.path}: line {self.line}: column {column}: '{value}' is wrong; "
            f"it must be {right}"
        )

    def _read(self, column: str, default: Any, convert: Callable[[str], Any], right: str) -> Any:
        found = self.cells.get(column)
        if not found:
            return default
        try:
            return convert(found)
        except ValueError:
            raise self.fault(column, right) from None


def read_csv(file: IO[str], reading: Reading, path: str = "") -> tuple[WorkloadJob, ...]:
    """The jobs of a workload file, by submission.

    :raises InputFault: naming line, column, value and what is right.
    """
    reader = csv.reader(file)
    header = [name.strip() for name in next(reader, [])]
    _check_header(header, path)
    limits, jobs = Limits(reading), []
    for cells in reader:
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(header):
            raise InputFault(
                f"{path}: line {reader.line_num}: {len(cells)} values for the {len(header)} "
                "columns of the header"
            )
        named = dict(zip(header, (cell.strip() for cell in cells), strict=True))
        jobs.append(_job(Row(path, reader.line_num, named), reading, limits))
    return in_order(jobs, reading)


def read_rows(rows: Sequence[Mapping[str, Any]], reading: Reading) -> tuple[WorkloadJob, ...]:
    """The jobs of rows that came as objects with the columns as fields, by submission.

    :raises InputFault: naming row (from 1), column, value and what is right.
    """
    limits = Limits(reading)
    return in_order(
        [
            _job(
                Row("workload", number, {name: _cell(value) for name, value in row.items()}),
                reading,
                limits,
            )
            for number, row in enumerate(rows, 1)
        ],
        reading,
    )


def _cell(value: Any) -> str:
    """A value as a file would have it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return " ".join(_cell(one) for one in value)
    return str(value)


def _check_header(header: Sequence[str], path: str) -> None:
    known = (*COLUMNS, *MORE_COLUMNS)
    for name in header:
        if name not in known:
            raise InputFault(
                f"{path}: line 1: there is no column '{name}'; the columns are {','.join(known)}"
            )
        if header.count(name) > 1:
            raise InputFault(f"{path}: line 1: column '{name}' is there twice")
    for name in NEEDED:
        if name not in header:
            raise InputFault(f"{path}: line 1: column '{name}' is missing, and has no default")


def _job(row: Row, reading: Reading, limits: Limits) -> WorkloadJob:
    submit, duration = row.seconds("submit_s", None), row.seconds("duration_s", None)
    if submit is None or duration is None:
        column = "submit_s" if submit is None else "duration_s"
        raise row.fault(column, "a number of seconds, 0 or more, such as 3600 or 0.5")
    limit = row.whole("max_runtime_s", None, 1, 2**31 - 1)
    if limit is None and reading.limit_factor != 1.0:
        limit = limits.of(duration)
    return WorkloadJob(
        row.text("name", f"job-{row.line - 1}"),
        submit,
        duration,
        _request(row),
        row.text("project", "default"),
        row.text("queue", "default"),
        row.text("user", "default"),
        row.one_of("kind", "training", KINDS),
        _priority(row),
        limit,
        row.yes("preemptible", True),
        row.whole("array_size", 1, 1, 1_000_000) or 1,
        row.whole("array_max_running", None, 1, 1_000_000),
        _depends_on(row),
        row.seconds("deadline_s", None),
        row.one_of("outcome", "succeeded", ("succeeded", "failed")),
    )


def _priority(row: Row) -> int:
    found = row.text("priority", "normal")
    if found in PRIORITIES:
        return PRIORITIES[found]
    if found.isdigit() and int(found) <= 1000:
        return int(found)
    raise row.fault("priority", f"0 to 1000 or one of {', '.join(PRIORITIES)}")


def _request(row: Row) -> Request:
    tasks = row.whole("tasks", 1, 1, 10_000) or 1
    least = row.whole("min_tasks", tasks, 1, 10_000) or tasks
    if least > tasks:
        raise row.fault("min_tasks", f"no more than tasks, which is {tasks}")
    memory = row.whole("gpu_memory_mib", None, 1, 1 << 24)
    within = row.one_of("within", "", LEVELS)
    policy = row.one_of("topology_policy", "required", ("required", "preferred"))
    types = tuple(name for name in row.text("gpu_types", "").replace("|", " ").split() if name)
    return Request(
        count=tasks,
        min_count=least,
        gpu_milli=_gpu_milli(row, memory),
        gpu_memory_mib=memory,
        gpu_types=types,
        min_gpu_memory_mib=row.whole("min_gpu_memory_mib", 0, 0, 1 << 24) or 0,
        vcpus=row.whole("vcpus", 0, 0, 65_536) or 0,
        memory_mib=row.whole("memory_mib", 0, 0, 1 << 30) or 0,
        within=within or None,
        required=bool(within) and policy == "required",
    )


def _gpu_milli(row: Row, memory: int | None) -> int:
    """Milli-GPUs of a task: whole GPUs, or a share of one that leaves out their number."""
    gpus = row.whole("gpus_per_task", None, 0, 1024)
    milli = row.whole("gpu_milli", None, 0, 1_024_000)
    if memory is not None:
        if gpus not in (None, 0, 1) or milli is not None:
            raise row.fault("gpu_memory_mib", "alone: a share of one GPU by its memory")
        return 0
    if milli is None or milli == 1000:
        return 1000 * (1 if gpus is None else gpus)
    if milli < 1000:
        if gpus not in (None, 1) and milli:
            raise row.fault("gpu_milli", "1000 where gpus_per_task is not 1: a share is of one GPU")
        return milli
    if milli % 1000 or gpus not in (None, 1, milli // 1000):
        raise row.fault("gpu_milli", "1 to 1000, or the thousandfold of gpus_per_task")
    return milli


def _depends_on(row: Row) -> tuple[tuple[str, str], ...]:
    found = []
    for part in row.text("depends_on", "").replace(";", " ").split():
        name, _, condition = part.partition(":")
        condition = condition or "succeeded"
        if condition not in CONDITIONS:
            raise row.fault(
                "depends_on", f"NAME:CONDITION, several with ';'; one of {', '.join(CONDITIONS)}"
            )
        found.append((name, condition))
    return tuple(found)
