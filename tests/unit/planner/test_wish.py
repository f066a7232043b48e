# SPDX-License-Identifier: Apache-2.0
"""Of nodes that are equally full a task goes to the one that it keeps from being free least."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_cluster import EASY, NOW, gang, job, node, node_names, snapshot

from gpuservice.planner.plan import plan
from gpuservice.planner.snapshot import NodeState, RunningGang

FIFO = replace(EASY, order="fifo", preempt=frozenset())

#: a is free again after 50 s, b after 400 s, c after 200 s.
RUNNING = [
    replace(gang(name, {name: [0]}, NOW + ends), gang_id=name)
    for name, ends in (("a", 50), ("b", 400), ("c", 200))
]


def taken(runtime: int | None, running: list[RunningGang] = RUNNING, **asked: int) -> list[str]:
    nodes = [node(name, 4) for name in "abc"]
    waits = job("j1", max_runtime_s=runtime, **{"gpu_milli": 1000, **asked})
    return node_names(plan(snapshot(nodes, [waits], running), FIFO), "j1")


@pytest.mark.parametrize(("runtime", "where"), [(30, "a"), (50, "a"), (100, "c"), (300, "b")])
def test_a_node_that_is_taken_longer_anyway(runtime: int, where: str) -> None:
    """Of several the one that is free first: what is taken longest is left for longer tasks."""
    assert taken(runtime) == [where]


@pytest.mark.parametrize("runtime", [900, None])
def test_else_the_node_that_is_taken_longest(runtime: int | None) -> None:
    assert taken(runtime) == ["b"]


def test_a_gang_on_one_node_as_well() -> None:
    assert taken(100, count=2) == ["c", "c"]


def test_how_full_a_node_is_comes_first() -> None:
    fuller = gang("d", {"a": [1]}, NOW + 50)
    assert taken(100, [*RUNNING, fuller]) == ["a"]


def test_idle_nodes_are_all_alike() -> None:
    assert taken(100, []) == ["a"]


@pytest.mark.parametrize("way", ["priority", "due_gangs"])
def test_where_some_may_have_to_go_their_limits_say_nothing(way: str) -> None:
    """The first: jobs that nobody can move are not scattered over all nodes."""
    waits = job("j1", max_runtime_s=100, gpu_milli=1000)
    world = snapshot([node(name, 4) for name in "abc"], [waits], RUNNING)
    queues = tuple(replace(queue, preemption="lower_priority") for queue in world.queues)
    if way == "priority":
        world = replace(world, queues=queues)
    made = plan(world, replace(FIFO, preempt=frozenset({way})))
    assert node_names(made, "j1") == ["a"]


def test_what_this_plan_started_counts() -> None:
    jobs = [
        job("j1", gpu_milli=5000, max_runtime_s=5000),
        job("j2", gpu_milli=1000, max_runtime_s=900),
    ]
    running = [gang("r", {"b": range(5)}, NOW + 400)]
    assert node_names(plan(snapshot([node("a"), node("b")], jobs, running), FIFO), "j2") == ["a"]


def test_nodes_without_devices_are_all_alike() -> None:
    nodes = [NodeState(name, "pool", 64, 65536, ()) for name in "ab"]
    made = plan(snapshot(nodes, [job("j1", gpu_milli=0, vcpus=1)]), FIFO)
    assert node_names(made, "j1") == ["a"]
