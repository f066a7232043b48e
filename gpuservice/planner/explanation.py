# SPDX-License-Identifier: Apache-2.0
"""Why each job waits: reasons with numbers, place in line, holders, estimate, what would help.

Worked out when somebody reads it, from the world as the pass left it. What is the same for all
jobs of one shape is worked out once and shared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, overload

import numpy as np

from gpuservice.domain.reasons import Reason
from gpuservice.planner.counterfactual import Change, changes_that_start
from gpuservice.planner.holders import Holders
from gpuservice.planner.holds import FOREVER
from gpuservice.planner.ledger import Ints
from gpuservice.planner.ordering import Positions
from gpuservice.planner.passes import SHORTER_MAY_FIT, Pass
from gpuservice.planner.plan_types import Holder, Promise, ReasonFact, Waiting
from gpuservice.planner.promises import Future
from gpuservice.planner.promising import PROMISABLE
from gpuservice.planner.reason_text import sentence
from gpuservice.planner.shortfall import Shortfall
from gpuservice.planner.snapshot import PendingJob
from gpuservice.planner.world import Shape

#: What starts a job is told from the limits of what runs, unless jobs are known to end earlier.
BY_LIMITS = "time limits of running jobs"
BY_HISTORY = "time limits of running jobs and how much of theirs ended jobs used"

_NO_ESTIMATE = (
    Reason.IMPOSSIBLE, Reason.PROJECT_QUOTA, Reason.QUEUE_QUOTA, Reason.DEADLINE_UNREACHABLE,
)  # fmt: skip


class WaitingLine(Sequence[Waiting]):
    """Everything that a pass left waiting, in line order, then what is blocked."""

    def __init__(self, state: Pass) -> None:
        self._state = state
        self.wanted: Mapping[str, int] = {}
        self._live, self._blocked = _left(state)
        self._coming = state.line_order(self._live)
        self._ordered: list[int] = []
        self._positions: dict[int, int] = {}
        self._counting = Positions()
        self._words: dict[tuple[int, int, bool], str] = {}
        self._kept: dict[tuple[int, int, bool, float], str] = {}
        self._reasons_of: dict[tuple[int, int, bool, str, bool], tuple[ReasonFact, ...]] = {}
        self._changes_of: dict[tuple[object, ...], tuple[Change, ...]] = {}
        self._shortfalls: dict[tuple[int, int, bool], Shortfall] = {}
        self._promised = {promise.job_id: promise for promise in state.future.promises}
        self._tested = 0
        self._holders = Holders(state.world)
        self._estimates: dict[int, float | None] | None = None
        self._leaders: dict[str, int] | None = None

    # -- the sequence ------------------------------------------------------------------------
    def __len__(self) -> int:
        if self._state.policy.focus is not None:
            return len(list(self._upto(None)))
        return len(self._live) + len(self._blocked)

    @overload
    def __getitem__(self, index: int) -> Waiting: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Waiting]: ...

    def __getitem__(self, index: int | slice) -> Waiting | Sequence[Waiting]:
        if isinstance(index, slice):
            most = None if index.stop is None or index.stop < 0 else index.stop
            return [self._entry(row) for row in self._upto(most)[index]]
        return self._entry(self._upto(index + 1 if index >= 0 else None)[index])

    def __iter__(self) -> Iterator[Waiting]:
        return (self._entry(row) for row in self._upto(None))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def of(self, job_id: str) -> Waiting | None:
        """The entry of one job; None when it does not wait."""
        row = self._state.world.line.row_of.get(job_id)
        if row is None or (not (self._live == row).any() and not (self._blocked == row).any()):
            return None
        return self._entry(row)

    def wanting(self) -> list[PendingJob]:
        """The jobs that wait for GPUs, in line order, with the elements that are left."""
        line, begun = self._state.world.line, self._state.begun
        return [
            replace(line.job(row), elements=line.job(row).elements - begun.get(row, 0))
            for row in self._in_line(None)
            if self.word(row) in PROMISABLE
        ]

    # -- order -------------------------------------------------------------------------------
    def _upto(self, most: int | None) -> list[int]:
        """The rows of the first ``most`` entries (None: of all)."""
        focus, line = self._state.policy.focus, self._state.world.line
        if focus is not None:
            row = line.row_of.get(focus)
            there = row is not None and bool(
                (self._live == row).any() or (self._blocked == row).any()
            )
            return [row] if row is not None and there else []
        rows = self._in_line(most)
        if most is None or len(rows) < most:
            rows = rows + line.in_order(self._blocked).tolist()
        return rows

    def _in_line(self, most: int | None) -> list[int]:
        """The first ``most`` rows of jobs that were to be tried, in line order."""
        while most is None or len(self._ordered) < most:
            row = next(self._coming, None)
            if row is None:
                break
            self._ordered.append(row)
            if self.word(row) not in (Reason.IMPOSSIBLE, Reason.DEADLINE_UNREACHABLE):
                pools = self._state.world.pools_declared(self._state.world.line.job(row))
                self._positions[row] = self._counting.next(pools)
        return self._ordered

    def _position(self, row: int) -> int | None:
        at = len(self._ordered)
        while row not in self._positions and len(self._in_line(at + 1)) > at:
            at += 1
        return self._positions.get(row)

    # -- one entry ---------------------------------------------------------------------------
    def word(self, row: int) -> str:
        """In one word why a job waits."""
        state, line = self._state, self._state.world.line
        job = line.job(row)
        if job.blocked is not None:
            return job.blocked
        queue = state.world.queues.get(job.queue_id)
        if queue is None or not queue.open:
            return Reason.QUEUE_CLOSED
        known = state.words.get(row)
        if known is None and state.kept[row]:
            known = Reason.BACKFILL_WOULD_DELAY
        if known in SHORTER_MAY_FIT:
            return self._kept_at_last(row, job, str(known))
        if known is not None:
            return known
        key = (int(line.shape[row]), int(line.share[row]), job.preemptible)
        if key not in self._words:
            self._words[key] = state.trial.why_not_tried(job, self._shape(row))
        return self._words[key]

    def _kept_at_last(self, row: int, job: PendingJob, word: str) -> str:
        """What would be true of a promise or reservation when the job was tried may not be once
        others have started: the word is of the same moment as the numbers."""
        shape, end = self._shape(row), self._state.end_of(job)
        key = (shape.number, int(self._state.world.line.share[row]), job.preemptible, end)
        if key not in self._kept:
            own = self._state.promising.vacate(job.job_id)
            tried = self._state.trial.places(job, shape, job.request, end)
            self._state.promising.restore(job, own)
            self._kept[key] = tried.word or word
        return self._kept[key]

    def _shape(self, row: int) -> Shape:
        world = self._state.world
        return world.shapes[int(world.line.shape[row])]

    def _entry(self, row: int) -> Waiting:
        job, word = self._state.world.line.job(row), self.word(row)
        if job.blocked is not None or word == Reason.QUEUE_CLOSED:
            fact = ReasonFact(word, sentence(word, job.facts), job.facts)
            return Waiting(job.job_id, job.project_id, (fact,))
        start = self._estimate(row)
        return Waiting(
            job.job_id,
            job.project_id,
            self._reasons(row, job, word),
            self._position(row),
            start,
            None if start is None else self._basis(job),
            self._holders_of(job, word),
            self._changes(row, job),
        )

    def _basis(self, job: PendingJob) -> str:
        known = job.job_id in self._promised or self._state.limit_ratio >= 1
        return BY_LIMITS if known else BY_HISTORY

    def _holders_of(self, job: PendingJob, word: str) -> tuple[Holder, ...]:
        if word in _NO_ESTIMATE:
            return ()
        pools = self._state.world.pools_declared(job)
        return self._holders.of(pools, job.request.gpu_types)

    def _changes(self, row: int, job: PendingJob) -> tuple[Change, ...]:
        """What would start it, for the first shapes of the line.

        A job with a promise has an answer of its own: it need not wait for that promise. An
        array of which something starts now is asked again when it has not.
        """
        state = self._state
        if self._state.begun.get(row):
            return ()
        key = (
            int(state.world.line.shape[row]),
            int(state.world.line.share[row]),
            job.preemptible,  # only such a job may borrow
            job.job_id if job.job_id in self._promised or job.deadline is not None else None,
            # What promises and reservations allow depends on when a job would end.
            state.world.limit_of(job) if self._promised or state.reserved else None,
        )
        if key not in self._changes_of:
            if self._tested >= state.policy.counterfactuals and state.policy.focus is None:
                return ()
            self._tested += 1
            self._changes_of[key] = changes_that_start(state, job)
        return self._changes_of[key]

    def _outranked(self, job: PendingJob) -> bool:
        """Whether a job of a higher priority waits for GPUs of the same pools."""
        world = self._state.world
        if self._leaders is None:
            self._leaders = self._find_leaders()
        if not self._leaders:
            return False
        pools = world.pools_declared(job)
        return any(self._leaders.get(pool, -1) > job.priority for pool in pools)

    def _find_leaders(self) -> dict[str, int]:
        """Pool -> the highest priority that waits for GPUs there; nothing where all are equal."""
        line = self._state.world.line
        leaders: dict[str, int] = {}
        if not self._live.size or (line.tier[self._live] == line.tier[self._live[0]]).all():
            return leaders
        for row in self._live.tolist():
            tier = int(line.tier[row])
            pools = self._shape(row).pools
            if any(leaders.get(pool, -1) < tier for pool in pools) and (
                self.word(row) == Reason.INSUFFICIENT_GPUS
            ):
                for pool in pools:
                    leaders[pool] = max(leaders.get(pool, -1), tier)
        return leaders

    # -- reasons -----------------------------------------------------------------------------
    def _reasons(self, row: int, job: PendingJob, word: str) -> tuple[ReasonFact, ...]:
        outranked = self._outranked(job)
        line = self._state.world.line
        key = (int(line.shape[row]), int(line.share[row]), job.preemptible, word, outranked)
        if word in (Reason.DEADLINE_UNREACHABLE, Reason.PREEMPTING_OTHERS):
            return self._find_reasons(job, self._shape(row), word, outranked)
        if key not in self._reasons_of:
            self._reasons_of[key] = self._find_reasons(job, self._shape(row), word, outranked)
        return self._reasons_of[key]

    def _find_reasons(
        self, job: PendingJob, shape: Shape, word: str, outranked: bool
    ) -> tuple[ReasonFact, ...]:
        shortfall = self._shortfall(job, shape)
        known = shortfall.numbers()
        if word == Reason.IMPOSSIBLE:
            facts = {**known, **shortfall.largest_ever()}
            found = [_fact(word, facts)]
            because = shortfall.why_impossible()
            if because is not None:
                found.append(_fact(because[0], {**facts, **because[1]}))
            return tuple(found)
        if word != Reason.INSUFFICIENT_GPUS:
            return (_fact(word, {**known, **self._facts(job, shortfall, word)}),)
        code = shortfall.code(known)
        if code == Reason.ISOLATION:
            known = {**known, **shortfall.isolation_facts()}
        if code == Reason.HOST_RESOURCES:
            known = {**known, **shortfall.host_facts()}
        found = [_fact(code, known)]
        found.extend(_fact(code, facts) for code, facts in shortfall.growth(self.wanted))
        if outranked:
            found.append(_fact(Reason.BEHIND_HIGHER_PRIORITY, {}))
        return tuple(found)

    def _facts(self, job: PendingJob, shortfall: Shortfall, word: str) -> Mapping[str, Any]:
        state = self._state
        if word == Reason.PROJECT_QUOTA:
            return shortfall.project_facts()
        if word == Reason.QUEUE_QUOTA:
            return shortfall.queue_facts()
        if word == Reason.BACKFILL_WOULD_DELAY:
            starts = [one.start for one in state.future.promises if one.job_id != job.job_id]
            return {"promised_start": min(starts)} if starts else {}
        if word == Reason.BEHIND_RESERVATION:
            kept = state.reserved.others(job.queue_id, job.project_id)
            return {"reserved_until": max((one.ends_at for one, _ in kept), default=None)}
        if word == Reason.DEADLINE_UNREACHABLE:
            return {"deadline": job.deadline, "max_runtime_s": state.world.limit_of(job)}
        if word == Reason.PREEMPTING_OTHERS:
            going = {one.gang_id for one in state.preempting.found if one.for_job_id == job.job_id}
            stopping = sum(record.gang.preempting for record in state.world.gangs.values())
            return {"victims": len(going) or stopping}
        return {}

    def _shortfall(self, job: PendingJob, shape: Shape) -> Shortfall:
        share = self._state.world.share(job.queue_id, job.project_id, job.user_id)
        key = (shape.number, share, job.preemptible)
        if key not in self._shortfalls:
            self._shortfalls[key] = Shortfall(self._state, job, shape)
        return self._shortfalls[key]

    # -- estimates ---------------------------------------------------------------------------
    def _estimate(self, row: int) -> float | None:
        """When the job is expected to start; a promised start is its own estimate."""
        job = self._state.world.line.job(row)
        promise = self._promised.get(job.job_id)
        if promise is not None:
            return promise.start
        if self._estimates is None:
            self._estimates = self._find_estimates()
        start = self._estimates.get(row)
        if start is None:
            return None
        now = self._state.now
        return now + min(self._state.limit_ratio, 1.0) * (start - now)

    def _candidates_for_estimates(self) -> Iterator[int]:
        """Rows in line order, taken from the line as far as they are needed."""
        at = 0
        while len(self._in_line(at + 1)) > at:
            yield self._ordered[at]
            at += 1

    def _find_estimates(self) -> dict[int, float | None]:
        """Estimates of the first of the line. Each holds its places against the next, so that a
        line of jobs is not all told the same moment."""
        state, policy = self._state, self._state.policy
        future = state.future.estimating()
        found: dict[int, float | None] = {}
        made = 0
        for row in self._candidates_for_estimates():
            job = state.world.line.job(row)
            if job.job_id in self._promised or self.word(row) in _NO_ESTIMATE:
                continue
            if made >= policy.estimates and job.job_id != policy.focus:
                if policy.focus is None:
                    break
                continue
            made += 1
            found[row] = _behind(state, future, job, self._shape(row))
        return found


def _left(state: Pass) -> tuple[Ints, Ints]:
    """(rows of jobs that were to be tried and wait, rows of blocked ones)."""
    line, world = state.world.line, state.world
    done = [row for row, count in state.begun.items() if count >= line.job(row).elements]
    waits = line.present.copy()
    waits[done] = False
    live = waits & line.live
    if not world.open_shares.all():
        live[live] = world.open_shares[line.share[live]]
    return np.flatnonzero(live), np.flatnonzero(waits & ~live)


def _behind(state: Pass, future: Future, job: PendingJob, shape: Shape) -> float | None:
    """The job's estimate, behind all that was told before."""
    runtime = state.end_of(job) - state.now
    where = state.trial.within_quota(job, shape)
    earliest = future.earliest(job, where, runtime)
    if earliest is None:
        return None
    start, tasks = earliest
    if start < FOREVER:
        promise = Promise(job.job_id, start, start + runtime, job.project_id, tasks)
        future.book(promise, job.request)
    return start


def _fact(code: str, facts: Mapping[str, Any]) -> ReasonFact:
    return ReasonFact(code, sentence(code, facts), facts)
