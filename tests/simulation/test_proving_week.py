# SPDX-License-Identifier: Apache-2.0
"""What the teams of the proving week are told while they wait is true, at random moments."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from typing import Any

from gpuservice.planner.plan import plan
from gpuservice.planner.plan_types import Plan
from gpuservice.planner.session import Session
from gpuservice.planner.snapshot import Snapshot
from gpuservice.simulation.proving_week import (
    DAY_S,
    POLICY,
    SEEDS,
    WEEK_S,
    WORLD,
    Week,
    cluster,
    jobs,
)
from gpuservice.simulation.replay import Replay
from tests.cluster_states import with_running
from tests.job_changes import changed_job
from tests.reference_reasons import Oracle

FULL = os.environ.get("GPUSERVICE_TEST_SCALE", "tenth") == "full"

#: Weeks, how much of each, and moments of each.
SEEN = SEEDS if FULL else (3,)
FROM_S = 0.0 if FULL else 1.5 * DAY_S
UNTIL_S = WEEK_S if FULL else 3.0 * DAY_S
MOMENTS = 20 if FULL else 10

EXPLAINING = replace(POLICY, counterfactuals=100)


class Watched(Session):
    """A session that keeps snapshots: the first after each random moment that leaves a line."""

    moments: list[float]
    seen: list[Snapshot]

    def plan(
        self,
        now: float,
        *,
        usage: Any = None,
        limit_ratio: float = 1.0,
        explain: bool = False,
    ) -> Plan:
        """The plan."""
        seen = None
        if self.moments and now >= self.moments[0] and len(self._world.line) > 1:
            seen = self._snapshot(now, dict(usage or {}), limit_ratio)
        made = super().plan(now, usage=usage, limit_ratio=limit_ratio, explain=explain)
        if seen is not None and len({start.job_id for start in made.starts}) < len(seen.pending):
            self.seen.append(seen)
            self.moments.pop(0)
        return made

    def _snapshot(self, now: float, usage: dict[Any, float], ratio: float) -> Snapshot:
        world = self._world
        ready = dict(zip(world.layout.node_row, world.ledger.ready.tolist(), strict=True))
        empty = Snapshot(
            now,
            tuple(replace(node, ready=ready[node.id]) for node in self._nodes),
            tuple(world.pools.values()),
            self._queues,
            tuple(world.line.with_due_times()),
            usage=usage,
            limit_ratio=ratio,
        )
        return with_running(empty, [record.gang for record in world.gangs.values()])


def moments_of(seed: int) -> list[Snapshot]:
    """Snapshots of one week."""
    chance = random.Random(100 + seed)

    class Here(Watched):
        moments = sorted(chance.uniform(FROM_S, UNTIL_S) for _ in range(MOMENTS))
        seen: list[Snapshot] = []

    week = [job for job in jobs(Week(seed)) if job.submit_s <= UNTIL_S]
    Replay(cluster(), week, POLICY, WORLD, session=Here).run()
    return Here.seen


def test_every_waiting_job_is_told_the_truth() -> None:
    wrong: list[str] = []
    checked = changes = 0
    for seed in SEEN:
        for snapshot in moments_of(seed):
            made = plan(snapshot, EXPLAINING)
            oracle = Oracle(snapshot, made)
            left = {job.job_id: job for job in oracle.left}
            for entry in made.waiting:
                wrong += oracle.doubts(left[entry.job_id], entry.reasons)
                checked += 1
            told = {tuple(map(str, one.would_start_now_if)): one for one in made.waiting}
            for entry in told.values():
                started = sum(start.job_id == entry.job_id for start in made.starts)
                for offered in entry.would_start_now_if:
                    changes += 1
                    pending = tuple(
                        changed_job(job, offered["change"]) if job.job_id == entry.job_id else job
                        for job in snapshot.pending
                    )
                    again = plan(replace(snapshot, pending=pending), replace(POLICY, explain=False))
                    if sum(one.job_id == entry.job_id for one in again.starts) <= started:
                        wrong.append(f"{entry.job_id} at {snapshot.now}: not with {offered}")
    assert wrong == []
    assert checked > 10 * len(SEEN)
