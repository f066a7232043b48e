# SPDX-License-Identifier: Apache-2.0
"""Quota that is booked: what promised jobs will take of their projects' and queues' quotas.

A promise that finds its quota used up when it is due would be broken. So what it will take counts
for everything that runs on until then, together with what then still runs by its limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from gpuservice.planner.cohorts import QueueQuotas
from gpuservice.planner.holds import FOREVER, gone_at
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
    gang_id: str = ""


class QuotaBookings:
    """Counts what is taken in one pass, for good or from a moment on, and can undo it."""

    def __init__(
        self,
        now: float,
        headroom: Headroom,
        quotas: QueueQuotas,
        running: Callable[[float, Collection[str]], Iterable[Taken]],
    ) -> None:
        self._now = now
        self._running = running
        self._headroom = headroom
        self._quotas = quotas
        self._started: list[Taken] = []
        self._booked: dict[str, tuple[float, Taken]] = {}
        #: Running gangs that go for others, and those that are counted as gone for a trial.
        self.going: set[str] = set()
        self.away: set[str] = set()
        self._ended: dict[float, list[Taken]] = {}

    def started(self, taken: Taken) -> None:
        """Taken from now on."""
        self._count(taken, 1)
        self._started.append(taken)
        self._ended.clear()

    def goes(self, gang_id: str) -> None:
        """A running gang goes for others: what it takes will be free."""
        self.going.add(gang_id)
        self._ended.clear()

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

    def least(
        self, ask: Callable[[], tuple[int, str]], enough: int, start: float | None, end: float
    ) -> tuple[int, str]:
        """The least that is left, as ``ask`` tells it, for something that runs from ``start``
        (None: now) to ``end``: more of quotas is taken at booked starts only. Any amount that is
        ``enough`` will do."""
        found = ask()  # the quick answer: all is taken at once
        if found[0] >= enough:
            return found
        with self.lifted(end):
            found = ask()
        if found[0] >= enough or not (self._booked or start is not None):
            return found
        since = self._now if start is None else max(start, self._now)
        moments = {since, *(at for at, _ in self._booked.values() if since < at < end)}
        told: list[tuple[int, str]] = []
        for moment in sorted(moments):
            with self._then(moment):
                told.append(ask())
        return max(found, min(told, key=lambda one: one[0]), key=lambda one: one[0])

    @contextmanager
    def _then(self, moment: float) -> Iterator[None]:
        """What is left at a moment: of what runs and was started some has ended by then, and what
        is booked is there if its time has come."""
        booked = [
            taken for start, taken in self._booked.values() if not start <= moment < taken.end
        ]
        with self._without((*booked, *self._ended_by(moment))):
            yield

    def _ended_by(self, moment: float) -> list[Taken]:
        """What is given back by a moment, summed up; by the next moment also what those have who
        go for others."""
        if moment <= self._now:
            return []
        next_moment = self._now + 1
        if moment in self._ended and not self.away:
            return self._ended[moment]
        ended = [
            one
            for one in (*self._running(moment, self.going), *self._started)
            if one.gang_id not in self.away
            and (
                gone_at(one.end, self._now) <= moment
                or (one.gang_id in self.going and next_moment <= moment)
            )
        ]
        found = list(_summed(ended))
        if not self.away:
            self._ended[moment] = found
        return found

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


def _summed(these: Iterable[Taken]) -> Iterable[Taken]:
    """The same amounts by whose they are."""
    of_project: dict[tuple[str, str, bool], Counter[str]] = {}
    by_type: dict[tuple[str, str, bool], Counter[str]] = {}
    for one in these:
        key = (one.project_id, one.queue_id, one.preemptible)
        of_project.setdefault(key, Counter()).update(one.of_project)
        by_type.setdefault(key, Counter()).update(one.by_type)
    for key, amounts in by_type.items():
        project, queue, preemptible = key
        yield Taken(project, queue, of_project[key], amounts, preemptible)
