# SPDX-License-Identifier: Apache-2.0
"""One pass over the line: who starts, who is promised a start, for whom others have to go.

1. By tiers of priority. 2. In a tier first who holds a promise, then who is due one: each starts
or is promised a start. 3. Then all others, where they delay no promise. Nothing is changed for
good: the world is as it was when the pass is over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gpuservice.domain.reasons import Reason
from gpuservice.planner.due import due_times
from gpuservice.planner.fairshare import FairShare
from gpuservice.planner.guards import Reserved
from gpuservice.planner.holds import FOREVER
from gpuservice.planner.kept_back import kept_back
from gpuservice.planner.ledger import Bools, Ints
from gpuservice.planner.line import CLAIMED, distinct
from gpuservice.planner.ordering import Order, backfill_key, in_line, multifactor_key
from gpuservice.planner.owed import give_owed
from gpuservice.planner.placement import Tasks
from gpuservice.planner.plan_types import Start
from gpuservice.planner.preemption import Preempting
from gpuservice.planner.promises import Future
from gpuservice.planner.promising import PROMISABLE, Promising
from gpuservice.planner.quota_bookings import QuotaBookings, Taken
from gpuservice.planner.snapshot import PendingJob, Policy, UsageKey
from gpuservice.planner.trial import Trial
from gpuservice.planner.world import Shape, World

#: (n,) what rows are ordered by.
Key = NDArray[np.float64]

NOBODY_BELOW: Ints = np.zeros(0, dtype=np.int64)

#: Why a job that was tried may have others go for it.
PREEMPTIBLE = (*PROMISABLE, Reason.QUEUE_QUOTA)

#: Why a job that was tried may fit with a shorter limit.
SHORTER_MAY_FIT = (Reason.BACKFILL_WOULD_DELAY, Reason.BEHIND_RESERVATION)

#: Whose failure it is where no quota had a part in it.
ANYBODY = -1

#: What fails alike in one pass: (shape, whose, preemptible).
_Alike = tuple[int, int, bool]


@dataclass(slots=True)
class Pass:
    """The working state of one plan."""

    world: World
    policy: Policy
    now: float
    usage: Mapping[UsageKey, float]
    limit_ratio: float = 1.0
    starts: list[Start] = field(default_factory=list)
    due: Mapping[str, float] = field(default_factory=dict)
    words: dict[int, str] = field(default_factory=dict)  # by row of the line
    kept: Bools = field(init=False)  # by row: what it would start on is kept for promises
    begun: dict[int, int] = field(default_factory=dict)  # elements started, by row
    future: Future = field(init=False)
    fair: FairShare = field(init=False)
    reserved: Reserved = field(init=False)
    taken: QuotaBookings = field(init=False)
    trial: Trial = field(init=False)
    preempting: Preempting = field(init=False)
    promising: Promising = field(init=False)
    failed: dict[_Alike, tuple[float, str]] = field(default_factory=dict)
    _due_order: Order = field(init=False)
    blocked_groups: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        world, policy = self.world, self.policy
        world.worth.begin()
        self.reserved = Reserved(world.ledger, world.reservations, self.now)
        self.future = Future(self.now, world.ledger, world.holdings, self.reserved)
        self.taken = QuotaBookings(self.now, world.headroom, world.quotas, world.running.taken)
        preempts = bool(self.policy.preempt) and any(
            queue.preemption != "none" for queue in world.queues.values()
        )
        preempts |= not self.policy.preempt.isdisjoint(("due_gangs", "short_jobs"))
        self.trial = Trial(world, self.future, self.reserved, self.taken, preempts)
        self.preempting = Preempting(self)
        self.promising = Promising(self)
        self.kept = np.zeros(len(world.line.live), dtype=np.bool_)
        self._due_order = Order(world.line)
        self.fair = FairShare(world, self.now, self.usage, policy.usage_half_life_s)

    # -- the line ----------------------------------------------------------------------------
    def run(self) -> None:
        """Go through the line once."""
        if self.policy.due is not None and self.policy.promises:
            self.due = due_times(self.world, self.now, self.policy.due, self.limit_ratio)
        rows = self._eligible()
        if not rows.size:
            return
        promised = _those(rows, self.world.line.promised.take(rows) < FOREVER)
        self.promising.keep_all(promised)
        if self.policy.order == "multifactor":
            self._tier(rows)
            return
        line = self.world.line
        tiers = line.tier.take(rows)
        for tier in distinct(tiers)[::-1]:
            here = _those(rows, tiers == tier)
            self._tier(here, promised[line.tier[promised] < tier])
            if (tiers < tier).any():
                self.promising.note_unpromised(here)

    def _eligible(self) -> Ints:
        """Rows of jobs that may start: not blocked, queue open, deadline within reach."""
        world, line = self.world, self.world.line
        live = line.live
        if not world.open_shares.all():
            live = live.copy()
            live[live] = world.open_shares[line.share[live]]
        late = live & (self.now + line.limit > line.deadline)
        if late.any():
            for row in np.flatnonzero(late).tolist():
                self.words[row] = Reason.DEADLINE_UNREACHABLE
            live = live & ~late
        return np.flatnonzero(live)

    def _tier(self, rows: Ints, below: Ints = NOBODY_BELOW) -> None:
        """One tier: first who holds a promise: it starts, at once if that delays no other promise,
        or keeps its promise, or gets an earlier one behind all others. Then everybody else, whom
        promises to lower tiers (the rows ``below``) do not bind: when those were given, nobody
        waited here without one, so who does has come since."""
        line, policy = self.world.line, self.policy
        promised = line.promised.take(rows)
        holds = promised < FOREVER
        if holds.any() and policy.backfill:
            holders = _those(rows, holds)
            for row in line.in_order(holders, line.promised[holders]).tolist():
                self.promising.holder(row)
            # What others go for is one element: the rest of an array waits like everybody.
            rows = _those(rows, ~holds | self._arrays_claimed(rows, promised == CLAIMED))
        for row in below.tolist():
            if not line.job(row).claimed:  # places for which others went are nobody else's
                self.promising.vacate(line.job(row).job_id)
        self._others(rows)
        self.promising.keep_all(below)

    def _others(self, rows: Ints) -> None:
        """Who holds no promise: who is due one, then all others."""
        line, policy = self.world.line, self.policy
        key = self._line_key(rows)
        if policy.due is not None and policy.backfill:
            due = line.due.take(rows) <= self.now
            front = _those(rows, due)
            left = self._until_promises_are_given(front, self._due_in_line(front))
            self._behind(left, line.due[left])
            rows = _those(rows, ~due)
        elif policy.promises or not policy.backfill:
            rows = self._until_promises_are_given(rows, self._in_line(rows, key))
        order = backfill_key(line, rows, self.now, policy)
        if order is None:
            order = self._line_key(rows)
        tried = give_owed(self, rows, order)
        if tried:
            rows = np.delete(rows, tried)
            order = None if order is None else np.delete(order, tried)
        self._behind(rows, order)

    def of(self, row: int) -> tuple[PendingJob, Shape]:
        """The job and the shape of a row."""
        line = self.world.line
        return line.job(row), self.world.shapes[int(line.shape[row])]

    def line_order(self, rows: Ints) -> Iterator[int]:
        """Rows in line order: by tiers, in each the promised, the due, all others."""
        line, policy = self.world.line, self.policy
        if policy.order == "multifactor":
            yield from self._in_line(rows, self._line_key(rows))
            return
        tiers = line.tier.take(rows)
        for tier in distinct(tiers)[::-1]:
            rest = _those(rows, tiers == tier)
            holds = line.promised.take(rest) < FOREVER
            held = _those(rest, holds)
            yield from line.in_order(held, line.promised[held]).tolist()
            rest = _those(rest, ~holds)
            if policy.due is not None and policy.backfill:
                due = line.due.take(rest) <= self.now
                yield from self._due_in_line(_those(rest, due))
                rest = _those(rest, ~due)
            yield from self._in_line(rest, None)

    def _line_key(self, rows: Ints) -> Key | None:
        if self.policy.order != "multifactor":
            return None
        return multifactor_key(
            self.world.line, rows, self.now, self.policy, self.fair, 1000.0 * self.world.gpus
        )

    def _in_line(self, rows: Ints, key: Key | None) -> Iterator[int]:
        fair = self.fair if self.policy.order == "fair" else None
        return in_line(self.world.line, rows, key, fair)

    def _due_in_line(self, rows: Ints) -> Iterator[int]:
        """Rows of jobs that are due, in order; due times are as they are for a pass."""
        fair = self.fair if self.policy.order == "fair" else None
        line = self.world.line
        return in_line(line, rows, line.due.take(rows), fair, self._due_order)

    def _until_promises_are_given(self, rows: Ints, ordered: Iterator[int]) -> Ints:
        """The front of the line as long as promises are left for any of it; the rest."""
        shapes = self.world.shapes
        numbers = distinct(self.world.line.shape.take(rows))
        wanted = {self.promising.budget(shapes[number])[0]: shapes[number] for number in numbers}
        done: list[int] = []
        for row in ordered:
            left = any(self.promising.budget(one)[1] for one in wanted.values())
            if self.policy.backfill and not left:
                break
            done.append(row)
            self.front(row)
        return np.delete(rows, np.searchsorted(rows, np.array(done, dtype=np.int64)))

    def _behind(self, rows: Ints, key: Key | None) -> None:
        """Those without a promise, as far as anything of their shape might fit."""
        line, world = self.world.line, self.world
        if not rows.size:
            return
        shapes = line.shape.take(rows)
        fits = np.zeros(len(world.shapes), dtype=np.bool_)
        for number in world.may_fit(np.array(distinct(shapes), dtype=np.int64)):
            fits[number] = world.fits(world.shapes[number])
        hopeful = fits.take(shapes)
        if self.policy.preempt:
            hopeful |= self.preempting.may(rows)
        at = np.flatnonzero(hopeful)
        rows, key = rows.take(at), None if key is None else key.take(at)
        kept = kept_back(self, rows, shapes.take(at))
        if self.policy.preempt and kept.any():
            kept &= ~self.preempting.may(rows)
        if not kept.any():
            self._try_all(rows, key)
            return
        self.kept[rows[kept]] = True
        going = len(self.preempting.found)
        self._try_all(rows[~kept], None if key is None else key[~kept])
        if len(self.preempting.found) > going:  # who goes leaves more than there was
            self._try_all(rows[kept], None if key is None else key[kept])

    def _try_all(self, rows: Ints, key: Key | None) -> None:
        """Try each of these."""
        line = self.world.line
        ordered = self._in_line(rows, key)
        if self.policy.preempt:
            for row in ordered:
                self.consider(row)
            return
        alike = dict(zip(rows.tolist(), line.alike(rows), strict=True))
        for row in ordered:
            known = self.failed.get(alike[row])
            if known is not None and known[0] == float("-inf"):
                self.words[row] = known[1]  # whatever its limit
            else:
                self.consider(row)

    # -- one job -----------------------------------------------------------------------------
    def front(self, row: int) -> None:
        """Start a job, or let others go for it, or promise it a start."""
        word = self.consider(row, front=True)
        if word is None or self._strict(row, word):
            return
        job, shape = self.of(row)
        if word in PROMISABLE and self.promising.left(row) and not self.promising.outranked(shape):
            self.promising.give(row)
            if job.job_id in self.future.booked.of:
                self.promising.spend(shape)

    def _strict(self, row: int, word: str) -> bool:
        """Without backfill what does not fit blocks those behind it on the same pools."""
        if self.policy.backfill:
            return False
        if word in PROMISABLE:
            shape = self.world.shapes[int(self.world.line.shape[row])]
            self.blocked_groups.add(self.world.pool_group(shape))
        return True

    def _arrays_claimed(self, rows: Ints, claimed: Bools) -> Bools:
        """(n,): of whose elements others go for one, and more wait."""
        line = self.world.line
        claimed[claimed] = [
            line.job(row).elements > self.begun.get(row, 0) for row in rows[claimed].tolist()
        ]
        return claimed

    def consider(self, row: int, front: bool = False) -> str | None:
        """Start as many elements as may and can start; in one word why the rest waits."""
        job = self.world.line.job(row)
        shape = self.world.shapes[int(self.world.line.shape[row])]
        word: str | None = None
        if self.blocked_groups and self.world.pool_group(shape) in self.blocked_groups:
            self.words[row] = Reason.BEHIND_PROMISE
            return Reason.BEHIND_PROMISE
        claimed = front and job.claimed
        left = job.elements - self.begun.get(row, 0)
        # Who holds a promise has room of its own: what failed for others says nothing of it.
        holds = front and (job.promised is not None or job.claimed)
        for _ in range(1 if claimed else left):
            word = self._try(job, shape, anew=holds)
            if word is not None:
                break
            self.begun[row] = self.begun.get(row, 0) + 1
        if word is not None:
            if word in PREEMPTIBLE and (
                claimed or (not job.claimed and self.preempting.for_job(row, job, shape, front))
            ):
                word = Reason.PREEMPTING_OTHERS
            self.words.setdefault(row, word)
        return word

    def _try(self, job: PendingJob, shape: Shape, anew: bool = False) -> str | None:
        """Start one element, or say in one word why not. Equal failures are remembered: in a
        pass room only shrinks."""
        end = self.end_of(job)
        share = self.world.share(job.queue_id, job.project_id, job.user_id)
        alike = (shape.number, share, job.preemptible)
        for known in (self.failed.get((shape.number, ANYBODY, False)), self.failed.get(alike)):
            if known is not None and end >= known[0] and not anew:
                return known[1] if self.trial.may_run(job, end) else self.trial.or_promise(job)
        tried = self.trial.places(job, shape, job.request, end)
        if tried.tasks is not None:
            self._start(job, share, tried.tasks, end)
            return None
        # What fits but would delay a promise may do so with a shorter limit.
        least = end if tried.word in SHORTER_MAY_FIT else float("-inf")
        if not tried.limited and not self.reserved:
            alike = (shape.number, ANYBODY, False)
        self.failed[alike] = (least, tried.word)
        return tried.word

    def end_of(self, job: PendingJob, runtime: int | None = None) -> float:
        """When a job is over that starts now."""
        limit = self.world.limit_of(job) if runtime is None else runtime
        return FOREVER if limit is None else self.now + limit

    def _start(self, job: PendingJob, share: int, tasks: Tasks, end: float) -> None:
        world = self.world
        project = world.layout.projects.of(job.project_id)
        world.ledger.take(tasks, project)
        self.future.started(tasks, end, project)
        self.starts.append(Start(job.job_id, tasks))
        taken = self.takes(job, tasks, end)
        self.taken.started(taken)
        self.fair.charge(share, sum(taken.by_type.values()), end - self.now)

    def takes(self, job: PendingJob, tasks: Tasks, end: float = FOREVER) -> Taken:
        """What a gang takes of quotas, until ``end``."""
        world = self.world
        return Taken(
            job.project_id,
            job.queue_id,
            world.headroom.counted(world.layout, job.project_id, tasks),
            world.by_type(tasks),
            job.preemptible,
            end,
        )

    # -- promises ----------------------------------------------------------------------------
    def undo(self) -> None:
        """The world as it was before the pass."""
        self.taken.undo()
        self.world.ledger.undo()


def _those(rows: Ints, chosen: Bools) -> Ints:
    """The rows that are chosen."""
    return rows.take(np.flatnonzero(chosen))
