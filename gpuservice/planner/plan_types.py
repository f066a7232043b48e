# SPDX-License-Identifier: Apache-2.0
"""What a plan is: starts, promises, wanted pool sizes, and a reason for everything that waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuservice.planner.snapshot import Promise, TaskPlacement

__all__ = [
    "Holder", "Plan", "Preemption", "Promise", "ReasonFact", "Start", "Waiting",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Start:
    """Start one element of a job on these places."""

    job_id: str
    tasks: tuple[TaskPlacement, ...]


@dataclass(frozen=True, slots=True)
class ReasonFact:
    """One reason with its sentence and numbers."""

    code: str
    detail: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Holder:
    """A running job on devices that the waiting one could use."""

    job_id: str
    project_id: str
    gpus_milli: int
    ends_by: float | None


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why one job waits. Tuples are shared between jobs of one shape."""

    job_id: str
    project_id: str
    reasons: tuple[ReasonFact, ...]
    position: int | None = None
    estimated_start: float | None = None
    estimate_basis: str | None = None
    holders: tuple[Holder, ...] = ()
    would_start_now_if: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Preemption:
    """Stop a running gang for a waiting job. ``why``: priority, reclaim, due_gang, short_job or
    defragment."""

    gang_id: str
    job_id: str
    for_job_id: str
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The outcome. ``wanted``: pool id -> how many nodes an autoscaled pool should have.

    ``due``: when each job that had no due time yet gets a promise; whoever keeps jobs keeps it.
    ``claims``: where those for whom others go will start (not when: that depends on how soon the
    others are gone); kept with the jobs like promises, so that nobody else takes these places.
    """

    starts: tuple[Start, ...] = ()
    waiting: Sequence[Waiting] = ()
    promises: tuple[Promise, ...] = ()
    wanted: Mapping[str, int] = field(default_factory=dict)
    preemptions: tuple[Preemption, ...] = ()
    due: Mapping[str, float] = field(default_factory=dict)
    claims: tuple[Promise, ...] = ()
