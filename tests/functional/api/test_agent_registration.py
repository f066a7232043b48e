# SPDX-License-Identifier: Apache-2.0
"""Registration of nodes: token and secret, devices, epochs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from api_world import Cluster, World, error_of
from fake_node import FakeNode, bootable

from gpuservice.domain.ports_store import Page, Where


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


def test_another_process_within_the_lease(node):
    node.register()
    assert node.sync().status_code == 200
    answer = node.sync(instance="00000000-0000-4000-8000-00000000000f")
    assert error_of(answer)["code"] == "gpu.agent.instance_conflict"


def test_a_restarted_agent_takes_over(node):
    node.register()
    node.sync()
    long_ago = datetime.now(UTC) - timedelta(seconds=40)
    node.world.store.write(
        lambda uow: uow.nodes.change(node.node.id, {"last_renewal_at": long_ago})
    )
    first, node.instance = node.instance, "00000000-0000-4000-8000-00000000000f"
    assert node.sync().status_code == 200
    assert stored(node).instance == node.instance
    node.instance = first
    assert error_of(node.sync())["code"] == "gpu.agent.instance_conflict"


@pytest.mark.parametrize("header", ["", "Bearer ", "Bearer 00", "Basic abc"])
def test_nobody(node, header):
    node.register()
    body = {"epoch": 1, "revision": 0, "instance": "i", "tasks": []}
    answer = node.client.post("/agent/sync", body, Authorization=header)
    assert answer.status_code == 401
