# SPDX-License-Identifier: Apache-2.0
"""Nodes come, break, are replaced and go; nothing of them stays behind."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from conductor_world import World

from gpuservice.conductor.nodes import Nodes
from gpuservice.domain.ports import CloudNode
from gpuservice.domain.ports_store import Where


def test_a_pool_gets_its_nodes_on_devices_of_their_own(world: World) -> None:
    pool = world.pool(nodes=3)
    nodes = world.settled(pool)
    assert world.fresh_pool(pool).status == "active"
    devices = world.real_store.read(lambda uow: uow.devices.find(Where("node_id", "notnull")))
    assert len(devices) == 12
    for node in nodes:
        mine = [one for one in devices if one.node_id == node.id]
        assert {one.host_id for one in mine} == {node.host_id}
        (server,) = world.cloud.find_nodes([node.id])
        assert (node.server_id, node.address) == (server.server_id, server.address)
    usage = world.real_store.read(lambda uow: uow.quotas.usage("operators"))
    assert (usage["nodes"], usage["gpus"]) == (3, 12000)


def test_the_user_data_has_a_token_whose_hash_alone_is_kept(world: World) -> None:
    pool = world.pool()
    world.step(3)
    (node,) = world.nodes(pool)
    (server,) = world.cloud.find_nodes([node.id])
    user_data = json.loads(world.cloud.state.user_data_path(server.server_id).read_text())
    assert user_data["node_id"] == node.id
    assert node.bootstrap_hash == hashlib.sha256(user_data["bootstrap"].encode()).hexdigest()
    assert user_data["bootstrap"] not in repr(node)


def test_of_two_servers_of_a_node_the_oldest_stays_and_its_token_counts(world: World) -> None:
    world.cloud.state.set_control(build_delay_s=1000)
    pool = world.pool()
    world.step(2)
    (node,) = world.nodes(pool)
    (first,) = world.cloud.find_nodes([node.id])
    user_data = world.cloud.state.user_data_path(first.server_id).read_text()
    # For longer than the cloud takes to settle it is not to be seen: a second one is made.
    folder, hidden = world.cloud.state.servers_dir / first.server_id, world.cloud.state.root / "x"
    folder.rename(hidden)
    world.step(3)
    assert world.cloud.created == 2
    hidden.rename(folder)
    world.cloud.state.save_server(
        {**(world.cloud.state.server(first.server_id) or {}), "active_at": 0}
    )
    world.step(2)
    (kept,) = world.cloud.find_nodes([node.id])
    (node,) = world.nodes(pool)
    assert kept.server_id == node.server_id == first.server_id
    token = json.loads(user_data)["bootstrap"]
    assert node.bootstrap_hash == hashlib.sha256(token.encode()).hexdigest()


def test_a_second_server_that_comes_late_goes(world: World) -> None:
    pool = world.pool()
    (node,) = world.settled(pool)
    (server,) = world.cloud.state.servers()
    for created in ("2000-01-01T00:00:00+00:00", "2100-01-01T00:00:00+00:00"):
        world.cloud.state.save_server({**server, "id": f"late-{created[:4]}", "created": created})
    world.step(1)
    assert [one.server_id for one in world.cloud.find_nodes()] == [node.server_id]


def test_a_crash_after_the_intent_waits_before_the_next_create(world: World) -> None:
    pool = world.pool()
    world.step(1, 0.1)
    (node,) = world.nodes(pool)
    # As after a crash between intent and create.
    world.real_store.write(
        lambda uow: uow.nodes.change(
            node.id, {"status": "building", "intent_at": world.clock.now(), "host_id": node.host_id}
        )
    )
    for server in world.cloud.find_nodes([node.id]):
        world.cloud.delete_node(server.server_id)
    before = world.cloud.created
    world.step(1, 0.5)
    assert world.cloud.created == before
    world.step(1, 3)
    assert world.cloud.created == before + 1


def test_failed_builds_are_tried_again_and_then_stay_in_error(world: World) -> None:
    world.cloud.state.set_control(fail_next_builds=1)
    pool = world.pool()
    world.step(3, 6)
    assert world.nodes(pool)[0].build_attempts == 1
    for _ in range(10):
        world.step(1, 6)
        world.register()
    (node,) = world.nodes(pool)
    assert (node.status, node.build_attempts, node.fault) == ("ready", 0, None)

    world.cloud.state.set_control(fail_next_builds=100)
    other = world.pool()
    world.step(30, 6)
    (node,) = world.nodes(other)
    assert (node.status, node.build_attempts) == ("error", 3)
    assert node.fault is not None and node.fault["class"] == "capacity"
    assert world.fresh_pool(other).status == "error"
    assert world.cloud.find_nodes([node.id]) == []


def test_a_build_that_takes_too_long_has_failed(make_world: Callable[..., World]) -> None:
    world = make_world(conductor__build_timeout_s=60)
    world.cloud.state.set_control(build_delay_s=100000)
    pool = world.pool()
    world.step(3)
    world.step(1, 70)
    (node,) = world.nodes(pool)
    assert node.build_attempts == 1 and node.fault is not None


def test_a_guest_that_registers_early_gets_its_address_all_the_same(world: World) -> None:
    pool = world.pool()
    while not world.cloud.created:
        world.step(1)
    (node,) = world.nodes(pool)
    assert node.status == "building"
    world.real_store.write(lambda uow: uow.nodes.change(node.id, {"status": "checking"}))
    world.step(2)
    (node,) = world.nodes(pool)
    assert node.status == "ready" and node.address is not None and node.server_id is not None


def test_a_guest_that_came_back_to_a_server_that_is_gone_is_built_anew(world: World) -> None:
    pool = world.pool()
    (node,) = world.settled(pool)
    # Repair has asked for the end of its server when its guest registers once more.
    world.cloud.delete_node(str(node.server_id))
    world.real_store.write(lambda uow: uow.nodes.change(node.id, {"status": "checking"}))
    world.step(1)
    assert world.nodes(pool)[0].status == "repairing"
    (again,) = world.settled(pool)
    assert again.server_id not in (None, node.server_id)


def test_a_server_that_never_shows_up_is_a_failed_build(make_world: Callable[..., World]) -> None:
    world = make_world(conductor__build_timeout_s=60)
    pool = world.pool()
    world.cloud.find_nodes = lambda node_ids=None: []  # type: ignore[method-assign]
    world.step(3)
    assert world.nodes(pool)[0].build_attempts == 0
    world.step(1, 70)
    (node,) = world.nodes(pool)
    assert node.build_attempts == 1 and node.fault is not None


def test_a_guest_that_comes_back_during_its_repair_keeps_its_place(world: World) -> None:
    pool = world.pool(gpus=8)
    (node,) = world.settled(pool)
    devices = world.real_store.read(lambda uow: uow.devices.find(Where("node_id", "eq", node.id)))
    # Its device is sick, so that a repair would move it to another host.
    world.real_store.write(lambda uow: uow.devices.change(devices[0].id, {"health": "quarantined"}))
    world.real_store.write(lambda uow: uow.nodes.change(node.id, {"status": "repairing"}))
    asked = world.cloud.find_nodes

    def back_meanwhile(node_ids: Any = None) -> list[CloudNode]:
        world.real_store.write(lambda uow: uow.nodes.change(node.id, {"status": "checking"}))
        world.cloud.find_nodes = asked  # type: ignore[method-assign]
        return asked(node_ids)

    nodes = Nodes(world.conductor._deps)
    world.cloud.find_nodes = back_meanwhile  # type: ignore[method-assign]
    nodes.step()
    nodes.close()
    held = world.real_store.read(lambda uow: uow.devices.find(Where("node_id", "eq", node.id)))
    assert {one.id for one in held} == {one.id for one in devices}
    assert world.nodes(pool)[0].status == "checking"


def test_an_unhealthy_device_keeps_its_node_from_serving(world: World) -> None:
    pool = world.pool(gpus=8)
    world.step(3)
    (node,) = world.nodes(pool)
    (device, *_) = world.real_store.read(
        lambda uow: uow.devices.find(Where("node_id", "eq", node.id))
    )
    world.real_store.write(lambda uow: uow.devices.change(device.id, {"health": "quarantined"}))
    world.register()
    world.step(1)
    (node,) = world.nodes(pool)
    assert node.status == "error" and node.fault is not None
    assert node.fault["class"] == "gpu_failure"


def test_a_deleted_pool_leaves_nothing_behind(world: World) -> None:
    pool = world.pool(nodes=2)
    world.settled(pool)
    world.real_store.write(lambda uow: uow.pools.change(pool.id, {"status": "deleting"}))
    world.step(4)
    assert world.fresh_pool(pool).status == "deleted"
    assert world.nodes(pool) == [] and world.cloud.find_nodes() == []
    usage = world.real_store.read(lambda uow: uow.quotas.usage("operators"))
    assert set(usage.values()) == {0}
    assert world.real_store.read(lambda uow: uow.devices.find(Where("node_id", "notnull"))) == []


def test_a_server_that_comes_after_its_node_went_is_deleted(world: World) -> None:
    pool = world.pool()
    world.settled(pool)
    server = world.cloud.state.servers()[0]
    user_data = world.cloud.state.user_data_path(server["id"]).read_text()
    world.real_store.write(lambda uow: uow.pools.change(pool.id, {"status": "deleting"}))
    world.step(3)
    world.cloud.state.save_server({**server, "id": "late"}, user_data)
    world.step(1)
    assert world.cloud.find_nodes() == []


def test_servers_of_others_are_left_alone(world: World) -> None:
    world.cloud.state.save_server(
        {
            "id": "theirs",
            "node_id": "unknown",
            "name": "x",
            "host": "gpu-00",
            "devices": [],
            "address": "127.1.0.1",
            "created": "2026-01-01T00:00:00+00:00",
            "active_at": 0,
            "fault": None,
        },
        "{}",
    )
    world.step(2)
    assert [one.server_id for one in world.cloud.find_nodes()] == ["theirs"]


def test_a_node_of_a_dead_host_is_built_elsewhere(world: World) -> None:
    pool = world.pool()
    (node,) = world.settled(pool)
    host = world.real_store.read(lambda uow: uow.hosts.get(str(node.host_id)))
    assert host is not None
    world.cloud.state.set_control(lost_hosts=[host.name])
    for _ in range(60):
        world.step(1, 10)
        world.register()
        (fresh,) = world.nodes(pool)
        if fresh.status == "ready" and fresh.host_id != node.host_id:
            break
    (fresh,) = world.nodes(pool)
    assert fresh.status == "ready" and fresh.host_id != node.host_id
    assert fresh.epoch == node.epoch + 1
    devices = world.real_store.read(lambda uow: uow.devices.find(Where("node_id", "notnull")))
    assert {one.host_id for one in devices} == {fresh.host_id}


def test_a_device_that_its_agent_calls_bad_keeps_its_node_from_serving(world: World) -> None:
    pool = world.pool()
    world.step(3)
    (node,) = world.nodes(pool)
    world.register()
    devices = world.real_store.read(lambda uow: uow.devices.find(Where("node_id", "eq", node.id)))
    bad = {devices[0].address: "too hot"}
    world.real_store.write(lambda uow: uow.nodes.change(node.id, {"device_faults": bad}))
    world.step()
    (node,) = world.nodes(pool)
    assert node.status == "error" and (node.fault or {})["class"] == "gpu_failure"


def test_the_cloud_does_not_call_a_device_well_that_its_node_calls_bad(world: World) -> None:
    pool = world.pool()
    world.settled(pool)
    device, *_ = world.real_store.read(lambda uow: uow.devices.find(Where("node_id", "notnull")))
    bad = {"health": "unhealthy", "health_source": "node", "health_reason": "too hot"}
    world.real_store.write(lambda uow: uow.devices.change(device.id, bad))
    world.step(3)
    kept = world.real_store.read(lambda uow: uow.devices.get(device.id))
    assert kept is not None and (kept.health, kept.health_reason) == ("unhealthy", "too hot")
    retest = {"health": "unknown", "health_source": None}
    world.real_store.write(lambda uow: uow.devices.change(device.id, retest))
    world.step()
    kept = world.real_store.read(lambda uow: uow.devices.get(device.id))
    assert kept is not None and (kept.health, kept.health_source) == ("healthy", None)


def test_a_node_is_repaired_off_the_devices_that_its_agent_called_bad(world: World) -> None:
    pool = world.pool()
    (node,) = world.settled(pool)
    devices = world.real_store.read(lambda uow: uow.devices.find(Where("node_id", "eq", node.id)))
    bad = {devices[0].address: "too hot"}
    repair = {"device_faults": bad, "status": "repairing"}
    world.real_store.write(lambda uow: uow.nodes.change(node.id, repair))
    (again,) = world.settled(pool)
    now = world.real_store.read(lambda uow: uow.devices.find(Where("node_id", "eq", node.id)))
    assert devices[0].id not in {one.id for one in now}
    assert again.device_faults is None
