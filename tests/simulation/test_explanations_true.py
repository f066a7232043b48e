# SPDX-License-Identifier: Apache-2.0
"""What waiting jobs are told is true: reasons, changes that would help, promised starts.

Random jobs in random clusters: each reason is checked by brute force, each change by planning
again with it, each promised start by running on with true limits and nothing new arriving.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gpuservice.planner.plan import plan
from gpuservice.planner.snapshot import Policy, Snapshot
from tests.cluster_worlds import (
    CLUSTER_BYTES,
    EVERYTHING,
    NODE_BYTES,
    POOL_BYTES,
    PREDICTABLE,
    QUEUE_BYTES,
    Throws,
    world,
)
from tests.job_changes import changed_job
from tests.job_worlds import JOB_BYTES, REQUEST_BYTES
from tests.reference_reasons import Oracle
from tests.virtual_cluster import VirtualCluster

#: Waiting jobs of which everything is checked.
JOBS = 1000 if os.environ.get("GPUSERVICE_TEST_SCALE", "tenth") == "full" else 100

POLICIES = (
    Policy(counterfactuals=100),
    Policy(due=None, promises=4, counterfactuals=100),
    Policy(order="fifo", due=None, promises=-1, backfill_order="line", counterfactuals=100),
)


def clusters(seed: int, has: frozenset[str]) -> Iterator[Snapshot]:
    """Busy clusters of up to ten nodes, each with a line of up to 16 jobs, without end."""
    chance = random.Random(seed)

    def throws(size: int, least: int, most: int) -> list[bytes]:
        return [chance.randbytes(size) for _ in range(chance.randint(least, most))]

    while True:
        yield world(
            Throws(
                chance.randbytes(len(EVERYTHING)),
                chance.randbytes(CLUSTER_BYTES),
                throws(POOL_BYTES, 1, 2),
                throws(NODE_BYTES, 3, 10),
                throws(QUEUE_BYTES, 3, 3),
                throws(REQUEST_BYTES, 2, 6),
                throws(JOB_BYTES, 10, 30),
                throws(JOB_BYTES, 4, 16),
            ),
            has,
        )


@pytest.mark.parametrize("policy", POLICIES)
def test_each_reason_and_each_change_of_a_waiting_job_is_true(policy: Policy) -> None:
    checked, codes = 0, Counter[str]()
    wrong: list[str] = []
    for number, snapshot in enumerate(clusters(8, EVERYTHING)):
        made = plan(snapshot, policy)
        oracle = Oracle(snapshot, made)
        left = {job.job_id: job for job in oracle.left}
        for entry in made.waiting:
            codes.update(reason.code for reason in entry.reasons)
            job = left[entry.job_id]
            found = oracle.doubts(job, entry.reasons)
            started = sum(start.job_id == entry.job_id for start in made.starts)
            for offered in entry.would_start_now_if:
                changed = tuple(
                    changed_job(one, offered["change"]) if one.job_id == entry.job_id else one
                    for one in snapshot.pending
                )
                again = plan(replace(snapshot, pending=changed), replace(policy, explain=False))
                if sum(one.job_id == entry.job_id for one in again.starts) <= started:
                    found.append(f"{entry.job_id}: would not start with {offered}")
            wrong.extend(f"cluster {number}: {what}" for what in found)
            checked += 1
        if checked >= JOBS:
            break
    assert wrong == []
    # Not all about one thing.
    assert len(codes) >= 10, codes


@pytest.mark.parametrize("policy", POLICIES)
def test_each_promised_start_is_kept(policy: Policy) -> None:
    """And so is the estimate that a job with a promise was shown: it is the promise."""
    promised = 0
    late: list[str] = []
    steady = replace(policy, preempt=frozenset(), explain=False)
    for number, snapshot in enumerate(clusters(9, PREDICTABLE - {"promises"})):
        single = replace(
            snapshot, pending=tuple(replace(job, elements=1) for job in snapshot.pending)
        )
        told = plan(single, replace(steady, explain=True))
        shown = {one.job_id: one.estimated_start for one in told.waiting}
        for promise in told.promises:
            assert shown[promise.job_id] == promise.start
        cluster = VirtualCluster(single, steady)
        cluster.run(1000)
        late.extend(f"cluster {number}: {what}" for what in cluster.slips)
        promised += len(told.promises)
        if promised >= JOBS // 4 or number >= JOBS:
            break
    assert late == []
    assert promised or policy.due is not None
