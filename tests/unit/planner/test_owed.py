# SPDX-License-Identifier: Apache-2.0
"""A queue that is behind by more than its next job is promised that job's start."""

from __future__ import annotations

from dataclasses import replace

from small_cluster import NOW, gang, job, node, snapshot

from gpuservice.planner.plan import plan
from gpuservice.planner.plan_types import Plan
from gpuservice.planner.snapshot import DueTimes, Policy, QueueState

POLICY = Policy(due=DueTimes(), preempt=frozenset())


def made(usage: dict[tuple[str, str, str], float], policy: Policy = POLICY) -> Plan:
    """One node of 8 of which 4 are free: ``wide`` wants it all, ``narrow`` single GPUs."""
    world = snapshot(
        [node("n0")],
        [
            job("j1", gpu_milli=8000, queue_id="wide", due=NOW + 9000, queued_at=NOW - 10),
            *(
                job(f"j{number}", queue_id="narrow", due=NOW + 9000, queued_at=NOW - 10)
                for number in range(2, 12)
            ),
        ],
        [replace(gang("r", {"n0": range(4)}, NOW + 50), queue_id="narrow")],
    )
    queues = tuple(QueueState(name, ("pool",)) for name in ("wide", "narrow"))
    return plan(replace(world, queues=queues, usage=usage), policy)


def test_the_head_of_a_queue_that_is_behind_is_promised_a_start() -> None:
    found = made({("narrow", "red", "user"): 1e9})
    assert [promise.job_id for promise in found.promises] == ["j1"]
    assert not found.starts


def test_a_queue_that_is_behind_by_less_than_the_job_is_not() -> None:
    found = made({("narrow", "red", "user"): 1e5})
    assert not found.promises
    assert len(found.starts) == 4


def test_by_age_alone_no_queue_is_owed_anything() -> None:
    found = made({("narrow", "red", "user"): 1e9}, replace(POLICY, order="fifo"))
    assert not found.promises
    assert len(found.starts) == 4
