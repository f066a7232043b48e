# SPDX-License-Identifier: Apache-2.0
"""Promised starts and what they leave to backfill.

A waiting job of rank gets the earliest moment at which it fits, given the promised ends of what
runs and the promises made before it. Something lower may start now only where it fits at every
moment until its own end, promised starts included: the EASY rule (Lifka 1995) for one promise,
conservative backfill for all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from gpuservice.planner.capacity import Candidates
from gpuservice.planner.ledger import Bools, Held, Ledger
from gpuservice.planner.placement import Tasks, place
from gpuservice.planner.plan_types import Promise
from gpuservice.planner.snapshot import Request, TaskPlacement

FOREVER = float("inf")

#: Moments looked at one after another among promises; behind the last of them it is bisected.
MAX_MOMENTS = 32


@dataclass(frozen=True, slots=True)
class Release:
    """A gang that holds something until ``at``."""

    at: float
    tasks: tuple[TaskPlacement, ...]


@dataclass(slots=True)
class Future:
    """The time axis of one pass: the ledger now, the releases to come, the promises made."""

    now: float
    ledger: Ledger
    healthy: Bools
    releases: list[Release]
    promises: list[Promise] = field(default_factory=list)
    _held: Held | None = None
    _ends: list[float] = field(default_factory=list)

    def started(self, tasks: Tasks, end: float) -> None:
        """Something was started now (and taken from the ledger): it will be released."""
        self.releases.append(Release(end, tasks))
        self._held = None

    def with_promises(self, promises: list[Promise]) -> Future:
        """The same time axis under other promises."""
        return Future(
            self.now, self.ledger, self.healthy, self.releases, promises, self._held, self._ends
        )

    def state_at(self, moment: float) -> Ledger:
        """What is free at a moment, promises that hold then taken."""
        state = self.ledger.copy()
        state.release(self._columns(), moment, self.healthy)
        for promise in self.promises:
            if promise.start <= moment < promise.end:
                state.take(promise.tasks, state.layout.projects.of(promise.project_id))
        return state

    def _columns(self) -> Held:
        """What is held until when; kept until something else starts."""
        if self._held is None:
            self._held = Held.of(self.ledger.layout, ((one.at, one.tasks) for one in self.releases))
            self._ends = sorted({one.at for one in self.releases if self.now < one.at < FOREVER})
        return self._held

    def window(self, start: float, end: float) -> Ledger:
        """What is free from ``start`` until ``end``."""
        state = self.ledger if start <= self.now else self.state_at(start)
        for promise in self.promises:
            if start < promise.start < end:
                state = state.least(self.state_at(promise.start))
        return state

    def earliest(
        self,
        request: Request,
        where: Sequence[Candidates],
        runtime: float,
        not_before: float = 0.0,
        tries: int = MAX_MOMENTS,
    ) -> tuple[float, Tasks] | None:
        """A moment after now at which the request fits for ``runtime`` seconds, the first one
        unless more than ``tries`` lie among promises. None: not while what runs without
        a limit runs.

        Behind the start of the last promise, what is free only grows: there it is bisected.
        """
        self._columns()
        ends = sorted({*self._ends, *(one.end for one in self.promises if one.end < FOREVER)})
        ends = ends[bisect_left(ends, not_before) :]
        last = max((one.start for one in self.promises), default=self.now)
        among = [moment for moment in ends if moment < last]
        for moment in among[:tries]:
            if place(self.state_at(moment), request, where) is None:
                continue
            tasks = place(self.window(moment, moment + runtime), request, where)
            if tasks is not None:
                return moment, tasks
        return self._bisect(request, where, ends[len(among) :])

    def _bisect(
        self, request: Request, where: Sequence[Candidates], ends: Sequence[float]
    ) -> tuple[float, Tasks] | None:
        low, high, found = 0, len(ends) - 1, None
        while low <= high:
            middle = (low + high) // 2
            tasks = place(self.state_at(ends[middle]), request, where)
            if tasks is None:
                low = middle + 1
            else:
                found, high = (ends[middle], tasks), middle - 1
        return found
