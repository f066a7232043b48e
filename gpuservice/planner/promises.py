# SPDX-License-Identifier: Apache-2.0
"""Promised starts and what they leave to backfill.

A waiting job of rank gets the earliest moment at which it fits, given the promised ends of what
runs and the promises made before it. Something lower may start now only where it fits at every
moment until its own end, promised starts included: the EASY rule (Lifka 1995) for one promise,
conservative backfill for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gpuservice.planner.capacity import Candidates
from gpuservice.planner.ledger import NOBODY, Bools, Ledger
from gpuservice.planner.placement import Tasks, place
from gpuservice.planner.plan_types import Promise
from gpuservice.planner.snapshot import Request, TaskPlacement

FOREVER = float("inf")


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

    def started(self, tasks: Tasks, end: float) -> None:
        """Something was started now (and taken from the ledger): it will be released."""
        self.releases.append(Release(end, tasks))

    def state_at(self, moment: float) -> Ledger:
        """What is free at a moment, promises that hold then taken."""
        state = self.ledger.copy()
        for release in self.releases:
            if release.at <= moment:
                state.release(release.tasks, self.healthy)
        for promise in self.promises:
            if promise.start <= moment < promise.end:
                state.take(promise.tasks, state.layout.projects.of(promise.project_id))
        return state

    def window(self, start: float, end: float) -> Ledger:
        """What is free from ``start`` until ``end``."""
        state = self.ledger if start <= self.now else self.state_at(start)
        for promise in self.promises:
            if start < promise.start < end:
                state = state.least(self.state_at(promise.start))
        return state

    def earliest(
        self, request: Request, where: Candidates, runtime: float
    ) -> tuple[float, Tasks] | None:
        """The first moment after now at which the request fits for ``runtime`` seconds.

        What is free only grows with time, but for promises; so without promises the moment is
        found by bisection, with them by looking at each end in turn.
        """
        ends = sorted({
            *(one.at for one in self.releases if self.now < one.at < FOREVER),
            *(one.end for one in self.promises if self.now < one.end < FOREVER)})
        if not self.promises:
            return self._bisect(request, where, ends)
        for moment in ends:
            tasks = place(self.window(moment, moment + runtime), request,
                          self._where(where, moment))
            if tasks is not None:
                return moment, tasks
        return None

    def _bisect(
        self, request: Request, where: Candidates, ends: Sequence[float]
    ) -> tuple[float, Tasks] | None:
        low, high, found = 0, len(ends) - 1, None
        while low <= high:
            middle = (low + high) // 2
            tasks = place(self.state_at(ends[middle]), request,
                          self._where(where, ends[middle]))
            if tasks is None:
                low = middle + 1
            else:
                found, high = (ends[middle], tasks), middle - 1
        return found

    def _where(self, where: Candidates, moment: float) -> Candidates:
        """Candidates of a later moment: nodes occupied by others now may be free then."""
        state = self.state_at(moment)
        layout = state.layout
        free = (state.occupant == NOBODY) | (state.occupant == where.project)
        return Candidates(where.nodes & (~layout.isolation_node | free), where.project)


def future_candidates(ledger: Ledger, pool_ids: frozenset[str], project: int) -> Candidates:
    """Ready nodes of the pools, whoever is on them now."""
    mask = np.array([pool in pool_ids for pool in ledger.layout.pool], dtype=np.bool_)
    return Candidates(mask & ledger.ready, project)
