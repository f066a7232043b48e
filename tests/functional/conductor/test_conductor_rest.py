# SPDX-License-Identifier: Apache-2.0
"""Inventory, jobs that wait in vain, and the threads of the conductor."""

from __future__ import annotations

import threading
import time

import pytest
from conductor_world import World

from gpuservice.conductor import line
from gpuservice.domain.ports_store import Where


def test_the_inventory_follows_the_cloud(world: World) -> None:
    world.step()
    hosts = world.real_store.read(lambda uow: uow.hosts.find())
    devices = world.real_store.read(lambda uow: uow.devices.find())
    assert (len(hosts), len(devices)) == (4, 32)
    assert {one.health for one in devices} == {"healthy"}
    first = devices[0]
    host = next(one for one in hosts if one.id == first.host_id)
    before = len(world.events(first.id))
    world.step(3)
    assert len(world.events(first.id)) == before  # nothing changed, nothing is written

    world.cloud.state.set_control(
        unhealthy_devices=[f"{host.name}/{first.address}"], lost_hosts=["gpu-03"]
    )
    world.step()
    (sick,) = world.real_store.read(lambda uow: uow.devices.find(Where("health", "ne", "healthy")))
    assert sick.id == first.id and sick.health_reason
    down = world.real_store.read(lambda uow: uow.hosts.find(Where("state", "eq", "down")))
    assert [one.name for one in down] == ["gpu-03"]
    world.cloud.state.set_control(unhealthy_devices=[], lost_hosts=[])
    world.step()
    assert (
        world.real_store.read(lambda uow: uow.devices.find(Where("health", "ne", "healthy"))) == []
    )


def test_what_a_person_said_of_a_device_stays(world: World) -> None:
    world.step()
    device = world.real_store.read(lambda uow: uow.devices.find())[0]
    world.real_store.write(lambda uow: uow.devices.change(device.id, {"health": "quarantined"}))
    world.step(2)
    fresh = world.real_store.read(lambda uow: uow.devices.get(device.id))
    assert fresh is not None and fresh.health == "quarantined"


def test_jobs_past_their_deadline_or_without_hope_fail(world: World) -> None:
    late, first = world.submit(), world.submit()
    second = world.submit(depends_on=[{"job": first.id, "condition": "succeeded"}])
    third = world.submit(depends_on=[{"job": second.id, "condition": "succeeded"}])
    for job in (second, third):
        world.real_store.write(
            lambda uow, one=job: uow.jobs.change(  # type: ignore[misc]
                one.id, {"waiting_code": "dependency"}
            )
        )
    world.real_store.write(lambda uow: uow.jobs.change(late.id, {"deadline_at": world.clock.now()}))
    world.step()
    assert (world.job(late).status, world.job(late).failure_class) == ("failed", "deadline")
    assert world.job(second).status == "queued"
    nodes = world.settled(world.pool())
    world.end(world.start(first, nodes), exit_code=1)
    world.step(3)
    for job in (second, third):
        assert (world.job(job).status, world.job(job).failure_class) == ("failed", "dependency")
        assert world.replayed(job) == "failed"


def test_a_long_line_of_dependencies_is_looked_at_in_parts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that wait with hope do not keep those without it from being seen."""
    monkeypatch.setattr(line, "_PART", 2)
    running, failing = world.submit(), world.submit()
    nodes = world.settled(world.pool())
    world.start(running, nodes)
    world.end(world.start(failing, nodes), exit_code=1)
    hopeful = [world.submit(depends_on=[{"job": running.id}]) for _ in range(5)]
    vain = [world.submit(depends_on=[{"job": failing.id}]) for _ in range(5)]
    world.real_store.write(
        lambda uow: uow.jobs.change_many(
            [job.id for job in (*hopeful, *vain)], {"waiting_code": "dependency"}
        )
    )
    world.renew(*nodes)
    world.step(12)
    assert {world.job(job).status for job in vain} == {"failed"}
    assert {world.job(job).status for job in hopeful} == {"queued"}


def test_two_conductors_end_each_attempt_once(world: World) -> None:
    nodes = world.settled(world.pool(nodes=4, gpus=8))
    jobs = [world.submit() for _ in range(32)]
    for at, job in enumerate(jobs):
        world.end(world.start(job, [nodes[at % 4]]))
    first = world.conductor
    world.restart()
    threads = [threading.Thread(target=one.step) for one in (first, world.conductor) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    world.step()
    for job in jobs:
        assert world.replayed(job) == "succeeded"
        ends = [one for one in world.events(job.id) if one.action == "job.succeed"]
        assert len(ends) == 1


def test_threads_do_the_work_and_end_when_told(world: World) -> None:
    pool = world.pool(nodes=2)
    world.conf.set_override("interval_s", 0.05, "conductor")
    stop = threading.Event()
    thread = threading.Thread(target=world.conductor.run, args=(stop,))
    thread.start()
    try:
        deadline = time.monotonic() + 20
        while len(world.nodes(pool, "ready")) < 2 and time.monotonic() < deadline:
            world.clock.pass_(0.5)
            world.register()
            time.sleep(0.05)
        assert len(world.nodes(pool, "ready")) == 2
    finally:
        stop.set()
        thread.join(timeout=10)
    assert not thread.is_alive()
