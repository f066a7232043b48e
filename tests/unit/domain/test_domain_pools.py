# SPDX-License-Identifier: Apache-2.0
"""Which nodes of a pool go, and how much quota leaves room for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from gpuservice.domain.inventory import Node, Pool
from gpuservice.domain.pools import surplus, to_remove
from gpuservice.domain.quota import of_nodes, room
from gpuservice.domain.work import QuotaState

NOW = datetime(2026, 5, 6, tzinfo=UTC)


def pool(**values: Any) -> Pool:
    row: dict[str, Any] = {
        "id": "p",
        "created_at": NOW,
        "updated_at": NOW,
        "project_id": "o",
        "name": "p",
        "flavor_id": "f",
        "min_nodes": 1,
        "max_nodes": 9,
        "target_nodes": 2,
        "idle_timeout_s": 60,
    }
    return Pool(**{**row, **values})


def node(name: str, status: str = "ready", **values: Any) -> Node:
    row: dict[str, Any] = {
        "id": name,
        "created_at": NOW,
        "updated_at": NOW,
        "pool_id": "p",
        "project_id": "o",
        "name": name,
        "flavor_id": "f",
        "status": status,
        "status_changed_at": NOW,
        "gpu_type": "t",
        "gpu_count": 1,
        "vcpus": 1,
        "memory_mib": 1,
    }
    return Node(**{**row, **values})


def idle(name: str, seconds: int, **values: Any) -> Node:
    return node(name, idle_since=NOW - timedelta(seconds=seconds), **values)


def names(nodes: list[Node]) -> list[str]:
    return [one.id for one in nodes]


def test_broken_and_unbuilt_nodes_go_first_and_busy_ones_never() -> None:
    nodes = [node("a"), node("b", live_tasks=1), node("c", "building"), node("d", "error")]
    assert names(to_remove(nodes, 2)) == ["d", "c"]
    assert names(to_remove(nodes, 9)) == ["d", "c", "a"]
    assert to_remove(nodes, -1) == []


def test_a_fixed_pool_goes_to_its_size_at_once() -> None:
    nodes = [node("a"), node("b"), node("c")]
    assert names(surplus(pool(), nodes, NOW)) == ["a"]
    assert surplus(pool(target_nodes=3), nodes, NOW) == []


def test_an_autoscaled_pool_releases_what_was_idle_for_long_down_to_its_least() -> None:
    scaled = pool(autoscale=True, wanted_nodes=5)
    nodes = [idle("a", 61), idle("b", 59), idle("c", 100, live_tasks=1), idle("d", 90)]
    assert names(surplus(scaled, nodes, NOW)) == ["a", "d"]
    assert names(surplus(pool(autoscale=True, min_nodes=3), nodes, NOW)) == ["a"]
    assert surplus(pool(autoscale=True, min_nodes=4), nodes, NOW) == []


def test_an_autoscaled_pool_keeps_nodes_that_are_coming() -> None:
    scaled = pool(autoscale=True, wanted_nodes=1, min_nodes=0)
    assert surplus(scaled, [node("a", "building"), idle("b", 10)], NOW) == []


def test_room_is_what_the_tightest_limit_leaves() -> None:
    each = of_nodes("t", 4)
    states = [
        QuotaState(project_id="o", name="gpus", limit=20000, in_use=3000),
        QuotaState(project_id="o", name="nodes", limit=-1, in_use=50),
        QuotaState(project_id="o", name="pools", limit=0, in_use=5),
    ]
    assert room(states, each) == (4, "gpus")
    assert room(states[1:], each) == (None, None)
    over = [QuotaState(project_id="o", name="nodes", limit=1, in_use=2)]
    assert room(over, each) == (0, "nodes")
