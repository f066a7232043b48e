# SPDX-License-Identifier: Apache-2.0
"""What became of each job: kept while the clock runs, told at its end."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from gpuservice.planner.snapshot import TaskPlacement, UsageKey
from gpuservice.simulation.workload import WorkloadJob

#: Moments nearer to each other than this are one.
INSTANT = 1e-6

#: Outcomes after which a job waits again.
AGAIN = frozenset({"preempted", "node_failure"})


@dataclass(slots=True)
class Attempt:
    """One run of one element. ``outcome`` is None while it lasts."""

    index: int
    start_s: float
    tasks: tuple[TaskPlacement, ...]
    end_s: float | None = None
    outcome: str | None = None


@dataclass(slots=True)
class Element:
    """One run that is still to be done: a job has one, an array several."""

    index: int
    left_s: float
    preempted: int = 0
    ran_s: float = 0.0  # of the limit, where what is left of it is what the next attempt gets


@dataclass(slots=True)
class Record:
    """One job on its way. ``queued_at``: since when it may wait in line.

    ``limit``: its own time limit or its queue's; ``told``: the limit that the planner knows.
    ``offered``: elements that the session knows as waiting. ``promise_s``: the first start that it
    was promised, at ``promise_made_s``; ``standing_s``: the earliest since it waits (again);
    ``slip_s``: by how much one of these was missed at most.
    """

    job: WorkloadJob
    job_id: str
    sequence: int
    limit: int | None
    told: int | None
    usage_key: UsageKey
    queued_at: float = 0.0
    status: str = "queued"
    failure: str | None = None
    waiting: deque[Element] = field(default_factory=deque)
    running: int = 0
    unfinished: int = 1
    offered: int = 0
    due: float | None = None
    promised: float | None = None
    claims: int = 0
    quota_blocked: bool = False
    attempts: list[Attempt] = field(default_factory=list)
    promise_made_s: float | None = None
    promise_s: float | None = None
    standing_s: float | None = None
    slip_s: float = 0.0
    ended_s: float | None = None
    outcomes: set[str] = field(default_factory=set)

    @property
    def started(self) -> bool:
        """Whether anything of it ever ran."""
        return bool(self.attempts)

    def missed(self, start: float) -> None:
        """It starts, or is now promised to, at ``start``: note by how much that is too late."""
        if self.standing_s is not None and start - self.standing_s >= INSTANT:
            self.slip_s = max(self.slip_s, start - self.standing_s)


@dataclass(slots=True)
class Gang:
    """A live attempt. ``stopping_for``: the job for which it was told to go."""

    gang_id: str
    record: Record
    element: Element
    attempt: Attempt
    milli: int
    end_at: float
    ends_as: str
    stopping_for: str | None = None
