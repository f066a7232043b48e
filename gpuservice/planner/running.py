# SPDX-License-Identifier: Apache-2.0
"""The running gangs, by name, by job, and as columns that are summed up at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from gpuservice.planner.holds import FOREVER
from gpuservice.planner.ledger import Floats
from gpuservice.planner.quota_bookings import Taken
from gpuservice.planner.snapshot import RunningGang

#: A row of the columns that is of no gang.
_NOTHING = (0.0, 0.0, FOREVER)

_FIRST = 64

#: So many are looked for first where somebody asks who ends first.
_SOONEST = 256


@dataclass(slots=True)
class Gang:
    """A running gang with what it counts as."""

    gang: RunningGang
    share: int
    milli: int
    by_type: dict[str, int]
    by_pool: dict[tuple[str, str], int]  # (pool, GPU type) -> milli-GPUs
    taken: dict[str, int]  # of the project's quota
    rows: tuple[int, ...]
    number: int = -1


class Running:
    """What runs. ``columns``: of each gang, by number, share, milli-GPUs and end."""

    def __init__(self) -> None:
        self.gangs: dict[str, Gang] = {}
        self.of_job: dict[str, set[str]] = {}  # the gangs of each job
        self.columns: Floats = np.tile(_NOTHING, (_FIRST, 1))
        self._free = list(range(_FIRST - 1, -1, -1))
        self._by_number: list[Gang | None] = [None] * _FIRST

    def add(self, record: Gang, end: float) -> None:
        """A gang runs."""
        if not self._free:
            size = len(self.columns)
            self.columns = np.concatenate([self.columns, np.tile(_NOTHING, (size, 1))])
            self._free = list(range(2 * size - 1, size - 1, -1))
            self._by_number.extend([None] * size)
        record.number = self._free.pop()
        gang = record.gang
        self.gangs[gang.gang_id] = record
        self.of_job.setdefault(gang.job_id, set()).add(gang.gang_id)
        self.columns[record.number] = (record.share, record.milli, end)
        self._by_number[record.number] = record

    def remove(self, gang_id: str) -> Gang:
        """A gang is gone."""
        record = self.gangs.pop(gang_id)
        theirs = self.of_job[record.gang.job_id]
        theirs.discard(gang_id)
        if not theirs:
            del self.of_job[record.gang.job_id]
        self.columns[record.number] = _NOTHING
        self._by_number[record.number] = None
        self._free.append(record.number)
        return record

    def end_by(self, record: Gang, end: float) -> None:
        """A gang has to be gone by another time."""
        self.columns[record.number, 2] = end

    def by_end(self) -> Iterator[int]:
        """All numbers, those of the gangs that end first before others; mostly a few will do."""
        ends = self.columns[:, 2]
        first = np.arange(0)
        if len(ends) > 4 * _SOONEST:
            first = np.flatnonzero(ends <= np.partition(ends, _SOONEST)[_SOONEST])
            first = first[ends[first].argsort(kind="stable")]
            yield from first.tolist()
        yield from ends.argsort(kind="stable")[len(first) :].tolist()

    def get(self, number: int) -> Gang | None:
        """The gang of a number, where it is one's."""
        return self._by_number[number]

    def end(self, number: int) -> float:
        """When a gang is gone."""
        return self.columns.item(number, 2)

    def taken(self, until: float, besides: Collection[str]) -> Iterator[Taken]:
        """What each that is gone by then takes of quotas, and these that go sooner than they
        would."""
        ends = self.columns[:, 2]
        numbers = set(np.flatnonzero(ends <= until).tolist())
        numbers |= {self.gangs[gang_id].number for gang_id in besides}
        for number in sorted(numbers):
            one = self._by_number[number]
            if one is not None:
                gang = one.gang
                yield Taken(
                    gang.project_id, gang.queue_id, one.taken, one.by_type, gang.preemptible,
                    float(ends[number]), gang.gang_id,
                )  # fmt: skip
