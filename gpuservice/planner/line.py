# SPDX-License-Identifier: Apache-2.0
"""The waiting jobs as columns, kept as jobs come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gpuservice.planner.holds import FOREVER
from gpuservice.planner.ledger import Bools, Floats, Ints
from gpuservice.planner.snapshot import PendingJob

#: What a job without a limit is reckoned to run, where a number is needed (seconds).
UNLIMITED_S = 86400.0

#: The rank of a job that others go for.
CLAIMED = float("-inf")

_FIRST = 64

#: What is a small number where many are sorted.
_SMALL = 65535

#: Of a job: (number of its shape, number of its share of the queue).
Place = tuple[int, int]


class Line:
    """Columns by row; a row is given again when its job is gone. Nothing depends on rows.

    ``runtimes``: the limit as a number that there always is; ``area``: that times milli-GPUs.

    :param place: the shape and the share (queue, project, user) of a job; ``limit``: its limit.
    """

    def __init__(
        self, place: Callable[[PendingJob], Place], limit: Callable[[PendingJob], int | None]
    ) -> None:
        self._place = place
        self._limit = limit
        self.jobs: list[PendingJob | None] = []
        self.row_of: dict[str, int] = {}
        self._free: list[int] = []
        self._size = 0
        self._allocate(_FIRST)

    def _allocate(self, size: int) -> None:
        grown = size - self._size

        def longer(old: NDArray[np.generic], fill: float, kind: type) -> NDArray[np.generic]:
            return np.concatenate([old, np.full(grown, fill, dtype=kind)])

        if not self._size:
            empty = np.zeros(0)
            ints, reals, bools = empty.astype(np.int64), empty, empty.astype(np.bool_)
            self.tier: Ints = ints
            self.queued: Floats = reals
            self.sequence: Ints = ints
            self.shape: Ints = ints
            self.share: Ints = ints
            self.limit: Floats = reals
            self.milli: Floats = reals
            self.runtimes: Floats = reals
            self.area: Floats = reals
            self.elements: Ints = ints
            self.due: Floats = reals
            self.promised: Floats = reals
            self.deadline: Floats = reals
            self.live: Bools = bools
            self.present: Bools = bools
        for name, fill, kind in (
            ("tier", 0, np.int64),
            ("queued", 0, np.float64),
            ("sequence", 0, np.int64),
            ("shape", 0, np.int64),
            ("share", 0, np.int64),
            ("limit", 0, np.float64),
            ("milli", 0, np.float64),
            ("runtimes", 0, np.float64),
            ("area", 0, np.float64),
            ("elements", 0, np.int64),
            ("due", 0, np.float64),
            ("promised", FOREVER, np.float64),
            ("deadline", FOREVER, np.float64),
            ("live", False, np.bool_),
            ("present", False, np.bool_),
        ):
            setattr(self, name, longer(getattr(self, name), fill, kind))
        self._size = size

    def __len__(self) -> int:
        return len(self.row_of)

    def add(self, job: PendingJob) -> None:
        """A job waits. One that is there already is replaced."""
        row = self.row_of.get(job.job_id)
        if row is None:
            row = self._free.pop() if self._free else len(self.jobs)
            if row == len(self.jobs):
                self.jobs.append(None)
                if row >= self._size:
                    self._allocate(2 * self._size)
            self.row_of[job.job_id] = row
        self.jobs[row] = job
        self.present[row] = True
        shape, share = self._place(job)
        request = job.request
        self.tier[row] = job.priority
        self.queued[row], self.sequence[row] = job.queued_at, job.sequence
        self.shape[row], self.share[row] = shape, share
        limit = self._limit(job)
        self.limit[row] = FOREVER if limit is None else limit
        each = request.gpu_milli if request.gpu_memory_mib is None else 1000
        self.milli[row] = milli = each * request.count
        self.runtimes[row] = runtime = UNLIMITED_S if limit is None else max(float(limit), 1.0)
        self.area[row] = runtime * milli
        self.due[row] = np.nan if job.due is None else job.due
        self.promised[row] = _rank(job)
        self.deadline[row] = FOREVER if job.deadline is None else job.deadline
        self.elements[row] = job.elements
        self.live[row] = job.blocked is None and job.elements > 0

    def add_all(self, jobs: Iterable[PendingJob]) -> None:
        """Many at once."""
        for job in jobs:
            self.add(job)

    def change(self, job: PendingJob) -> None:
        """The same job with other elements or promise; its due time stays."""
        row = self.row_of[job.job_id]
        self.jobs[row] = job
        self.promised[row] = _rank(job)
        self.elements[row] = job.elements
        self.live[row] = job.blocked is None and job.elements > 0

    def remove(self, job_id: str) -> None:
        """A job waits no more."""
        row = self.row_of.pop(job_id, None)
        if row is not None:
            self.jobs[row] = None
            self.live[row] = self.present[row] = False
            self._free.append(row)

    def get(self, job_id: str) -> PendingJob | None:
        """A waiting job."""
        row = self.row_of.get(job_id)
        return None if row is None else self.jobs[row]

    def job(self, row: int) -> PendingJob:
        """The job of a row that is in use."""
        job = self.jobs[row]
        assert job is not None
        return job

    def with_due_times(self) -> Iterable[PendingJob]:
        """The jobs, each with its due time as the line knows it."""
        for row in self.row_of.values():
            due = float(self.due[row])
            yield self.job(row) if np.isnan(due) else replace(self.job(row), due=due)

    def alike(self, rows: Ints) -> Iterable[tuple[int, int, bool]]:
        """(shape, share, preemptible) of each: such jobs fail alike, but for their limits."""
        preemptible = [self.job(row).preemptible for row in rows.tolist()]
        return zip(self.shape[rows].tolist(), self.share[rows].tolist(), preemptible, strict=True)

    def in_order(self, rows: Ints, *keys: NDArray[np.generic]) -> Ints:
        """Rows by keys (each one value a row, the first the most important), then by the time of
        queueing, submission and, where even that is the same, id."""
        if len(rows) < 2:
            return rows
        columns = (self.sequence[rows], self.queued[rows], *reversed(keys))
        ordered = rows[_sorted(columns)]
        same = (np.diff(self.queued[ordered]) == 0) & (np.diff(self.sequence[ordered]) == 0)
        if same.any():
            order = {row: at for at, row in enumerate(rows.tolist())}
            tuples = list(zip(*(key.tolist() for key in reversed(columns)), strict=True))
            ordered = np.array(
                sorted(rows.tolist(), key=lambda row: (*tuples[order[row]], self.job(row).job_id)),
                dtype=np.int64,
            )
        return ordered

    def runtime(self, rows: Ints) -> Floats:
        """Limits of jobs (seconds), a number for each."""
        return self.runtimes.take(rows)


def _sorted(columns: Sequence[NDArray[np.generic]]) -> Ints:
    """Places by columns, the last the most important. Small numbers are sorted by their digits."""
    most = columns[-1]
    if most.dtype == np.int64 and int(most.min()) >= 0 and int(most.max()) <= _SMALL:
        order = np.lexsort(columns[:-1])
        return order[np.argsort(most[order].astype(np.uint16), kind="stable")]
    return np.lexsort(columns)


def distinct(numbers: Ints) -> list[int]:
    """The numbers that there are, ascending; they are small."""
    found: list[int] = np.flatnonzero(np.bincount(numbers)).tolist()
    return found


def _rank(job: PendingJob) -> float:
    """When it got its promise; what was preempted for comes first of all."""
    if job.claimed:
        return CLAIMED
    return FOREVER if job.promised is None else job.promised
