# SPDX-License-Identifier: Apache-2.0
"""Who is promised a start in a pass, and how promises of earlier plans are kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from gpuservice.domain.reasons import Reason
from gpuservice.planner.bookings import Booking
from gpuservice.planner.defragmentation import moves
from gpuservice.planner.holds import FOREVER
from gpuservice.planner.ledger import Ints
from gpuservice.planner.line import distinct
from gpuservice.planner.placement import Tasks
from gpuservice.planner.snapshot import PendingJob, Promise
from gpuservice.planner.world import Shape

if TYPE_CHECKING:
    from gpuservice.planner.passes import Pass

#: Why a job that was tried may be promised a start.
PROMISABLE = (Reason.INSUFFICIENT_GPUS, Reason.BACKFILL_WOULD_DELAY, Reason.BEHIND_RESERVATION)


@dataclass(slots=True)
class Promising:
    """The promises of one pass."""

    state: Pass
    budgets: dict[tuple[int, str], int] = field(default_factory=dict)
    unpromised: set[int] = field(default_factory=set)  # pool groups

    def note_unpromised(self, rows: Ints) -> None:
        """Where jobs of a tier wait without a promise: nobody below gets a new one there, since
        it might have to be broken for them."""
        line, booked = self.state.world.line, self.state.future.booked.of
        begun = self.state.begun
        settled = {row for row, count in begun.items() if count >= line.job(row).elements}
        settled |= {line.row_of[job_id] for job_id in booked if job_id in line.row_of}
        left = rows[~np.isin(rows, np.fromiter(settled, np.int64, len(settled)))]
        for number in distinct(line.shape[left]):
            shape = self.state.world.shapes[number]
            if not self.state.world.impossible(shape):
                self.unpromised.add(self.state.world.pool_group(shape))

    def outranked(self, shape: Shape) -> bool:
        """Whether jobs of a higher tier wait there without a promise."""
        return self.state.world.pool_group(shape) in self.unpromised

    def keep_all(self, rows: Ints) -> None:
        """Keep the promises of rows where they were given, as far as they can be kept there."""
        line, policy = self.state.world.line, self.state.policy
        if not policy.backfill:
            return
        given = bool(policy.promises or policy.small_promises)
        told = [
            row
            for row in line.in_order(rows, line.promised[rows]).tolist()
            if line.job(row).promise is not None and (given or line.job(row).claimed)
        ]
        if not told:
            return
        # Bookings are put behind each other: all of them, in the order of their starts.
        booked = [self.vacate(job_id) for job_id in list(self.state.future.booked.of)]
        anew = {line.job(row).job_id for row in told}
        again = [
            (one.promise.start, one)
            for one in booked
            if one is not None and one.promise.job_id not in anew
        ]
        kept = [(self._promised_start(row), row) for row in told]
        for _, one in sorted([*again, *kept], key=lambda pair: pair[0]):
            if isinstance(one, int):
                self._keep(one)
            else:
                job = line.get(one.promise.job_id)
                assert job is not None
                self.restore(job, one)

    def _promised_start(self, row: int) -> float:
        """When it is to start; where others go for it, when they are gone."""
        job = self.state.world.line.job(row)
        if job.promise is None:
            return FOREVER
        if job.claimed:
            return max(self.state.future.free_at(job.promise.tasks), self.state.now)
        return job.promise.start

    def _keep(self, row: int) -> None:
        """Keep a promise where it was given, if it can be kept there."""
        job, shape = self.state.of(row)
        runtime = self.state.end_of(job) - self.state.now
        if job.claimed or self.state.trial.unlimited_by_quota(job):
            where = [option.where for option in self.state.trial.unlimited(job, shape)]
        else:
            where = self.state.trial.within_quota(
                job, shape, self._promised_start(row), self._promised_start(row) + runtime
            )
        found = self.state.future.kept(job, where, runtime)
        if found is not None:
            start, tasks = found
            told = not job.claimed or bool(
                self.state.trial.within_quota(job, shape, start, start + runtime)
            )
            self.book(job, start, runtime, tasks, told)

    def holder(self, row: int) -> None:
        """Who holds a promise: start it, or keep or better the promise."""
        job, shape = self.state.of(row)
        own = self.vacate(job.job_id)
        if own is None or self._may_start(row, shape):
            word = self.state.consider(row, front=True)
            if word is None:
                return
        else:
            word = self.state.words[row] = Reason.INSUFFICIENT_GPUS
        promisable = job.claimed or (word in PROMISABLE and self.left(row))
        if own is None and not promisable:
            return
        due = own is None or own.promise.start <= self.state.now
        self.give(row, before=FOREVER if due or own is None else own.promise.start)
        if own is not None and job.job_id not in self.state.future.booked.of:
            self.restore(job, own)
        if job.job_id in self.state.future.booked.of:
            self.spend(shape)

    def _may_start(self, row: int, shape: Shape) -> bool:
        """Whether it is worth a try: something of the shape fits, or others might have to go."""
        if self.state.world.fits(shape):
            return True
        return bool(self.state.preempting.may(np.array([row], dtype=np.int64))[0])

    def left(self, row: int) -> bool:
        """Whether a promise is left for the job of a row."""
        shape = self.state.world.shapes[int(self.state.world.line.shape[row])]
        return self.budget(shape)[1] != 0

    def budget(self, shape: Shape) -> tuple[tuple[int, str], int]:
        """Which budget a promise of the shape comes from, and what is left (-1: any number)."""
        small = self.state.policy.due is not None and not shape.gang
        key = (self.state.world.pool_group(shape), "small" if small else "")
        given = self.state.policy.small_promises if small else self.state.policy.promises
        if self.state.policy.due is not None and self.state.policy.promises < 0:
            given = -1
        return key, given if given < 0 else max(given - self.budgets.get(key, 0), 0)

    def give(self, row: int, before: float = FOREVER) -> None:
        """Give the job a start that lower ones must respect, unless others move for it."""
        job, shape = self.state.of(row)
        runtime = self.state.end_of(job) - self.state.now
        where = self.state.trial.within_quota(job, shape)
        if job.claimed and not where:
            self._hold(job, shape, runtime)
            return
        found = self.state.future.earliest(job, where, runtime)
        if moves(self.state.preempting, job, shape, None if found is None else found[0]):
            self.state.words[row] = Reason.PREEMPTING_OTHERS
            return
        if found is None or found[0] >= before:
            return
        start, tasks = found
        if job.deadline is not None and start + runtime > job.deadline:
            return  # a promise would be of no use; a hole before it may still be
        self.book(job, start, runtime, tasks)

    def _hold(self, job: PendingJob, shape: Shape, runtime: float) -> None:
        """Others go so that their share of a quota is free: keep places and quota till then."""
        where = [option.where for option in self.state.trial.unlimited(job, shape)]
        found = self.state.future.earliest(job, where, runtime)
        if found is not None:
            start, tasks = found
            self.book(job, start, runtime, tasks, told=False)

    def book(
        self, job: PendingJob, start: float, runtime: float, tasks: Tasks, told: bool = True
    ) -> None:
        """Keep places and quota for a job from a moment on."""
        promise = Promise(job.job_id, start, start + runtime, job.project_id, tasks)
        self.state.future.book(promise, job.request, told)
        self.state.taken.book(job.job_id, start, self.state.takes(job, tasks, promise.end))

    def vacate(self, job_id: str) -> Booking | None:
        """Give up what is kept for a job."""
        self.state.taken.vacate(job_id)
        return self.state.future.vacate(job_id)

    def restore(self, job: PendingJob, booking: Booking | None) -> None:
        """Keep again what was given up for a moment."""
        if booking is not None:
            self.state.future.restore(booking)
            promise = booking.promise
            taken = self.state.takes(job, promise.tasks, promise.end)
            self.state.taken.book(job.job_id, promise.start, taken)

    def spend(self, shape: Shape) -> None:
        """One promise less."""
        key, _ = self.budget(shape)
        self.budgets[key] = self.budgets.get(key, 0) + 1
