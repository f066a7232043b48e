# SPDX-License-Identifier: Apache-2.0
"""How things stand when the clock of a replay starts, where that is not an empty cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuservice.planner.snapshot import TaskPlacement, UsageKey


@dataclass(frozen=True, slots=True)
class Begun:
    """An element of a job that runs when the clock starts.

    ``job``: the name of its job, which comes at that moment; ``started_s`` is before it.
    ``left_s``: what it needs from then on; ``ends_by_s``: when its limit ends it, as the planner
    knows. ``stopping``: it was told to go and waits again after ``left_s``.
    """

    job: str
    tasks: tuple[TaskPlacement, ...]
    started_s: float
    left_s: float
    ends_by_s: float | None = None
    preempted: int = 0
    stopping: bool = False


@dataclass(frozen=True, slots=True)
class Opening:
    """``usage``: what (queue, project, user) had up to then, decayed, in milli-GPU-seconds;
    ``limit_ratio``: how long jobs that ended before ran against their limits."""

    begun: tuple[Begun, ...] = ()
    usage: Mapping[UsageKey, float] = field(default_factory=dict)
    limit_ratio: float = 1.0


EMPTY = Opening()
