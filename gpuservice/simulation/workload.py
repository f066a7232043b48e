# SPDX-License-Identifier: Apache-2.0
"""What arrives: jobs with the time they really need, which the planner is never told."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gpuservice.domain.jobspec import PRIORITIES
from gpuservice.planner.snapshot import Request
from gpuservice.simulation.faults import InputFault

#: Times are kept to the microsecond, so that moments that are equal compare equal.
PLACES = 6

ONE_GPU = Request()


@dataclass(frozen=True, slots=True)
class WorkloadJob:
    """One job of a trace. ``outcome``: how it ends when it is let run for ``duration_s``.

    ``depends_on``: (name of another job, condition). ``deadline_s``: fails if it still waits then.
    ``waited_s``: how long it has waited already when it comes, with ``due_s`` (from when on it is
    promised a start) and ``promised_s`` (since when it is), if it has them.
    """

    name: str
    submit_s: float
    duration_s: float
    request: Request = ONE_GPU
    project: str = "default"
    queue: str = "default"
    user: str = "default"
    kind: str = "training"
    priority: int = PRIORITIES["normal"]
    max_runtime_s: int | None = None
    preemptible: bool = True
    array_size: int = 1
    max_running: int | None = None
    depends_on: tuple[tuple[str, str], ...] = ()
    deadline_s: float | None = None
    outcome: str = "succeeded"
    waited_s: float = 0.0
    due_s: float | None = None
    promised_s: float | None = None

    @property
    def since_s(self) -> float:
        """When it was submitted: before it comes, if it has waited."""
        return self.submit_s - self.waited_s

    @property
    def milli(self) -> int:
        """Milli-GPUs of one whole gang (a share by memory counts as one GPU a task)."""
        request = self.request
        each = 1000 if request.gpu_memory_mib is not None else request.gpu_milli
        return each * request.count


@dataclass(frozen=True, slots=True)
class Reading:
    """How a trace without limits and tasks becomes jobs.

    A job asks for ``limit_factor`` times what it needs, scattered by a lognormal factor of
    ``limit_scatter_sigma``, never less than it needs. ``host_gpus``: what one task has at most; a
    larger job is a gang of whole hosts. ``first``: no more than that many jobs.
    """

    host_gpus: int = 8
    limit_factor: float = 1.0
    limit_scatter_sigma: float = 0.0
    seed: int = 42
    first: int | None = None
    preemptible: bool | None = None


def moment(seconds: float) -> float:
    """A time to the microsecond."""
    return round(seconds, PLACES)


def shaped(gpus: int, host_gpus: int) -> Request:
    """A job of so many GPUs: on one host if it can, else on whole ones."""
    if gpus <= host_gpus:
        return Request(gpu_milli=1000 * gpus)
    hosts = -(-gpus // host_gpus)
    return Request(count=hosts, min_count=hosts, gpu_milli=1000 * host_gpus)


class Limits:
    """The time limits that users of a trace would have asked for."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._random = random.Random(reading.seed)

    def of(self, duration: float) -> int:
        """A limit for a job that needs ``duration``."""
        reading = self._reading
        asked = duration * reading.limit_factor
        if reading.limit_scatter_sigma:
            asked *= self._random.lognormvariate(0.0, reading.limit_scatter_sigma)
        return max(1, math.ceil(max(asked, duration)))


def in_order(jobs: Iterable[WorkloadJob], reading: Reading) -> tuple[WorkloadJob, ...]:
    """Jobs by submission (those of one moment as the file has them), cut and marked as told."""
    ordered = sorted(jobs, key=lambda job: job.submit_s)
    if reading.first is not None:
        ordered = ordered[: reading.first]
    if reading.preemptible is not None:
        ordered = [replace(job, preemptible=reading.preemptible) for job in ordered]
    return tuple(ordered)


def check_dependencies(jobs: Sequence[WorkloadJob]) -> None:
    """Every name that is depended on is one job's.

    :raises InputFault: naming the job and the name.
    """
    seen: dict[str, int] = {}
    for job in jobs:
        seen[job.name] = seen.get(job.name, 0) + 1
    for job in jobs:
        for name, _ in job.depends_on:
            if name == job.name or seen.get(name, 0) != 1:
                found = "itself" if name == job.name else f"{seen.get(name, 0)} jobs of this file"
                raise InputFault(
                    f"job '{job.name}': depends_on names '{name}', which is {found}; "
                    "it must name exactly one other job"
                )
