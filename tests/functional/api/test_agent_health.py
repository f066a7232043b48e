# SPDX-License-Identifier: Apache-2.0
"""Agents report bad devices: what it means for the device, the node, and the jobs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from api_world import Client, World, error_of
from fake_node import FakeNode, attempt_of, bootable, commit, conduct, place, ready, report

from gpuservice.domain.health import HOLD_S
from gpuservice.scheduler.collect import Collector

HOT = "it is too hot"


def word(node: FakeNode, *bad: int, reason: str = HOT) -> list[dict[str, Any]]:
    """What the agent says of all its devices; ``bad`` are numbers of those that are."""
    return [
        {
            "address": one["address"],
            "healthy": number not in bad,
            "reason": reason if number in bad else None,
        }
        for number, one in enumerate(node.devices)
    ]


def devices(admin: Client, node: FakeNode) -> list[dict[str, Any]]:
    found = admin.get(f"/devices?node_id={node.node.id}").get_json()["devices"]
    return sorted(found, key=lambda one: one["address"])


def actions(admin: Client, target: str) -> list[tuple[str, str | None]]:
    found = admin.get(f"/events?target_id={target}&sort=at:asc&all_projects=true").get_json()[
        "events"
    ]
    return [(one["action"], one["reason"]) for one in found]


def planned_on(world: World, node: FakeNode) -> list[bool]:
    """Whether the planner may use each device of a node."""
    state = world.store.read(Collector({}).collect).snapshot
    (found,) = [one for one in state.nodes if one.id == node.node.id]
    order = {one.id: one.ordinal for one in world.store.read(lambda uow: uow.devices.find())}
    return [one.healthy for one in sorted(found.devices, key=lambda one: order[one.id])]


def let_pass(world: World, node: FakeNode, seconds: float) -> None:
    """Move the last change of the node's word into the past."""
    since = world.clock.now() - timedelta(seconds=seconds)
    world.store.write(lambda uow: uow.nodes.change(node.node.id, {"device_faults_at": since}))


def submit(client: Client) -> str:
    return client.post("/jobs", {"job": {"name": "j", "command": ["true"]}}).get_json()["job"]["id"]


def test_a_bad_device_takes_no_new_work_until_its_node_takes_that_back(
    world, cluster, node, admin, ada
):
    node.orders(devices=word(node))
    assert planned_on(world, node) == [True] * 4
    node.orders(devices=word(node, 0))
    first, *others = devices(admin, node)
    assert (first["health"], first["health_reason"], first["health_source"]) == (
        "unhealthy",
        HOT,
        "node",
    )
    assert {one["health"] for one in others} == {"healthy"}
    assert planned_on(world, node) == [False, True, True, True]
    job = submit(ada)
    assert commit(world, cluster, job, cluster.nodes[:1], gpus=1).overtaken == [job]
    assert actions(admin, first["id"]) == [("device.unhealthy", "gpu_failure")]
    assert ("node.device_fault", "gpu_failure") in actions(admin, node.node.id)
    let_pass(world, node, HOLD_S)
    node.orders(devices=word(node))
    assert devices(admin, node)[0]["health"] == "healthy"
    assert planned_on(world, node) == [True] * 4
    assert actions(admin, first["id"])[-1] == ("device.healthy", None)
    assert actions(admin, node.node.id)[-1] == ("node.device_recovered", None)
    place(world, cluster, job, cluster.nodes[:1], gpus=1)


def test_saying_the_same_again_costs_nothing(world, node, admin):
    node.orders(devices=word(node, 1))
    with world.statements() as seen:
        node.orders(devices=word(node, 1))
    assert len([one for one in seen if not one.startswith(("PRAGMA", "BEGIN"))]) == 1
    assert len(actions(admin, devices(admin, node)[1]["id"])) == 1


def test_a_node_of_many_words_is_heard_once_a_minute_but_for_further_faults(world, node, admin):
    node.orders(devices=word(node, 1))
    let_pass(world, node, HOLD_S / 2)
    for number in range(3):
        node.orders(devices=word(node, 1, reason=f"another reason: {number}"))
        node.orders(devices=word(node))
    assert devices(admin, node)[1]["health_reason"] == HOT
    assert len(actions(admin, devices(admin, node)[1]["id"])) == 1
    node.orders(devices=word(node, 2))
    assert planned_on(world, node) == [True, False, False, True]
    let_pass(world, node, HOLD_S)
    node.orders(devices=word(node, 2, reason="it burns"))
    assert planned_on(world, node) == [True, True, False, True]
    assert devices(admin, node)[2]["health_reason"] == "it burns"


@pytest.mark.parametrize("values", [{"key_name": "mine"}, {"image": "mine"}])
def test_where_a_tenant_is_root_only_the_node_is_marked(world, cluster, node, admin, values):
    world.store.write(lambda uow: uow.pools.change(cluster.pool.id, values))
    node.orders(devices=word(node, 0))
    assert {one["health"] for one in devices(admin, node)} == {"healthy"}
    assert planned_on(world, node) == [False, True, True, True]
    shown = admin.get(f"/nodes/{node.node.id}").get_json()["node"]["devices"]
    assert [one["health"] for one in shown] == ["unhealthy", "healthy", "healthy", "healthy"]
    assert shown[0]["health_reason"] == HOT
    assert ("node.device_fault", "gpu_failure") in actions(admin, node.node.id)
    let_pass(world, node, HOLD_S)
    node.orders(devices=word(node))
    assert planned_on(world, node) == [True] * 4


def test_the_operators_word_stands_and_a_release_is_looked_at_again(world, node, admin):
    node.orders(devices=word(node, 0))
    ident = devices(admin, node)[0]["id"]
    path = f"/devices/{ident}/action"
    assert admin.post(path, {"quarantine": {"reason": "smells"}}).status_code == 200
    node.orders(devices=word(node))
    assert devices(admin, node)[0]["health"] == "quarantined"
    assert admin.post(path, {"release": {}}).status_code == 200
    node.orders(devices=word(node))
    assert devices(admin, node)[0]["health"] == "healthy"
    node.orders(devices=word(node, 0))
    assert admin.post(path, {"release": {}}).status_code == 200
    assert devices(admin, node)[0]["health"] == "healthy"
    node.orders(devices=word(node, 0))  # it is not mended
    assert devices(admin, node)[0]["health"] == "unhealthy"


def test_devices_of_others_and_of_nobody_are_not_its_business(world, cluster, node, admin):
    other = ready(world, cluster.nodes[1])
    foreign = [{"address": "0000:99:00.0", "healthy": False, "reason": HOT}]
    node.orders(devices=foreign)
    assert {one["health"] for one in devices(admin, node)} == {"healthy"}
    assert not world.store.read(lambda uow: uow.nodes.get(node.node.id)).device_faults
    assert {one["health"] for one in devices(admin, other)} == {"healthy"}


def test_a_fenced_node_says_nothing_of_devices(world, node, admin):
    node.orders()
    world.store.write(lambda uow: uow.nodes.change(node.node.id, {"epoch": 2}))
    assert error_of(node.sync(devices=word(node, 0)))["code"] == "gpu.node.fenced"
    assert {one["health"] for one in devices(admin, node)} == {"healthy"}


def test_bad_from_the_beginning(world, cluster, admin):
    late = bootable(world, cluster.nodes[0])
    assert late.register(health=word(late, 2)).status_code == 200
    assert devices(admin, late)[2]["health"] == "unhealthy"


def test_a_task_that_fails_on_a_bad_device_is_the_devices_failure(world, cluster, node, admin, ada):
    job = submit(ada)
    place(world, cluster, job, cluster.nodes[:1])
    (order,) = node.orders()
    used = [one["address"] for one in node.devices].index(order["devices"][0]["address"])
    node.orders(report(order["task_id"], "running"), devices=word(node, used))
    conduct(world)
    node.orders(report(order["task_id"], "gone", exit_code=1), devices=word(node, used))
    conduct(world)
    attempt = attempt_of(world, job)
    assert attempt.failure_class == "gpu_failure"
    assert HOT in attempt.evidence["message"]
    assert ada.get(f"/jobs/{job}").get_json()["job"]["status"] == "queued"  # tried again


def test_a_task_that_fails_beside_a_bad_device_has_failed_itself(world, cluster, node, ada):
    job = submit(ada)
    place(world, cluster, job, cluster.nodes[:1])
    (order,) = node.orders()
    used = [one["address"] for one in node.devices].index(order["devices"][0]["address"])
    bad = word(node, (used + 1) % 4)
    node.orders(report(order["task_id"], "gone", exit_code=1), devices=bad)
    conduct(world)
    assert attempt_of(world, job).failure_class == "user_code"


@pytest.mark.parametrize(
    "wrong",
    [
        {"healthy": False},
        {"address": 5, "healthy": False},
        {"address": "a", "healthy": "no"},
        {"address": "a", "healthy": False, "reason": "\0"},
        {"address": "a", "healthy": False, "reason": "x" * 2000},
    ],
)
def test_reports_that_are_none(node, wrong):
    answer = node.sync(devices=[wrong])
    assert answer.status_code == 400
    assert error_of(answer)["source"]["pointer"].startswith("/devices/0")
