# SPDX-License-Identifier: Apache-2.0
"""Pools grow, wait for quota or room, shrink by idle time, and never lose a node with tasks."""

from __future__ import annotations

from collections.abc import Callable

from conductor_world import OWNER, World


def test_an_autoscaled_pool_grows_to_what_is_wanted_and_shrinks_when_idle(world: World) -> None:
    pool = world.pool(nodes=0, autoscale=True, idle_timeout_s=300, max_nodes=4)
    world.step(2)
    assert world.fresh_pool(pool).status == "active" and world.nodes(pool) == []
    world.real_store.write(lambda uow: uow.pools.change(pool.id, {"wanted_nodes": 3}))
    nodes = world.settled(world.fresh_pool(pool))
    job = world.submit(max_runtime_s=None)
    attempt = world.start(job, nodes[:1])
    world.report(attempt)
    world.step(1, 100)
    world.renew(*nodes)
    assert len(world.nodes(pool)) == 3
    for _ in range(4):
        world.step(1, 60)
        world.renew(*world.nodes(pool))
    world.step(2)
    (left,) = world.nodes(pool)
    assert left.id == nodes[0].id
    world.end(attempt)
    for _ in range(6):
        world.step(1, 60)
        world.renew(*world.nodes(pool))
    world.step(2)
    assert world.nodes(pool) == [] and world.fresh_pool(pool).size == 0
    assert world.cloud.find_nodes() == []


def test_a_pool_takes_what_quota_allows_and_says_what_it_waits_for(world: World) -> None:
    world.real_store.write(lambda uow: uow.quotas.set_limits(OWNER, {"gpus": 100000, "nodes": 2}))
    pool = world.pool(nodes=3)
    for _ in range(4):
        world.step()
        world.register()
    assert len(world.nodes(pool, "ready")) == 2
    waits = world.fresh_pool(pool)
    assert waits.status == "creating" and waits.waiting is not None
    assert (waits.waiting["code"], waits.waiting["limit"]) == ("project_quota", "nodes")
    world.check()  # what was refused has taken nothing
    world.real_store.write(lambda uow: uow.quotas.set_limits(OWNER, {"nodes": None}))
    world.settled(pool)
    assert (world.fresh_pool(pool).status, world.fresh_pool(pool).waiting) == ("active", None)


def test_a_pool_without_room_stays_creating_and_says_so(
    make_world: Callable[..., World],
) -> None:
    world = make_world(simulated__hosts=1)
    pool = world.pool(nodes=3, gpus=4)
    for _ in range(4):
        world.step()
        world.register()
    waits = world.fresh_pool(pool)
    assert waits.status == "creating" and waits.waiting is not None
    assert (waits.waiting["code"], waits.waiting["nodes"]) == ("insufficient_gpus", 1)


def test_a_pool_made_smaller_keeps_nodes_with_tasks(world: World) -> None:
    pool = world.pool(nodes=3, min_nodes=0)
    nodes = world.settled(pool)
    world.report(world.start(world.submit(), nodes[1:2]))
    world.real_store.write(lambda uow: uow.pools.change(pool.id, {"target_nodes": 1}))
    world.step(3)
    assert [node.id for node in world.nodes(pool)] == [nodes[1].id]
    world.real_store.write(lambda uow: uow.pools.change(pool.id, {"target_nodes": 0}))
    world.step(3)
    assert [node.id for node in world.nodes(pool)] == [nodes[1].id]


def test_work_on_a_deleted_pool_is_stopped_and_put_in_line_again(world: World) -> None:
    pool = world.pool()
    nodes = world.settled(pool)
    job = world.submit()
    attempt = world.start(job, nodes)
    world.report(attempt)
    world.step()
    world.real_store.write(lambda uow: uow.pools.change(pool.id, {"status": "deleting"}))
    world.step(3)
    (node,) = world.nodes(pool)
    assert (node.status, node.status_reason) == ("draining", "pool_deleted")
    assert world.attempts(job)[0].status == "stopping" and world.held_milli() == 1000
    world.end(attempt, exit_code=None, signal=15)
    world.step(4)
    assert world.attempts(job)[0].outcome == "preempted" and world.job(job).status == "queued"
    assert world.fresh_pool(pool).status == "deleted" and world.held_milli() == 0


def test_tasks_of_a_deleted_pool_count_until_their_server_is_gone(world: World) -> None:
    pool = world.pool()
    nodes = world.settled(pool)
    job = world.submit(grace_period_s=86_400)
    world.report(world.start(job, nodes))
    world.step()

    def refuse(server_id: str) -> None:
        """A cloud that accepts the call and takes its time."""

    real, world.cloud.delete_node = world.cloud.delete_node, refuse  # type: ignore[method-assign]
    world.real_store.write(lambda uow: uow.pools.change(pool.id, {"status": "deleting"}))
    for _ in range(61):  # ten minutes are enough for any farewell
        world.renew(*world.nodes(pool))
        world.step(1, 10)
    assert world.nodes(pool)[0].status == "deleting"
    assert world.held_milli() == 1000 and world.job(job).status == "running"
    world.cloud.delete_node = real  # type: ignore[method-assign]
    world.step(3)
    assert world.held_milli() == 0 and world.job(job).status == "queued"
    assert world.fresh_pool(pool).status == "deleted"


def test_a_host_to_be_emptied_drains_its_nodes(world: World) -> None:
    pool = world.pool(nodes=1)
    (node,) = world.settled(pool)
    attempt = world.start(world.submit(), [node])
    world.real_store.write(lambda uow: uow.hosts.change(str(node.host_id), {"status": "draining"}))
    world.step()
    assert world.nodes(pool)[0].status == "draining"
    world.end(attempt)
    world.step(2)
    assert world.nodes(pool)[0].status == "cordoned"
