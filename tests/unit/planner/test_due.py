# SPDX-License-Identifier: Apache-2.0
"""From when on waiting jobs are promised a start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from small_cluster import NOW, gang, job, node, snapshot

from gpuservice.planner.plan import plan
from gpuservice.planner.plan_types import Plan
from gpuservice.planner.snapshot import DueTimes, PendingJob, Policy, Snapshot

TIMES = DueTimes(
    gang_least=0.5, gang_backlog=4.0, gang_alike=16.0, small_backlog=3.0, small_running=0.0, calm=0
)
POLICY = Policy(due=TIMES, preempt=frozenset(), explain=False)
HOSTS = 8
GPUS = 8 * HOSTS


def wide(name: str = "j1", **more: Any) -> PendingJob:
    """A gang of two whole nodes: a quarter of the cluster."""
    settings: dict[str, Any] = {"count": 2, "gpu_milli": 8000, "queued_at": NOW, **more}
    return job(name, **settings)


def full(pending: Sequence[PendingJob], left: float = 100.0, ratio: float = 1.0) -> Snapshot:
    """A cluster of eight nodes all of which are taken for so many seconds."""
    nodes = [node(f"n{number}") for number in range(HOSTS)]
    running = [gang(f"r{number}", {f"n{number}": range(8)}, NOW + left) for number in range(HOSTS)]
    return replace(snapshot(nodes, pending, running), limit_ratio=ratio)


def small(count: int, limit: int = 100, first: int = 10) -> list[PendingJob]:
    """Jobs of one GPU that are not due yet."""
    return [
        job(f"j{first + number}", max_runtime_s=limit, queued_at=NOW) for number in range(count)
    ]


def waited(made: Plan, name: str = "j1") -> float:
    """After how many seconds a gang that has come now is due."""
    return made.due[name] - NOW


def test_a_gang_that_nobody_smaller_waits_beside_is_due_at_once() -> None:
    made = plan(full([wide()]), POLICY)
    assert waited(made) == 0
    assert [promise.job_id for promise in made.promises] == ["j1"]


def test_where_all_limits_are_alike_a_gang_waits_for_the_work_many_times() -> None:
    made = plan(full([wide(), *small(16)]), POLICY)
    work = 16 * 100 / GPUS
    assert waited(made) == pytest.approx(work * (0.5 + 4.0 / 16 + 16.0))
    assert not made.promises


def test_where_short_work_fills_what_is_drained_a_gang_waits_for_a_part_of_it() -> None:
    made = plan(full([wide(), *small(16)], left=1000.0), POLICY)
    work = 16 * 100 / GPUS
    assert waited(made) == pytest.approx(work * (0.5 + 4.0 / 16 + 16.0 / 1000))


def test_what_waits_may_be_long_as_well() -> None:
    long = job("j2", gpu_milli=8000, max_runtime_s=1000, queued_at=NOW)
    made = plan(full([wide(), long, *small(16)]), POLICY)
    work = 16 * 100 / GPUS  # the long one is larger than the gang
    assert waited(made) == pytest.approx(work * (0.5 + 4.0 / 16 + 16.0 / 1000))


@pytest.mark.parametrize("odd", [1, 100_000])
def test_one_job_unlike_all_others_decides_nothing(odd: int) -> None:
    usual = waited(plan(full([wide(), *small(16)]), POLICY))
    made = plan(full([wide(max_runtime_s=100), *small(16), *small(1, odd, first=90)]), POLICY)
    assert waited(made) == pytest.approx(usual, rel=0.1)


@pytest.mark.parametrize("factor", [60, 3600])
def test_due_times_have_no_unit_of_their_own(factor: int) -> None:
    once = waited(plan(full([wide(), *small(16)], left=500.0), POLICY))
    longer = [wide(max_runtime_s=100 * factor), *small(16, 100 * factor)]
    assert waited(plan(full(longer, left=500.0 * factor), POLICY)) == pytest.approx(once * factor)


def test_limits_that_are_not_used_up_count_for_what_they_are_worth() -> None:
    true = waited(plan(full([wide(), *small(16)]), POLICY))
    fifth = waited(plan(full([wide(), *small(16)], ratio=0.2), POLICY))
    assert fifth == pytest.approx(true / 5)


def test_a_gang_keeps_its_due_time_and_small_jobs_have_none() -> None:
    made = plan(full([wide(), wide("j2", due=NOW + 7), *small(16)]), POLICY)
    assert set(made.due) == {"j1"}


def test_equal_gangs_are_due_in_their_order() -> None:
    made = plan(full([wide("j1", due=NOW + 9000), wide("j2"), *small(16)]), POLICY)
    assert waited(made, "j2") == 9000


def test_a_small_job_is_due_by_what_waits_now() -> None:
    """Three times the work of 33 jobs on 64 GPUs: some 155 seconds."""
    waiting = [*small(32), job("j1", queued_at=NOW - 160)]
    assert [one.job_id for one in plan(full(waiting), POLICY).promises] == ["j1"]
    more = [*small(40), job("j1", queued_at=NOW - 160)]
    assert not plan(full(more), POLICY).promises


def test_by_default_gangs_are_promised_a_start_where_all_limits_are_alike_too() -> None:
    """Not at once, but before the work that waits could have run a dozen times."""
    made = plan(full([wide(), *small(64)]), Policy(preempt=frozenset(), explain=False))
    assert 0 < waited(made) < 12 * 100
