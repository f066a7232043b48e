# SPDX-License-Identifier: Apache-2.0
"""Where fractions of GPUs are asked for, a task goes where the rest is of most use to others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from small_cluster import A100, gang, job, node, places, snapshot

from gpuservice.planner.plan import plan
from gpuservice.planner.snapshot import NodeState, PendingJob, RunningGang, Snapshot


def used(name: str, where: str, milli: int) -> RunningGang:
    """A share that runs on one device of the test's queue."""
    on, _, number = where.partition("/")
    return replace(gang(name, {on: [int(number)]}, milli=milli), queue_id="queue", user_id="user")


def many(count: int, first: int, **request: object) -> list[PendingJob]:
    """Jobs that come behind the first one."""
    return [job(f"j{first + number}", **request) for number in range(count)]


def first_place(
    nodes: Sequence[NodeState], waiting: Sequence[PendingJob], running: Sequence[RunningGang] = ()
) -> list[str]:
    """Where the first job goes."""
    return places(plan(snapshot(nodes, waiting, running)))["j1"]


def test_a_fraction_leaves_the_rest_that_others_ask_for() -> None:
    """0.5 is free on one device and 0.8 on the other: 0.3 fits the first more tightly, but there
    the next 0.5 would find nothing."""
    nodes = [node("a", gpus=2, groups=1)]
    running = [used("r1", "a/0", 500), used("r2", "a/1", 200)]
    wanted = job("j1", gpu_milli=300)
    assert first_place(nodes, [wanted, *many(6, 2, gpu_milli=500)], running) == ["a/1"]


def test_whole_gpus_stay_whole_for_who_may_come() -> None:
    nodes = [node("a", gpus=2, groups=1), node("b", gpus=2, groups=1)]
    running = [used("r1", "b/1", 500)]
    assert first_place(nodes, many(2, 1, gpu_milli=500), running) == ["b/1"]


@pytest.mark.parametrize("order", [("here", "there"), ("there", "here")])
def test_who_may_go_anywhere_leaves_the_type_that_others_insist_on(order: tuple[str, str]) -> None:
    types = {"here": A100, "there": "h100"}
    nodes = [node(pool, gpus=4, groups=1, pool=pool, gpu_type=types[pool]) for pool in order]
    others = many(8, 2, gpu_milli=500, gpu_types=("h100",))
    assert first_place(nodes, [job("j1", gpu_milli=500), *others])[0].startswith("here/")


def test_cores_stay_with_the_gpus_that_need_them() -> None:
    """A task of many cores goes to the node whose GPUs are gone already."""
    nodes = [node("a", gpus=2, groups=1, vcpus=16), node("b", gpus=2, groups=1, vcpus=16)]
    running = [used("r1", "b/0", 1000), used("r2", "b/1", 500)]
    wanted = job("j1", gpu_milli=0, vcpus=12)
    others = many(4, 2, gpu_milli=500, vcpus=4)
    assert plan(snapshot(nodes, [wanted, *others], running)).starts[0].tasks[0].node_id == "b"


def test_few_fractions_change_nothing() -> None:
    """One small share among many large jobs: the tightest fit, as without it."""
    nodes = [node("a"), node("b"), node("c")]
    running = [used("r1", "c/0", 900)]
    waiting = [job("j1"), *many(8, 2, gpu_milli=8000), job("j99", gpu_milli=100)]
    assert first_place(nodes, waiting, running) == ["c/1"]


def test_a_spreading_queue_spreads() -> None:
    nodes = [node("a", gpus=2, groups=1), node("b", gpus=2, groups=1)]
    running = [used("r1", "a/0", 500)]
    made = snapshot(nodes, many(2, 1, gpu_milli=500), running)
    spread: Snapshot = replace(made, queues=(replace(made.queues[0], spread=True),))
    assert places(plan(spread))["j1"] == ["b/0"]


def test_a_share_by_memory_counts_by_what_it_takes_there() -> None:
    nodes = [
        node("a", gpus=1, groups=1, pool="small", gpu_type="t4", memory=16384),
        node("b", gpus=1, groups=1, pool="large"),
    ]
    wanted = many(3, 1, gpu_milli=0, gpu_memory_mib=20480)
    made = plan(snapshot(nodes, wanted))
    assert {start.tasks[0].devices for start in made.starts} == {(("b/0", 250),)}


def test_another_projects_shares_are_no_place() -> None:
    nodes = [node("a", gpus=1, groups=1), node("b", gpus=1, groups=1)]
    running = [replace(used("r1", "a/0", 500), project_id="blue")]
    assert first_place(nodes, many(2, 1, gpu_milli=500), running) == ["b/0"]
