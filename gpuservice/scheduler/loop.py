# SPDX-License-Identifier: Apache-2.0
"""The loop: collect, plan, commit, explain; woken by hints, at least every interval."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from oslo_config import cfg

from gpuservice.domain.errors import Busy, StaleEpoch
from gpuservice.domain.ports import Clock, Hint, Hints
from gpuservice.domain.ports_store import Store, UnitOfWork, Where
from gpuservice.planner.keeping import Keeping
from gpuservice.planner.plan import plan
from gpuservice.planner.plan_types import Plan, Waiting
from gpuservice.planner.snapshot import Snapshot
from gpuservice.scheduler.collect import Collected, Collector
from gpuservice.scheduler.commit import Committer, Outcome
from gpuservice.scheduler.explaining import Explaining
from gpuservice.scheduler.leadership import Leadership
from gpuservice.scheduler.noting import Noting
from gpuservice.scheduler.policy import policy_of
from gpuservice.scheduler.preempting import Preempting
from gpuservice.scheduler.usage import Folding

LOG = logging.getLogger(__name__)

#: All queues and pools are one shard.
SHARD = "all"
#: A pass that explains is followed by the next such one after so many times its own length, and
#: not before so long (seconds).
EXPLAIN_EVERY = 8
EXPLAIN_PAUSE_S = 2.0
#: But so long (seconds) after its end at the latest: a new job is told why it waits.
EXPLAIN_WITHIN_S = 4.0
#: What wakes the loop within so long (seconds) of the first wake-up shares its pass: the ends of a
#: gang, a handful of submissions.
GATHER_S = 0.02
#: Whether what waits has another reason is looked at so often (seconds), and everything that is
#: told of it so often.
REASONS_EVERY_S = 4.0
NUMBERS_EVERY_S = 12.0
#: What has ended is reckoned in so often (seconds); until then it is read along.
FOLD_EVERY_S = 30.0


class Scheduler:
    """One scheduler process; plans while it leads."""

    def __init__(
        self,
        store: Store,
        hints: Hints,
        clock: Clock,
        conf: cfg.ConfigOpts,
        collector: Collector,
        committer: Committer,
        preempting: Preempting,
        leadership: Leadership,
    ) -> None:
        self._store = store
        self._hints = hints
        self._clock = clock
        self._conf = conf.scheduler
        self._policies = {flag: policy_of(conf, explain=flag) for flag in (True, False)}
        self._collector = collector
        self._committer = committer
        self._leadership = leadership
        self._explaining = Explaining(store)
        self._preempting = preempting
        self._noting = Noting(store, SHARD)
        self._folding = Folding(store, SHARD, conf.scheduler.usage_half_life_s)
        self._keeping = Keeping()
        self._fold_from = float("-inf")
        self._led: int | None = None
        self._explain_from = float("-inf")
        self._reasons_from = float("-inf")
        self._numbers_from = float("-inf")
        self._beside: ThreadPoolExecutor | None = None
        self._saving: Future[bool] | None = None

    def step(self) -> bool:
        """One pass; whether something was started (so that another pass may find more)."""
        epoch = self._leadership.lead()
        if epoch is None:
            return False
        if epoch != self._led:
            # Another may have led meanwhile, and forgotten what this process wrote.
            self._led, self._explaining = epoch, Explaining(self._store)
            self._collector.forget()
        if not self._fold(epoch):
            return False
        collected = self._store.read(self._collector.collect)
        began = self._clock.monotonic()
        explain = self._explains(began, len(collected.snapshot.pending))
        made = self._plan(collected.snapshot, explain)
        try:
            outcome = self._commit(epoch, made, collected)
        except StaleEpoch:
            self._leadership.step_down()
            return False
        except Exception:
            # Some starts may have been committed: what is known of explanations is not sure.
            self._explaining = Explaining(self._store)
            raise
        self._explaining.forget(outcome.started)
        if explain:
            self._explain_from = began + EXPLAIN_PAUSE_S
            self._explain(made.waiting, began)
        return bool(outcome.started or outcome.overtaken)

    def _explains(self, now: float, waiting: int) -> bool:
        """Whether this pass explains: somebody new waits, or it is time to look at all anew."""
        if now < self._explain_from or not (self._saving is None or self._saving.done()):
            return False
        return now >= self._reasons_from or self._explaining.lacks(waiting)

    def _plan(self, snapshot: Snapshot, explain: bool) -> Plan:
        """A plan from what was kept since the last one; one that explains is read beside the next
        passes, and so has a world of its own."""
        if explain:
            return plan(snapshot, self._policies[True])
        return self._keeping.plan(snapshot, self._policies[False])

    def _commit(self, epoch: int, made: Plan, collected: Collected) -> Outcome:
        """Everything that a plan says, each part in transactions of its own under the epoch:
        starts, whom to preempt, sizes of pools, and what is noted with jobs that wait on."""
        outcome = self._committer.commit(epoch, made.starts, collected.nodes, collected.pools)
        self._collector.began(outcome.batches)
        gone = set(outcome.started)
        preempted = self._preempting.commit(epoch, made.preemptions)
        outcome.overtaken.extend(preempted.overtaken)
        # What was freed for them was theirs in this plan: now they wait like everybody.
        self._preempting.unclaim(
            epoch, sorted(set(collected.unclaimed) - gone - set(preempted.claimed))
        )
        self._resize(epoch, made.wanted)
        snapshot = collected.snapshot
        self._collector.told((*made.promises, *made.claims))
        self._collector.note(self._noting.keep(epoch, made, snapshot.now, snapshot.pending, gone))
        return outcome

    def _fold(self, epoch: int) -> bool:
        """Reckon in what has ended, now and then; whether this process still leads. A fault in it
        keeps no job waiting."""
        now = self._clock.monotonic()
        if now < self._fold_from:
            return True
        self._fold_from = now + FOLD_EVERY_S
        try:
            if self._folding.fold(epoch):
                self._fold_from = now
        except StaleEpoch:
            self._leadership.step_down()
            return False
        except Busy as busy:
            LOG.warning("Reckoning of use waits: %s", busy.detail)
        except Exception:
            LOG.exception("Reckoning of use failed; it is tried again")
        return True

    def _explain(self, waiting: Sequence[Waiting], began: float) -> None:
        """Keep the explanations: beside the next passes where this is a program."""

        explaining = self._explaining
        refresh = began >= self._numbers_from
        self._reasons_from = began + REASONS_EVERY_S

        def save() -> None:
            explaining.save(waiting, refresh)
            if refresh:
                self._numbers_from = began + NUMBERS_EVERY_S
            took = self._clock.monotonic() - began
            pause = max(EXPLAIN_PAUSE_S, min(EXPLAIN_EVERY * took, took + EXPLAIN_WITHIN_S))
            self._explain_from = began + pause

        if self._beside is None:
            save()
        else:
            self._saving = self._beside.submit(_safely, "Explaining", save)

    def _resize(self, epoch: int, wanted: Mapping[str, int]) -> None:
        if not wanted:
            return

        def work(uow: UnitOfWork) -> bool:
            uow.check_epoch(SHARD, epoch)
            changed = [
                uow.pools.change(
                    pool_id,
                    {"wanted_nodes": size},
                    Where("autoscale", "eq", True),
                    Where("wanted_nodes", "ne", size),
                )
                for pool_id, size in sorted(wanted.items())
            ]
            return any(changed)

        if self._store.write(work):
            self._hints.send(Hint("pools", tuple(sorted(wanted))))

    def run(self, stop: threading.Event) -> None:
        """Work until told to stop."""
        wake = threading.Event()

        def on_hint(hint: Hint) -> None:
            wake.set()

        unsubscribe = self._hints.subscribe(("jobs",), on_hint)
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="explaining")
        try:
            while not stop.is_set():
                wake.clear()
                began = self._clock.monotonic()
                fruitful = _safely("A scheduling pass", self.step)
                ended = self._clock.monotonic()
                if not wake.wait(self._conf.interval_s):
                    continue
                # Long passes (a long line) that start nothing take at most half of the time:
                # more wake-ups share one.
                pause = max(self._conf.min_interval_s, 0.0 if fruitful else ended - began)
                # After a quiet time the next pass comes at once.
                stop.wait(max(ended + pause - self._clock.monotonic(), GATHER_S))
        finally:
            unsubscribe()
            self._beside.shutdown()
            self._leadership.stop()


def _safely(what: str, work: Callable[[], bool | None]) -> bool:
    """Do it; whether it says that it did something. What goes wrong is logged."""
    try:
        return bool(work())
    except Busy as busy:
        LOG.warning("%s waits: %s", what, busy.detail)
    except Exception:
        LOG.exception("%s failed; the next one follows", what)
    return False
