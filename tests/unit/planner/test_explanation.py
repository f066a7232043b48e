# SPDX-License-Identifier: Apache-2.0
"""Why jobs wait: codes, numbers, positions, holders, and what would help."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from small_cluster import A100, EASY, NOW, codes, gang, job, node, pool, snapshot, why

from gpuservice.domain.inventory import MAX_TASKS_PER_NODE
from gpuservice.planner.plan import plan
from gpuservice.planner.plan_types import Holder, Start
from gpuservice.planner.snapshot import Policy, QueueState, Weights

TWO = [node("a", rack="r1"), node("b", rack="r2")]
HALF = [gang("r", {"a": range(4)}), gang("s", {"b": range(4)})]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"count": 9}, ["insufficient_gpus"]),
        ({"gpu_milli": 5000}, ["fragmented"]),
        ({"count": 8, "within": "rack", "required": True}, ["topology"]),
        ({"gpu_milli": 9000}, ["impossible"]),
        ({"count": 17}, ["impossible"]),
        ({"gpu_types": ("h100",)}, ["impossible", "gpu_type_unavailable"]),
        ({"min_gpu_memory_mib": 99999}, ["impossible", "gpu_memory"]),
        ({"vcpus": 65}, ["impossible", "host_resources"]),
        ({"count": 16, "within": "rack", "required": True}, ["impossible", "topology"]),
    ],
)
def test_codes(asked: dict[str, Any], expected: list[str]) -> None:
    assert codes(plan(snapshot(TWO, [job("j1", **asked)], HALF)), "j1") == expected


def test_numbers() -> None:
    made = plan(snapshot(TWO, [job("j1", count=3, gpu_milli=4000)], HALF))
    reason = why(made, "j1").reasons[0]
    assert reason.facts == {"needed": 12, "free": 8, "largest_fit": 8, "tasks": 3, "gpu_types": []}
    assert reason.detail == "Needs 12 GPU(s); 8 are free and 8 of them would fit."


def test_host_resources_of_busy_nodes() -> None:
    made = plan(snapshot([node("a", used_vcpus=60)], [job("j1", vcpus=8)]))
    assert codes(made, "j1") == ["host_resources"]


def test_nodes_that_are_down() -> None:
    made = plan(snapshot([node("a", ready=False)], [job("j1")]))
    assert codes(made, "j1") == ["node_unavailable"]


def test_another_project_on_the_only_nodes() -> None:
    nodes = [
        node("a", isolation_node=True, unproved=("device_filter",)),
        node("b", isolation_node=True),
        node("c", isolation_node=True),
    ]
    running = [
        gang("r1", {"a": [0]}, project="blue"),
        gang("r2", {"b": [0]}, project="blue"),
        gang("r3", {"c": range(8)}, project="blue"),
    ]
    made = plan(snapshot(nodes, [job("j1"), job("j2", "blue")], running))
    assert codes(made, "j1") == ["isolation"]
    (reason,) = why(made, "j1").reasons
    assert (reason.facts["occupied"], reason.facts["unproved"]) == (2, ["device_filter"])
    assert reason.detail.endswith("on a node: their agents have not proved device_filter.")
    assert "j2" in {start.job_id for start in made.starts}


@pytest.mark.parametrize("blocked", ["held", "dependency", "retry_backoff", "array_limit"])
def test_what_the_planner_is_told(blocked: str) -> None:
    made = plan(snapshot([node("a")], [job("j1", blocked=blocked)]))
    assert codes(made, "j1") == [blocked]
    assert why(made, "j1").position is None


def test_a_closed_queue() -> None:
    assert codes(plan(snapshot([node("a")], [job("j1")], queue_open=False)), "j1") == [
        "queue_closed"
    ]


def test_positions_count_those_who_look_at_the_same_pools() -> None:
    line = [
        job("j1", gpu_milli=8000),
        job("j2", gpu_milli=9000),
        job("j3", gpu_milli=7000),
        job("j4", gpu_milli=8000, priority=900),
    ]
    made = plan(snapshot(TWO, line, HALF))
    assert {one.job_id: one.position for one in made.waiting} == {
        "j4": 1,
        "j1": 2,
        "j2": None,
        "j3": 3,
    }
    assert codes(made, "j1") == ["fragmented", "behind_higher_priority"] or codes(made, "j1") == [
        "insufficient_gpus",
        "behind_higher_priority",
    ]


def test_holders_end_soonest_first_and_carry_their_projects() -> None:
    running = [gang("r", {"a": range(4)}, None, "blue"), gang("s", {"b": range(4)}, NOW + 5)]
    made = plan(snapshot(TWO, [job("j1", gpu_milli=8000)], running))
    assert why(made, "j1").holders == (
        Holder("s", "red", 4000, NOW + 5),
        Holder("r", "blue", 4000, None),
    )


def test_an_array_is_one_holder_until_its_last_element_ends() -> None:
    running = [gang("r", {"a": [0]}, NOW + 5), gang("r", {"b": [0, 1]}, NOW + 9)]
    made = plan(snapshot(TWO, [job("j1", gpu_milli=8000)], running))
    assert why(made, "j1").holders == (Holder("r", "red", 3000, NOW + 9),)


@pytest.mark.parametrize(
    ("asked", "change"),
    [
        ({"count": 65}, {"tasks": {"count": 8, "min_count": 8}}),
        ({"gpu_milli": 9000}, {"resources": {"gpus": 4}}),
        ({"count": 8, "within": "rack", "required": True}, {"topology": {"policy": "preferred"}}),
        ({"gpu_types": ("h100",)}, {"resources": {"gpu_types": []}}),
        ({"vcpus": 65}, {"resources": {"vcpus": None, "memory_mib": None}}),
    ],
)
def test_changes_that_would_start_it(asked: dict[str, Any], change: Mapping[str, Any]) -> None:
    made = plan(snapshot(TWO, [job("j1", **asked)], HALF))
    assert {"change": change} in why(made, "j1").would_start_now_if


def test_at_most_one_change_of_a_kind() -> None:
    made = plan(snapshot(TWO, [job("j1", count=9)], HALF))
    assert why(made, "j1").would_start_now_if == (
        {"change": {"tasks": {"count": 8, "min_count": 8}}},
    )


def test_equal_jobs_share_their_answers() -> None:
    line = [job(f"j{number}", gpu_milli=8000) for number in range(30)]
    made = plan(snapshot(TWO, line, HALF), replace(EASY, estimates=2))
    assert len({id(one.reasons) for one in made.waiting}) == 1
    assert [one.position for one in made.waiting] == list(range(1, 31))
    assert sum(one.estimated_start is not None for one in made.waiting) == 3


def test_only_who_may_borrow_is_told_of_what_others_lend() -> None:
    """Equal jobs but that one is preemptible: more than its queue's nominal is for that one."""
    nodes = [node("a", 2), node("b", 4, pool="cheap", gpu_type="t4")]
    line = [
        job("j1", gpu_milli=2000, gpu_types=(A100,)),
        job("j2", gpu_milli=2000, gpu_types=(A100,), preemptible=True),
    ]
    world = snapshot(nodes, line, [gang("r", {"a": [0, 1]}, None)])
    nominal = {A100: 2000, "t4": 1000}
    queues = (
        replace(world.queues[0], cohort="c", nominal=nominal),
        QueueState("other", ("cheap",), cohort="c", nominal={"t4": 4000}),
    )
    template = replace(world.pools[1].template, gpu_type="t4")
    world = replace(
        world, queues=queues, pools=(world.pools[0], replace(world.pools[1], template=template))
    )
    for ordered in (line, line[::-1]):
        made = plan(replace(world, pending=tuple(ordered)), EASY)
        offered = {"change": {"resources": {"gpu_types": []}}}
        assert offered not in why(made, "j1").would_start_now_if
        assert offered in why(made, "j2").would_start_now_if


def test_a_change_for_which_the_job_would_lose_its_turn_is_not_offered() -> None:
    """Sizes count in the order: as the smaller job of the two it would come second, and the only
    attempt that its project may have would be promised to the other."""
    line = [job("j1", gpu_milli=4000, max_runtime_s=None), job("j2", gpu_milli=4000)]
    running = [gang("r", {"a": range(7)}, NOW + 50)]
    world = snapshot([node("a")], line, running, {("red", "jobs:running"): 1})
    policy = replace(EASY, order="multifactor", weights=Weights(age=0.0, size=1000.0))
    made = plan(world, policy)
    assert [promise.job_id for promise in made.promises] == ["j1"]
    assert why(made, "j1").would_start_now_if == ()


def test_a_change_for_which_others_would_come_to_its_places_is_not_offered() -> None:
    """j1 and j2 are gangs that are promised starts one after the other; as a single task j1 would
    be due later, and j2 be promised both nodes at the start that was j1's."""
    line = [
        job(name, count=2, gpu_milli=4000, queued_at=0.0, due=due, max_runtime_s=100)
        for name, due in (("j1", -10.0), ("j2", -5.0))
    ]
    policy = Policy(order="fifo", small_promises=0)
    world = snapshot([node("a", 4), node("b", 4)], line, [gang("r", {"a": range(4)}, NOW + 50)])
    made = plan(world, policy)
    assert [promise.start for promise in made.promises] == [NOW + 50, NOW + 150]
    single = replace(line[0], request=replace(line[0].request, count=1, min_count=1))
    assert not plan(replace(world, pending=(single, line[1])), policy).starts
    offered = why(made, "j1").would_start_now_if
    assert not [one for one in offered if one["change"].get("tasks", {}).get("count") == 1]


@pytest.mark.parametrize("wider", [False, True])
def test_all_gpus_of_a_pool_are_told_whatever_else_was_asked(wider: bool) -> None:
    """A wider gang makes the planner look at more of the nodes that may come."""
    line = [job("j1", gpu_types=("t4",)), *([job("j2", count=30, gpu_milli=8000)] if wider else [])]
    made = plan(snapshot([node("a")], line, pools=[pool("pool", 1, max_nodes=6)]))
    assert why(made, "j1").reasons[0].facts["total"] == 48


def test_a_full_pool_at_its_maximum() -> None:
    full = [gang("r", {"a": range(8)})]
    made = plan(snapshot([node("a")], [job("j1")], full, pools=[pool("pool", 1, autoscale=True)]))
    assert codes(made, "j1") == ["insufficient_gpus", "pool_at_max"]


def test_a_dry_run_explains_one_job_alone_and_fully() -> None:
    line = [job(f"j{number}", gpu_milli=8000) for number in range(30)]
    policy = replace(EASY, estimates=2, counterfactuals=0, focus="j29")
    (only,) = plan(snapshot(TWO, line, HALF), policy).waiting
    assert (only.job_id, only.position) == ("j29", 30)
    assert only.estimated_start is not None
    assert only.would_start_now_if


#: A node that is full of tasks which take nothing of it, and one that is not.
FULL, FREE = node("a", live_tasks=MAX_TASKS_PER_NODE), node("b")


def test_tasks_that_take_nothing_are_bounded_too() -> None:
    array = job("j1", gpu_milli=0, elements=3000)
    made = plan(snapshot([node("c", live_tasks=500), FREE, FULL], [array]))
    assert Counter(place for start in made.starts for place in _nodes(start)) == {
        "c": MAX_TASKS_PER_NODE - 500,
        "b": MAX_TASKS_PER_NODE,
    }
    (reason,) = why(made, "j1").reasons
    assert reason.code == "host_resources"
    assert reason.detail == (
        "No GPU is asked for, but the room for tasks (at most 512) of one node does not suffice."
    )


def test_shares_of_a_gpu_on_a_node_full_of_tasks() -> None:
    made = plan(snapshot([FULL], [job("j1", gpu_milli=1)]))
    assert codes(made, "j1") == ["host_resources"]
    assert "room for tasks (at most 512)" in why(made, "j1").reasons[0].detail
    assert plan(snapshot([FULL, FREE], [job("j1", gpu_milli=1)])).starts
    crowded = node("a", live_tasks=MAX_TASKS_PER_NODE, used_vcpus=60)
    made = plan(snapshot([crowded], [job("j1", vcpus=8), job("j2", gpu_milli=9000)]))
    assert codes(made, "j1") == ["host_resources"]
    assert "the CPUs, the memory or the room" in why(made, "j1").reasons[0].detail


def test_a_gang_of_more_tasks_than_its_nodes_may_have() -> None:
    most = 2 * MAX_TASKS_PER_NODE
    made = plan(snapshot([FREE, node("c")], [job("j1", count=most, gpu_milli=0)]))
    assert len(made.starts) == 1
    made = plan(snapshot([FREE, node("c")], [job("j1", count=most + 1, gpu_milli=0)]))
    assert codes(made, "j1") == ["impossible", "host_resources"]
    assert why(made, "j1").reasons[0].detail == (
        "Needs room for 1025 task(s) at once; the queue's pools hold 1024 of such a request even "
        "when idle."
    )


def _nodes(start: Start) -> list[str]:
    return [task.node_id for task in start.tasks]
