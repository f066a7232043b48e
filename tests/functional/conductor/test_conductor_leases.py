# SPDX-License-Identifier: Apache-2.0
"""Silent nodes are given up, but never before everything of theirs has ended."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from conductor_world import World

from gpuservice.domain.errors import CloudError
from gpuservice.domain.inventory import Pool
from gpuservice.domain.liveness import FORGOTTEN_S
from gpuservice.domain.work import Attempt, Job, ServiceRecord


@pytest.fixture
def small(make_world: Callable[..., World]) -> World:
    """Leases of 10 s, 5 s of margin."""
    return make_world(agent__lease_s=10, conductor__loss_margin_s=5)


def running(world: World, grace_s: int = 86_400) -> tuple[Pool, Job, Attempt]:
    """A job that runs on the only node of a pool; the conductor was there for long."""
    pool = world.pool()
    nodes = world.settled(pool)
    job = world.submit(grace_period_s=grace_s, retry={"backoff_s": 0})
    attempt = world.start(job, nodes)
    world.report(attempt)
    for _ in range(20):
        world.renew(*world.nodes(pool))
        world.step(1, 3)
    world.renew(*world.nodes(pool))
    return pool, job, attempt


def test_a_silent_node_is_given_up_after_lease_and_margin_whatever_grace_jobs_want(
    small: World,
) -> None:
    pool, job, _ = running(small)
    (node,) = small.nodes(pool)
    for _ in range(5):
        small.step(1, 3)  # 15 s: lease 10 and margin 5 are just not over
        assert small.nodes(pool)[0].epoch == node.epoch and small.held_milli() == 1000
    small.step(1, 3)
    lost = small.nodes(pool)[0]
    assert lost.epoch == node.epoch + 1 and lost.fault is not None
    assert small.held_milli() == 0
    assert small.attempts(job)[0].outcome == "node_failure"
    assert small.job(job).status == "queued"


def test_after_its_own_absence_the_service_counts_from_its_return(small: World) -> None:
    pool, job, _ = running(small)
    (node,) = small.nodes(pool)
    small.step(1, 1000)
    for _ in range(4):
        small.step(1, 3)
    assert small.nodes(pool)[0].epoch == node.epoch
    small.renew(node)
    small.step(3, 3)
    assert small.nodes(pool)[0].status == "ready" and small.job(job).status == "running"


def test_a_new_conductor_waits_as_well(small: World) -> None:
    pool, _, _ = running(small)
    (node,) = small.nodes(pool)
    small.clock.pass_(1000)
    small.restart()
    for _ in range(4):
        small.step(1, 3)
    assert small.nodes(pool)[0].epoch == node.epoch
    for _ in range(4):
        small.step(1, 3)
    assert small.nodes(pool)[0].epoch == node.epoch + 1


def test_while_no_api_process_lives_no_node_is_given_up(small: World) -> None:
    pool, job, _ = running(small)
    (node,) = small.nodes(pool)
    small.api_lives = False
    for _ in range(200):
        small.step(1, 3)
    assert small.nodes(pool)[0].epoch == node.epoch and small.held_milli() == 1000
    small.api_lives = True
    for _ in range(4):  # 12 s after its return: lease 10 and margin 5 are not over
        small.step(1, 3)
    assert small.nodes(pool)[0].epoch == node.epoch
    small.renew(node)
    small.step(3, 3)
    assert small.nodes(pool)[0].status == "ready" and small.job(job).status == "running"


def test_a_node_that_stays_silent_after_the_apis_return_is_given_up(small: World) -> None:
    pool, job, _ = running(small)
    (node,) = small.nodes(pool)
    small.api_lives = False
    small.step(20, 3)
    small.api_lives = True
    small.step(6, 3)
    assert small.nodes(pool)[0].epoch == node.epoch + 1
    assert small.job(job).status == "queued"


def test_a_dead_api_is_noticed_before_its_heartbeats_are_missed(
    make_world: Callable[..., World],
) -> None:
    """Lease and margin may be shorter than what it takes to miss heartbeats."""
    world = make_world(agent__lease_s=4, conductor__loss_margin_s=1)
    pool, _, _ = running(world, grace_s=0)
    (node,) = world.nodes(pool)
    world.api_lives = False
    for _ in range(60):
        world.step(1, 1)
        assert world.nodes(pool)[0].epoch == node.epoch


def test_where_power_can_be_cut_it_is_before_anything_counts_as_ended(
    make_world: Callable[..., World],
) -> None:
    world = make_world(agent__lease_s=10, conductor__loss_margin_s=5, simulated__power_off=True)
    pool, job, _ = running(world)
    (node,) = world.nodes(pool)
    refused: list[str] = []

    def refuse(server_id: str) -> bool:
        refused.append(server_id)
        raise CloudError("The cloud does not answer.")

    real, world.cloud.power_off = world.cloud.power_off, refuse  # type: ignore[method-assign]
    for _ in range(15):
        world.step(1, 3)
    assert refused and world.nodes(pool)[0].epoch == node.epoch and world.held_milli() == 1000
    world.cloud.power_off = real  # type: ignore[method-assign]
    world.step(1, 3)
    assert world.nodes(pool)[0].epoch == node.epoch + 1 and world.held_milli() == 0
    assert world.job(job).status == "queued"


def test_a_node_without_a_lease_is_not_given_up_on_silence_alone(small: World) -> None:
    """Its tasks outlive any silence, so somebody must end them first."""
    pool, _, _ = running(small)
    (node,) = small.nodes(pool)
    small.real_store.write(lambda uow: uow.nodes.change(node.id, {"lease_s": None}))
    for _ in range(20):
        small.step(1, 3)
    assert small.nodes(pool)[0].epoch == node.epoch and small.held_milli() == 1000


def test_a_lost_node_is_repaired(small: World) -> None:
    pool, _, _ = running(small)
    for _ in range(13):
        small.step(1, 3)
    for _ in range(10):
        small.step(1, 1)
        small.register()
    small.settled(pool)
    assert small.fresh_pool(pool).status == "active"
    assert len(small.cloud.find_nodes()) == 1


def test_the_hearing_of_processes_that_were_stopped_since_counts(small: World) -> None:
    pool, _, _ = running(small)
    (node,) = small.nodes(pool)
    small.api_lives = False
    for number in range(8):  # each lives shorter than a lease, as where servers recycle workers
        small.clock.pass_(3)
        now = small.clock.now()
        small.real_store.write(
            lambda uow, now=now, number=number: uow.services.add(
                ServiceRecord(
                    id=f"worker-{number}",
                    binary="gpuservice-api",
                    host="test",
                    seen_at=now,
                    started_at=now - timedelta(seconds=3),
                    ended_at=now,
                    version="1",
                )
            )
        )
        small.conductor.step()
    assert small.nodes(pool)[0].epoch == node.epoch + 1


def test_processes_unseen_for_a_day_are_forgotten(small: World) -> None:
    small.step()
    small.api_lives = False
    small.step(1, FORGOTTEN_S - 60)
    assert small.real_store.read(lambda uow: uow.services.find())
    small.step(1, 120)
    assert not small.real_store.read(lambda uow: uow.services.find())
