# SPDX-License-Identifier: Apache-2.0
"""Registration of nodes: token and secret, devices, epochs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from api_world import Cluster, World, error_of
from fake_node import TOKEN, FakeNode, bootable

from gpuservice.domain.ports_store import Page, Where
from gpuservice.services.agent_nodes import AgentNodes


@pytest.fixture
def node(world: World, cluster: Cluster) -> FakeNode:
    return bootable(world, cluster.nodes[0])


def stored(node: FakeNode):
    return node.world.store.read(lambda uow: uow.nodes.get(node.node.id))


def events(node: FakeNode) -> list[str]:
    where = (Where("target_id", "eq", node.node.id),)
    found = node.world.store.read(lambda uow: uow.events.page(Page(where, (("seq", "asc"),))))
    return [one.action for one in found]


def test_first_registration(node):
    answer = node.register()
    assert answer.status_code == 200, answer.text
    body = answer.get_json()
    assert body["node_id"] == node.node.id
    assert body["epoch"] == 1
    assert body["interval_s"] == 5.0
    row = stored(node)
    assert row.status == "checking"
    assert row.capabilities["own_uid"] is True
    assert node.secret not in repr(row)
    assert row.secret_hash not in (None, node.secret)
    assert events(node) == ["node.registered"]


def test_a_lost_answer_is_no_harm(node):
    assert node.register().status_code == 200
    assert node.register().status_code == 200
    assert events(node) == ["node.registered"]


def test_the_token_is_too_old(world, cluster):
    late = bootable(
        world, cluster.nodes[0], bootstrap_expires_at=datetime.now(UTC) - timedelta(seconds=1)
    )
    assert error_of(late.register())["code"] == "gpu.agent.bootstrap_invalid"
    assert late.register().status_code == 401


def test_a_registered_node_outlives_its_token(node):
    node.register()
    node.world.store.write(
        lambda uow: uow.nodes.change(
            node.node.id, {"bootstrap_expires_at": datetime.now(UTC) - timedelta(days=1)}
        )
    )
    assert node.register().status_code == 200


def test_an_unknown_token(node):
    answer = node.register(bootstrap="x" * 40)
    assert answer.status_code == 401
    assert stored(node).status == "configuring"


def test_faster_than_the_record_of_its_building(world, cluster):
    early = bootable(world, cluster.nodes[0], status="building")
    answer = early.register()
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "1"
    assert stored(early).secret_hash is None
    # The conductor notes the build; the same guest is taken on the next time it asks.
    world.store.write(lambda uow: uow.nodes.change(early.node.id, {"status": "configuring"}))
    assert early.register().status_code == 200
    assert stored(early).status == "checking"


def test_a_second_secret_quarantines_the_node(node):
    node.register()
    answer = node.register(secret="0" * 64)
    assert error_of(answer)["code"] == "gpu.agent.secret_conflict"
    assert answer.status_code == 409
    assert stored(node).status == "error"
    assert events(node)[-1] == "node.fault"


@pytest.mark.parametrize("change", ["fewer", "another", "twice", "vendor"])
def test_devices_must_be_those_of_the_cloud(node, change):
    devices = [dict(one) for one in node.devices]
    if change == "fewer":
        devices.pop()
    elif change == "another":
        devices[0]["address"] = "0000:ff:00.0"
    elif change == "twice":
        devices[0] = devices[1]
    else:
        devices[0]["vendor"] = "amd"
    answer = node.register(devices=devices)
    assert error_of(answer)["code"] == "gpu.agent.devices_mismatch"
    assert stored(node).status == "error"
    assert stored(node).secret_hash is None


def test_eight_digit_pci_domains_are_the_same_devices(node):
    devices = [{**one, "address": "0000" + one["address"].upper()} for one in node.devices]
    assert node.register(devices=devices).status_code == 200


def test_a_fenced_node_registers_into_its_new_epoch(node):
    node.register()
    node.world.store.write(
        lambda uow: uow.nodes.fence(node.node.id, 1, datetime.now(UTC) + timedelta(minutes=1))
    )
    assert error_of(node.sync())["code"] == "gpu.node.fenced"
    node.world.store.write(lambda uow: uow.nodes.change(node.node.id, {"status": "error"}))
    assert node.register().get_json()["epoch"] == 2
    assert node.sync().status_code == 200
    assert stored(node).status == "error"


def test_a_deleted_node_is_nobody(node):
    node.register()
    node.world.store.write(lambda uow: uow.nodes.change(node.node.id, {"status": "deleting"}))
    assert node.sync().status_code == 401
    assert node.register().status_code == 401
    node.world.store.write(lambda uow: uow.nodes.change(node.node.id, {"status": "configuring"}))


OTHER = "00000000-0000-4000-8000-00000000000f"


def silent(node, seconds):
    """The node was last heard of so long ago."""
    then = datetime.now(UTC) - timedelta(seconds=seconds)
    node.world.store.write(lambda uow: uow.nodes.change(node.node.id, {"last_renewal_at": then}))


def test_another_process_within_the_lease(node):
    node.register()
    assert node.sync().status_code == 200
    answer = node.sync(instance="00000000-0000-4000-8000-00000000000f")
    assert error_of(answer)["code"] == "gpu.agent.instance_conflict"


def test_a_restarted_agent_takes_over(node):
    node.register()
    node.sync()
    silent(node, node.world.conf.agent.lease_s + 1)
    first, node.instance = node.instance, OTHER
    assert node.sync().status_code == 200
    assert stored(node).instance == node.instance
    node.instance = first
    assert error_of(node.sync())["code"] == "gpu.agent.instance_conflict"


def test_a_clone_gets_nothing_while_the_first_is_heard_of(node):
    """The disk of a node, copied: same token, same secret, another place."""
    node.register()
    first = node.instance
    for at in (0, node.world.conf.agent.lease_s - 2):
        silent(node, at)
        node.instance = OTHER
        error = error_of(node.register())
        assert error["code"] == "gpu.agent.instance_conflict"
        assert 0 < error["meta"]["retry_after_s"] <= node.world.conf.agent.lease_s - at
        assert error_of(node.sync())["code"] == "gpu.agent.instance_conflict"
        assert stored(node).instance == first
    node.instance = first
    assert node.sync().status_code == 200


def test_a_clone_of_a_node_without_a_lease(node):
    node.register()
    node.world.store.write(lambda uow: uow.nodes.change(node.node.id, {"lease_s": None}))
    silent(node, 50)
    node.instance = OTHER
    assert error_of(node.register())["code"] == "gpu.agent.instance_conflict"
    silent(node, 61)
    assert node.register().status_code == 200


def test_in_its_place_a_restarted_agent_takes_over_at_once(node):
    node.instance = "0123456789abcdef.first"
    node.register()
    assert node.sync().status_code == 200
    node.instance = "0123456789abcdef.second"
    assert node.register().status_code == 200
    assert node.sync().status_code == 200
    node.instance = "fedcba9876543210.second"
    assert error_of(node.register())["code"] == "gpu.agent.instance_conflict"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "logs?stream=stdout&offset=0"),
        ("PUT", "artifacts/a"),
        ("PUT", "checkpoints/1/a"),
        ("GET", "checkpoint"),
    ],
)
def test_nothing_gets_around_the_fence(node, method, path):
    node.register()
    answer = node.client.raw(
        method,
        f"/v1/agent/tasks/00000000-0000-4000-8000-000000000000/{path}",
        headers={"OpenStack-GPU-Node-Epoch": None},
        **({} if method == "GET" else {"data": b"x"}),
    )
    assert error_of(answer)["status"] == 400
    assert "OpenStack-GPU-Node-Epoch" in error_of(answer)["detail"]


@pytest.mark.parametrize("header", ["", "Bearer ", "Bearer 00", "Basic abc"])
def test_nobody(node, header):
    node.register()
    body = {"epoch": 1, "revision": 0, "instance": "i", "tasks": []}
    answer = node.client.post("/agent/sync", body, Authorization=header)
    assert answer.status_code == 401


def test_a_node_that_must_start_no_task_is_in_error_with_its_reason(node):
    assert node.register(fault="no user id left").status_code == 200
    row = stored(node)
    assert (row.status, row.fault) == (
        "error",
        {"class": "platform", "message": "no user id left"},
    )
    assert node.sync().status_code == 200
    assert events(node) == ["node.fault"]


def test_a_ready_node_that_must_start_no_more_tasks_is_in_error(node):
    node.register()
    node.world.store.write(lambda uow: uow.nodes.change(node.node.id, {"status": "ready"}))
    assert node.register(fault="no user id left").status_code == 200
    assert stored(node).status == "error"
    assert node.register().status_code == 200  # well again: people decide whether it serves
    assert stored(node).status == "error"


def test_no_lease_where_the_cloud_can_power_nodes_off(world, node):
    assert node.register().get_json()["lease_s"] == 60
    nodes = AgentNodes(replace(world.services.agent_nodes._deps, power_off=True))
    body = {
        "bootstrap": TOKEN + node.node.id,
        "secret": node.secret,
        "instance": node.instance,
        "devices": node.devices,
    }
    assert nodes.register(body).lease_s is None


def test_a_node_changes_its_secret(node):
    node.register()
    old, new = node.secret, "ab" * 32
    assert node.client.post("/agent/token", {"secret": new}).status_code == 200
    assert error_of(node.sync())["code"] == "gpu.auth.required"
    assert error_of(node.client.post("/agent/token", {"secret": old}))["status"] == 401
    node.secret = new
    assert node.sync().status_code == 200
    assert node.client.post("/agent/token", {"secret": new}).status_code == 200  # a lost answer
    assert events(node) == ["node.registered", "node.change_secret"]
    assert node.register().status_code == 200  # by the new one from now on


def test_no_two_nodes_have_one_secret(world, cluster, node):
    node.register()
    other = bootable(world, cluster.nodes[1])
    other.register()
    answer = other.client.post("/agent/token", {"secret": node.secret})
    assert error_of(answer)["code"] == "gpu.agent.secret_conflict"
    assert node.sync().status_code == 200
    assert other.sync().status_code == 200
