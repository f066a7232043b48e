# SPDX-License-Identifier: Apache-2.0
"""Nodes that are booked from a moment on: what promises take, by node."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gpuservice.planner.holds import Hold, holds_by_row
from gpuservice.planner.ledger import NOBODY, Ints, Layout
from gpuservice.planner.snapshot import Promise, Request

#: Promises whose holds are remembered.
_REMEMBERED = 1000


@dataclass(frozen=True, slots=True)
class Use:
    """What one promise takes of one node, from start to end.

    Of ``gpus`` devices, any of them: ``columns`` are those that it names. ``shares``: the
    milli-GPUs of each of its tasks where these take shares.
    """

    job_id: str
    project: int
    start: float
    end: float
    gpus: int
    vcpus: int
    memory_mib: int
    whole_node: bool  # not any of its devices will do: they are in one link group
    columns: tuple[int, ...]
    shares: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Booking:
    """A promise with the request it was made for; ``told``: whether its user sees it."""

    promise: Promise
    request: Request
    told: bool = True


def picks_devices(request: Request) -> bool:
    """Whether not any devices of a node will do: it is promised no start on a node while others
    have booked some of it."""
    return request.required and request.within == "link_group"


class Bookings:
    """Uses by row. ``taken`` (N, 2): CPUs and memory that all of them take."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.uses: dict[int, list[Use]] = {}
        self.of: dict[str, Booking] = {}
        self.taken: Ints = np.zeros((len(layout.nodes), 2), dtype=np.int64)

    @property
    def picky(self) -> bool:
        """Whether anything that is booked needs particular devices."""
        return any(picks_devices(booking.request) for booking in self.of.values())

    def add(self, booking: Booking) -> Iterable[int]:
        """Book; the rows that it is about."""
        self.of[booking.promise.job_id] = booking
        rows: list[int] = []
        for row, use in self.uses_of(booking):
            self.uses.setdefault(row, []).append(use)
            self.taken[row] += (use.vcpus, use.memory_mib)
            rows.append(row)
        return rows

    def uses_of(self, booking: Booking) -> Iterable[tuple[int, Use]]:
        """(row, what it takes there)."""
        promise, request = booking.promise, booking.request
        project = self._layout.projects.of(promise.project_id)
        whole = picks_devices(request)
        for row, hold, gpus in self._holds(promise):
            yield row, Use(
                promise.job_id, project, promise.start, promise.end, gpus, hold.vcpus,
                hold.memory_mib, whole, tuple(sorted({column for column, _ in hold.shares})),
                tuple(milli for _, milli in hold.shares) if request.shared else (),
            )  # fmt: skip

    def remove(self, job_id: str) -> tuple[Booking | None, list[int]]:
        """Give a booking up; (it, the rows that it was about)."""
        booking = self.of.pop(job_id, None)
        if booking is None:
            return None, []
        rows: list[int] = []
        for row, hold, _ in self._holds(booking.promise):
            left = [use for use in self.uses[row] if use.job_id != job_id]
            if left:
                self.uses[row] = left
            else:
                del self.uses[row]
            self.taken[row] -= (hold.vcpus, hold.memory_mib)
            rows.append(row)
        return booking, rows

    def _holds(self, promise: Promise) -> list[tuple[int, Hold, int]]:
        """(row, what is held there, of how many devices); promises are kept for many passes."""
        known = self._layout.promised.get(id(promise.tasks))
        if known is None or known[0] is not promise.tasks:
            if len(self._layout.promised) > _REMEMBERED:
                self._layout.promised.clear()
            holds = [
                (row, hold, len({column for column, _ in hold.shares}))
                for row, hold in holds_by_row(self._layout, promise.tasks, promise.end, NOBODY)
            ]
            known = self._layout.promised[id(promise.tasks)] = (promise.tasks, holds)
        return known[1]

    def by_start(self, row: int, *more: Use) -> list[Use]:
        """What is booked on a row, and ``more``, the soonest first."""
        return sorted((*self.uses.get(row, ()), *more), key=lambda use: use.start)

    def copy(self) -> Bookings:
        """Bookings to try things with."""
        other = Bookings(self._layout)
        other.uses = {row: list(uses) for row, uses in self.uses.items()}
        other.of = dict(self.of)
        other.taken = self.taken.copy()
        return other
