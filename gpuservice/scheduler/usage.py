# SPDX-License-Identifier: Apache-2.0
"""What queues, projects and users had of late, and how true time limits are.

Ended work is folded into sums by the scheduler that leads, in batches behind a mark: sums and mark
change in one transaction under its epoch, so that a crash between two of them neither loses nor
counts anything twice. What ended after the mark, and what still runs, is added when it is read.
Jobs themselves never wait for this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from gpuservice.domain.decay import faded, worth
from gpuservice.domain.ports_scheduling import LiveGang
from gpuservice.domain.ports_store import Store, UnitOfWork
from gpuservice.domain.ports_usage import LIMITS, USAGE, HistorySum, Mark, UsageKey, UsageSum

#: A transaction may take so long (seconds) from the moment that it writes down to its commit.
SETTLE_S = 60.0
#: Ended shares, and ended attempts, that one transaction folds.
BATCH = 2000
#: What ended longer ago than so many half-lives is worth nothing.
FORGOTTEN = 20
#: What ended before the mark and longer ago than this (seconds) waits for the fold: only a
#: scheduler that was away for long has so much to catch up with.
TAIL_S = 900.0
#: For so long (seconds) a reader reckons on from what it has read.
REFRESH_S = 5.0
#: With nothing to fold the mark still moves on after so long (seconds).
_MARK_S = 300.0


class Folding:
    """Folds what has ended into the sums."""

    def __init__(self, store: Store, shard: str, half_life_s: float) -> None:
        self._store = store
        self._shard = shard
        self._half_life = half_life_s

    def fold(self, epoch: int) -> bool:
        """One batch of each kind; whether there is more. Raises ``StaleEpoch`` when another
        leads."""
        if not self._store.read(self._due):
            return False
        return self._store.write(lambda uow: self._fold(uow, epoch))

    def _due(self, uow: UnitOfWork) -> bool:
        """Whether there is anything to write: most often there is not, and nothing is locked."""
        now = uow.now()
        before = now - timedelta(seconds=SETTLE_S)
        for name in (USAGE, LIMITS):
            mark = uow.usage.mark(name)
            if mark is None or (before - mark[0]).total_seconds() > _MARK_S:
                return True
            if name == USAGE and uow.usage.ended_shares(mark, before, 1):
                return True
            if name == LIMITS and uow.usage.ended_runs(mark, before, 1):
                return True
        return False

    def _fold(self, uow: UnitOfWork, epoch: int) -> bool:
        uow.check_epoch(self._shard, epoch)
        before = uow.now() - timedelta(seconds=SETTLE_S)
        more = self._fold_usage(uow, before)
        more |= self._fold_limits(uow, before)
        uow.usage.forget_sums(before - timedelta(seconds=FORGOTTEN * self._half_life))
        return more

    def _mark(self, uow: UnitOfWork, name: str, before: datetime) -> Mark:
        """Where the sums end; before the first, what is worth nothing any more is left out."""
        first = before - timedelta(seconds=FORGOTTEN * self._half_life)
        return uow.usage.mark(name) or (first, "")

    def _fold_usage(self, uow: UnitOfWork, before: datetime) -> bool:
        mark = self._mark(uow, USAGE, before)
        ended = uow.usage.ended_shares(mark, before, BATCH)
        seen = before.timestamp()
        added: dict[UsageKey, float] = {}
        for one in ended:
            gain = worth(
                one.milli, one.began.timestamp(), one.ended.timestamp(), seen, self._half_life
            )
            added[one.key] = added.get(one.key, 0.0) + gain
        known = {one.key: one for one in uow.usage.sums(added)}
        uow.usage.save_sums(
            [
                UsageSum(key, gain + self._now_worth(known.get(key), before), before)
                for key, gain in sorted(added.items())
            ]
        )
        full = len(ended) == BATCH
        reached = (ended[-1].ended, ended[-1].id) if full else (before, "")
        uow.usage.set_mark(USAGE, max(mark, reached))  # never back, whatever clocks do
        return full

    def _now_worth(self, known: UsageSum | None, at: datetime) -> float:
        if known is None:
            return 0.0
        return faded(known.milli_gpu_seconds, (at - known.as_of).total_seconds(), self._half_life)

    def _fold_limits(self, uow: UnitOfWork, before: datetime) -> bool:
        mark = self._mark(uow, LIMITS, before)
        ended = uow.usage.ended_runs(mark, before, BATCH)
        sums = {
            one.key: _at(one, before, self._half_life)
            for one in uow.usage.histories({one.key for one in ended})
        }
        for run in ended:
            age = (before - run.ended).total_seconds()
            count, run_s, limit_s = (
                faded(value, age, self._half_life) for value in (1.0, run.run_s, run.limit_s)
            )
            old = sums.get(run.key) or HistorySum(run.key, 0.0, 0.0, 0.0, before)
            sums[run.key] = HistorySum(
                run.key, old.runs + count, old.run_s + run_s, old.limit_s + limit_s, before
            )
        uow.usage.save_histories([sums[key] for key in sorted(sums)])
        full = len(ended) == BATCH
        reached = (ended[-1].ended, ended[-1].id) if full else (before, "")
        uow.usage.set_mark(LIMITS, max(mark, reached))  # never back, whatever clocks do
        return full


class Reading:
    """Reads the sums for snapshots; within ``REFRESH_S`` it reckons on from what it has read."""

    def __init__(self, half_life_s: float) -> None:
        self._half_life = half_life_s
        self._read_at: float | None = None
        self._sums: dict[UsageKey, float] = {}
        self._ratio = 1.0

    def read(
        self, uow: UnitOfWork, gangs: Iterable[LiveGang], held: Mapping[str, int]
    ) -> tuple[dict[UsageKey, float], float]:
        """(decayed milli-GPU-seconds by queue, project and user up to now; run times over limits).

        :param held: milli-GPUs that each of the live gangs (by attempt) holds.
        """
        now = uow.now().timestamp()
        gangs = list(gangs)
        if self._read_at is None or not 0.0 <= now - self._read_at < REFRESH_S:
            self._sums = self._from_store(uow, now)
            self._ratio = self._ratio_from_store(uow, now)
            for gang in gangs:
                self._add(self._sums, gang, held, gang.created_at.timestamp(), now)
            self._read_at = now
            return dict(self._sums), self._ratio
        aged = now - self._read_at
        sums = {key: faded(value, aged, self._half_life) for key, value in self._sums.items()}
        for gang in gangs:
            self._add(sums, gang, held, max(gang.created_at.timestamp(), self._read_at), now)
        return sums, self._ratio

    def _add(
        self,
        sums: dict[UsageKey, float],
        gang: LiveGang,
        held: Mapping[str, int],
        begin: float,
        now: float,
    ) -> None:
        milli = held.get(gang.attempt_id, 0)
        if milli:
            key = (gang.queue_id, gang.project_id, gang.user_id)
            sums[key] = sums.get(key, 0.0) + worth(milli, begin, now, now, self._half_life)

    def _from_store(self, uow: UnitOfWork, now: float) -> dict[UsageKey, float]:
        kept, tail = uow.usage.usage(uow.now() - timedelta(seconds=TAIL_S))
        sums = {
            one.key: faded(one.milli_gpu_seconds, now - one.as_of.timestamp(), self._half_life)
            for one in kept
        }
        for share in tail:
            gain = worth(
                share.milli, share.began.timestamp(), share.ended.timestamp(), now, self._half_life
            )
            sums[share.key] = sums.get(share.key, 0.0) + gain
        return sums

    def _ratio_from_store(self, uow: UnitOfWork, now: float) -> float:
        """Sums of run times over sums of limits, what ended just now included; 1 where nothing is
        known (or clocks disagree)."""
        at = uow.now()
        sums = [_at(one, at, self._half_life) for one in uow.usage.histories()]
        since = uow.usage.mark(LIMITS) or (at - timedelta(seconds=TAIL_S), "")
        tail = uow.usage.ended_runs(since, at, BATCH)
        limits = sum(one.limit_s for one in sums) + sum(run.limit_s for run in tail)
        took = sum(one.run_s for one in sums) + sum(run.run_s for run in tail)
        return min(took / limits, 1.0) if limits > 0.0 else 1.0


def _at(one: HistorySum, at: datetime, half_life: float) -> HistorySum:
    """What a sum is worth at another moment."""
    age = (at - one.as_of).total_seconds()
    runs, run_s, limit_s = (faded(v, age, half_life) for v in (one.runs, one.run_s, one.limit_s))
    return HistorySum(one.key, runs, run_s, limit_s, at)
