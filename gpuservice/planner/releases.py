# SPDX-License-Identifier: Apache-2.0
"""When CPUs, memory and room for tasks come free on nodes, by the ends of what runs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpuservice.domain.inventory import MAX_TASKS_PER_NODE
from gpuservice.planner.bookings import Bookings
from gpuservice.planner.capacity import Candidates
from gpuservice.planner.holds import ALREADY, FOREVER, Present
from gpuservice.planner.ledger import NOBODY, Bools, Floats, Ints, Ledger
from gpuservice.planner.snapshot import Request


class _Released(NamedTuple):
    """What comes free on the nodes of a pool, (n, H): sorted ends, what is free after each."""

    ends: Floats  # (n, H)
    cpus: Ints  # (n, H + 1)
    memory: Ints
    tasks: Ints
    last: Floats  # (n,) when nothing runs any more


class Releases:
    """Releases by pool, worked out when asked for."""

    def __init__(self, ledger: Ledger, present: Present) -> None:
        self._ledger = ledger
        self._present = present
        self._known: dict[str, _Released] = {}

    def forget(self, row: int) -> None:
        """Something was started on a row, or goes from it."""
        self._known.pop(self._ledger.layout.pool[row], None)

    def times(self, request: Request, where: Candidates, most: int, booked: Bookings) -> Floats:
        """(n, most): when CPUs, memory, task slots and neighbours of each node of a pool allow
        1, 2, ... tasks, behind everything that is booked."""
        released = self._of(where)
        rows = where.rows
        times = np.full((rows.stop - rows.start, most), ALREADY)
        taken = booked.taken[rows]
        for each, free, held in (
            (request.vcpus, released.cpus, taken[:, 0]),
            (request.memory_mib, released.memory, taken[:, 1]),
            (1, released.tasks, None),
        ):
            if not each or not len(free):
                continue
            # Mostly there is enough on each node as it is: nothing else has to be looked at.
            least = int((free[:, 0] if held is None else free[:, 0] - held).min())
            for number in range(max(least // each, 0) + 1, most + 1):
                left = free if held is None else free - held[:, None]
                when = _when(left >= each * number, released.ends)
                times[:, number - 1] = np.maximum(times[:, number - 1], when)
        if self._ledger.layout.alone[where.pool]:
            self._alone(times, where, released, booked)
        return times

    def _alone(
        self, times: Floats, where: Candidates, released: _Released, booked: Bookings
    ) -> None:
        """Nodes that hold one project at a time are free for others when all of it is gone."""
        rows = where.rows
        alone = self._ledger.layout.isolation_node[rows]
        occupant = self._ledger.occupant[rows]
        others = alone & (occupant != NOBODY) & (occupant != where.project)
        times[others] = np.maximum(times[others], released.last[others][:, None])
        for row, uses in booked.uses.items():
            if rows.start <= row < rows.stop and alone[row - rows.start]:
                until = [use.end for use in uses if use.project != where.project]
                at = row - rows.start
                times[at] = np.maximum(times[at], max(until, default=ALREADY))

    def _of(self, where: Candidates) -> _Released:
        if where.pool not in self._known:
            self._known[where.pool] = self._release(where.rows)
        return self._known[where.pool]

    def _release(self, rows: slice) -> _Released:
        profile = self._present.profile(rows)
        count, width = profile.ends.shape
        sums = np.zeros((3, count, width + 1), dtype=np.int64)
        np.cumsum(profile.freed, axis=2, out=sums[:, :, 1:])
        ledger = self._ledger
        return _Released(
            profile.ends,
            ledger.cpus[rows][:, None] + sums[0],
            ledger.memory[rows][:, None] + sums[1],
            MAX_TASKS_PER_NODE - ledger.tasks[rows][:, None] + sums[2],
            profile.last(),
        )


def _when(enough: Bools, ends: Floats) -> Floats:
    """(n,): the end after which there is enough for the first time (``enough`` only grows)."""
    short = (~enough).sum(axis=1)
    padded = np.concatenate(
        [np.full((len(ends), 1), ALREADY), ends, np.full((len(ends), 1), FOREVER)], axis=1
    )
    when: Floats = padded[np.arange(len(ends)), short]
    return when
