# SPDX-License-Identifier: Apache-2.0
"""Quota that is booked: what promised jobs will take of their projects' and queues' quotas.

A promise that finds its quota used up when it is due would be broken. So what it will take is
counted from the moment of the promise on, except for jobs that end before it is due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from gpuservice.planner.cohorts import QueueQuotas
from gpuservice.planner.holds import FOREVER
from gpuservice.planner.quota import Headroom


@dataclass(frozen=True, slots=True)
class Taken:
    """What a gang takes of its project's quota and of its queue's, by GPU type."""

    project_id: str
    queue_id: str
    of_project: Mapping[str, int]
    by_type: Mapping[str, int]
    preemptible: bool
    end: float = FOREVER


class QuotaBookings:
    """Counts what is taken in one pass, for good or from a moment on, and can undo it."""

    def __init__(
        self,
        headroom: Headroom,
        quotas: QueueQuotas,
        running: Callable[[], Iterable[Taken]],
    ) -> None:
        self._running = running
        self._headroom = headroom
        self._quotas = quotas
        self._started: list[Taken] = []
        self._booked: dict[str, tuple[float, Taken]] = {}

    def started(self, taken: Taken) -> None:
        """Taken from now on."""
        self._count(taken, 1)
        self._started.append(taken)

    def book(self, job_id: str, start: float, taken: Taken) -> None:
        """Taken from a moment on."""
        self._count(taken, 1)
        self._booked[job_id] = (start, taken)

    def vacate(self, job_id: str) -> tuple[float, Taken] | None:
        """Give up what is booked for a job."""
        booked = self._booked.pop(job_id, None)
        if booked is not None:
            self._count(booked[1], -1)
        return booked

    @contextmanager
    def lifted(self, until: float) -> Iterator[None]:
        """What is left for something that ends at ``until``: what is booked from then on does
        not count."""
        free = [taken for start, taken in self._booked.values() if start >= until]
        with self._without(free):
            yield

    @contextmanager
    def at(self, moment: float) -> Iterator[None]:
        """What is left at a later moment, when some of what runs and was started has ended."""
        ended = [one for one in (*self._running(), *self._started) if one.end <= moment]
        with self._without(ended):
            yield

    @contextmanager
    def _without(self, these: Iterable[Taken]) -> Iterator[None]:
        free = list(these)
        for taken in free:
            self._count(taken, -1)
        try:
            yield
        finally:
            for taken in free:
                self._count(taken, 1)

    def __bool__(self) -> bool:
        return bool(self._booked)

    def undo(self) -> None:
        """Nothing of the pass was taken."""
        for taken in reversed(self._started):
            self._count(taken, -1)
        for job_id in list(self._booked):
            self.vacate(job_id)
        self._started.clear()

    def _count(self, taken: Taken, sign: int) -> None:
        self._headroom.change(taken.project_id, taken.of_project, -sign)
        self._quotas.add(taken.queue_id, taken.by_type, taken.preemptible, sign)
