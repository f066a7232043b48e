# SPDX-License-Identifier: Apache-2.0
"""Devices and nodes: guarded shares and capacity, leases and fencing, and the end of tasks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from database_rows import THEN, Cluster, at, cluster, end, new_id, node, start, submit
from sqlalchemy import Engine, text

from gpuservice.db.store import DatabaseStore
from gpuservice.domain.errors import CommitConflict
from gpuservice.domain.inventory import MAX_TASKS_PER_NODE, Device, Node
from gpuservice.domain.ports_store import NodeLoad, Share, TaskEnd, UnitOfWork


@pytest.fixture
def held(store: DatabaseStore) -> Cluster:
    return store.write(lambda uow: cluster(uow, nodes=2, gpus=4))


def devices_of(store: DatabaseStore, ids: list[str]) -> dict[str, Device]:
    return {one.id: one for one in store.read(lambda uow: uow.devices.get_many(ids))}


def node_of(store: DatabaseStore, ident: str) -> Node:
    found = store.read(lambda uow: uow.nodes.get(ident))
    assert found is not None
    return found


def all_or_nothing(store: DatabaseStore, take: Callable[[UnitOfWork], bool]) -> bool:
    """Whether it was taken; a refusal is rolled back, as the port demands."""

    def work(uow: UnitOfWork) -> None:
        if not take(uow):
            raise CommitConflict("refused")

    try:
        store.write(work)
    except CommitConflict:
        return False
    return True


def test_shares_add_up_to_a_whole_device(store: DatabaseStore, held: Cluster) -> None:
    one, two = held.all_devices[:2]
    first = [Share(one, 300), Share(two, 300), Share(one, 300)]
    assert all_or_nothing(store, lambda uow: uow.devices.take(first, "p"))
    assert all_or_nothing(store, lambda uow: uow.devices.take([Share(one, 400)], "p"))

    both = [Share(one, 1), Share(two, 1)]
    assert not all_or_nothing(store, lambda uow: uow.devices.take(both, "p"))
    assert not all_or_nothing(store, lambda uow: uow.devices.take([Share(two, 1)], "other"))
    now = devices_of(store, [one, two])
    assert [(now[d].used_milli, now[d].occupant_project_id) for d in (one, two)] == [
        (1000, "p"), (300, "p"),
    ]  # fmt: skip

    store.write(lambda uow: uow.devices.give_back([Share(one, 600), Share(two, 300)]))
    now = devices_of(store, [one, two])
    assert [(now[d].used_milli, now[d].occupant_project_id) for d in (one, two)] == [
        (400, "p"), (0, None),
    ]  # fmt: skip
    assert all_or_nothing(store, lambda uow: uow.devices.take([Share(two, 1000)], "other"))


@pytest.mark.parametrize("fault", [{"health": "unhealthy"}, {"node_id": None}])
def test_unusable_devices(store: DatabaseStore, held: Cluster, fault: dict[str, Any]) -> None:
    one, two = held.all_devices[:2]
    store.write(lambda uow: uow.devices.change(two, fault))

    shares = [Share(one, 1000), Share(two, 1000)]
    assert not all_or_nothing(store, lambda uow: uow.devices.take(shares, "p"))
    assert devices_of(store, [one])[one].used_milli == 0


def test_the_schema_itself_refuses_too_much(
    store: DatabaseStore, engine: Engine, held: Cluster
) -> None:
    for statement in (
        "UPDATE devices SET used_milli = 1001",
        "UPDATE devices SET used_milli = -1",
        "UPDATE nodes SET used_vcpus = vcpus + 1",
        "UPDATE nodes SET used_memory_mib = -1",
        "UPDATE nodes SET live_tasks = -1",
    ):
        with pytest.raises(Exception, match=r"(?i)check|constraint"), engine.begin() as connection:
            connection.execute(text(statement))
    assert {one.used_milli for one in store.read(lambda uow: uow.devices.find())} == {0}


def test_devices_of_a_node(store: DatabaseStore, held: Cluster) -> None:
    mine = held.devices[held.nodes[0].id]
    assert store.write(lambda uow: uow.devices.release_node(held.nodes[0].id)) == 4
    assert store.write(lambda uow: uow.devices.release_node(held.nodes[0].id)) == 0

    assert all_or_nothing(store, lambda uow: uow.devices.claim_for_node("n1", mine[:2]))
    assert not all_or_nothing(store, lambda uow: uow.devices.claim_for_node("n2", mine))
    assert all_or_nothing(store, lambda uow: uow.devices.claim_for_node("n2", mine[2:]))
    now = devices_of(store, mine)
    assert [now[one].node_id for one in mine] == ["n1", "n1", "n2", "n2"]


def test_node_capacity(store: DatabaseStore, held: Cluster) -> None:
    ident = held.nodes[0].id
    other = held.nodes[1].id
    store.write(lambda uow: uow.nodes.change(ident, {"idle_since": THEN}))
    loads = [NodeLoad(ident, 40, 1024), NodeLoad(ident, 20, 1024), NodeLoad(other, 1, 1)]
    assert all_or_nothing(store, lambda uow: uow.nodes.take(loads, "p", isolation_node=True))

    now = node_of(store, ident)
    assert (now.used_vcpus, now.used_memory_mib, now.live_tasks) == (60, 2048, 2)
    assert (now.occupant_project_id, now.idle_since, now.revision) == ("p", None, 2)

    def take(vcpus: int, memory_mib: int, project_id: str, isolation_node: bool) -> bool:
        load = [NodeLoad(ident, vcpus, memory_mib)]
        return all_or_nothing(
            store, lambda uow: uow.nodes.take(load, project_id, isolation_node=isolation_node)
        )

    assert not take(5, 1, "p", True)
    assert not take(1, 262144, "p", True)
    assert not take(1, 1, "q", True)
    assert take(1, 1, "q", False)

    store.write(lambda uow: uow.nodes.give_back([NodeLoad(ident, 60, 2048, tasks=2)]))
    assert node_of(store, ident).idle_since is None
    store.write(lambda uow: uow.nodes.give_back([NodeLoad(ident, 1, 1)]))
    now = node_of(store, ident)
    assert (now.used_vcpus, now.used_memory_mib, now.live_tasks) == (0, 0, 0)
    assert now.occupant_project_id is None
    assert now.idle_since is not None

    store.write(lambda uow: uow.nodes.change(ident, {"status": "cordoned"}))
    assert not take(1, 1, "p", True)


def test_a_node_has_so_many_tasks_and_no_more(store: DatabaseStore, held: Cluster) -> None:
    """Tasks that take nothing are bounded as well: each one costs its node something."""
    ident = held.nodes[0].id

    def take(tasks: int) -> bool:
        load = [NodeLoad(ident, 0, 0, tasks=tasks)]
        return all_or_nothing(store, lambda uow: uow.nodes.take(load, "p", isolation_node=False))

    assert not take(MAX_TASKS_PER_NODE + 1)
    assert take(MAX_TASKS_PER_NODE - 1)
    assert not take(2)
    assert take(1)
    assert node_of(store, ident).live_tasks == MAX_TASKS_PER_NODE
    assert not take(1)
    store.write(lambda uow: uow.nodes.give_back([NodeLoad(ident, 0, 0)]))
    assert take(1)


def test_lease_and_fence(store: DatabaseStore) -> None:
    row = node("pool", secret_hash="ab" * 32)
    store.write(lambda uow: uow.nodes.add(row))
    found = store.read(lambda uow: uow.nodes.by_secret("ab" * 32))
    assert found is not None
    assert found.id == row.id
    assert store.read(lambda uow: uow.nodes.by_secret("cd" * 32)) is None

    before = store.read(lambda uow: uow.now())
    assert store.write(lambda uow: uow.nodes.renew(row.id, 1, "instance"))
    assert not store.write(lambda uow: uow.nodes.renew(row.id, 2, "instance"))
    now = node_of(store, row.id)
    assert now.instance == "instance"
    assert now.last_renewal_at is not None
    assert before <= now.last_renewal_at < before + timedelta(seconds=30)

    renewed = now.last_renewal_at
    earlier, later = renewed - timedelta(seconds=1), renewed + timedelta(seconds=1)
    assert not store.write(lambda uow: uow.nodes.fence(row.id, 1, earlier))
    assert store.write(lambda uow: uow.nodes.fence(row.id, 1, later))
    assert not store.write(lambda uow: uow.nodes.fence(row.id, 1, later))
    assert not store.write(lambda uow: uow.nodes.renew(row.id, 1, "instance"))
    assert node_of(store, row.id).epoch == 2


def test_bump_revision(store: DatabaseStore, held: Cluster) -> None:
    ids = [one.id for one in held.nodes]
    store.write(lambda uow: uow.nodes.bump_revision([*ids, ids[0], new_id()]))
    assert {node_of(store, ident).revision for ident in ids} == {2}


def test_tasks_that_go_free_everything_once(store: DatabaseStore, held: Cluster) -> None:
    first, second = (one.id for one in held.nodes)
    of = store.write(lambda uow: submit(uow))
    placed = [
        (first, [Share(held.devices[first][0], 1000), Share(held.devices[first][1], 250)]),
        (second, [Share(held.devices[second][0], 1000)]),
    ]
    made = store.write(lambda uow: start(uow, of, placed))
    tasks = store.read(lambda uow: uow.tasks.of_attempts([made.id]))
    assert [one.rank for one in tasks] == [0, 1]
    assert store.read(lambda uow: uow.tasks.of_node(first)) == [tasks[0]]
    store.write(lambda uow: uow.tasks.change(tasks[0].id, {"claimed_started_at": THEN}))
    told = TaskEnd(
        tasks[0].id, exit_code=1, signal=9, oom=True, failure_class="out_of_memory",
        failure_evidence="killed", claimed_ended_at=at(5),
    )  # fmt: skip

    ends = [told, TaskEnd(new_id())]
    assert store.write(lambda uow: uow.tasks.gone(ends, at(6))) == 1
    assert store.write(lambda uow: uow.tasks.gone(ends, at(7))) == 0

    now = store.read(lambda uow: uow.tasks.get(tasks[0].id))
    assert now is not None
    assert (now.status, now.gone_at, now.exit_code, now.signal) == ("gone", at(6), 1, 9)
    assert (now.oom, now.failure_class, now.failure_evidence) == (True, "out_of_memory", "killed")
    assert (now.claimed_started_at, now.claimed_ended_at) == (THEN, at(5))
    assert store.read(lambda uow: uow.tasks.of_node(first)) == []
    used = devices_of(store, held.all_devices)
    assert {one.id for one in used.values() if one.used_milli} == {held.devices[second][0]}
    assert node_of(store, first).live_tasks == 0
    assert node_of(store, second).live_tasks == 1
    attempt = store.read(lambda uow: uow.attempts.get(made.id))
    assert attempt is not None
    assert attempt.attention
    usage = store.read(lambda uow: uow.quotas.usage("tenant"))
    assert (usage["gpus"], usage["jobs:running"]) == (1000, 1)
    assert store.read(lambda uow: uow.quotas.recount()) == []

    assert store.write(lambda uow: end(uow, made)) == 1
    assert store.write(lambda uow: end(uow, made)) == 0
    assert store.read(lambda uow: uow.quotas.recount()) == []
    released = store.read(lambda uow: uow.allocations.find())
    assert len(released) == 3
    assert all(one.released_at is not None for one in released)


def test_what_the_scheduler_reads(store: DatabaseStore, held: Cluster) -> None:
    ident = held.nodes[0].id
    waits = store.write(lambda uow: submit(uow, spec={"command": ["a"]}))
    store.write(lambda uow: submit(uow, status="held", on_hold=True, created_at=at(-1)))
    runs = store.write(lambda uow: submit(uow))
    shares = [Share(held.devices[ident][0], 500)]
    made = store.write(lambda uow: start(uow, runs, [(ident, shares)]))
    ended = store.write(lambda uow: submit(uow, waiting_elements=0))
    store.write(lambda uow: uow.jobs.change(ended.id, {"status": "succeeded"}))

    waiting = store.read(lambda uow: uow.scheduling.waiting())
    assert [(one.status, one.on_hold) for one in waiting] == [("held", True), ("queued", False)]
    specs = store.read(lambda uow: uow.scheduling.specs([waits.id, new_id()]))
    assert specs == {waits.id: {"command": ["a"]}}
    (live,) = store.read(lambda uow: uow.scheduling.live_tasks())
    assert (live.attempt_id, live.node_id, live.rank) == (made.id, ident, 0)
    assert live.counted_gpus == {"gpus": 500, "gpus:h200": 500}
    assert live.shares == ((held.devices[ident][0], 500),)
    assert live.started_at == made.created_at
    store.write(lambda uow: uow.quotas.set_limits("tenant", {"pools": 4}))
    quota = store.read(lambda uow: uow.scheduling.quota())
    assert store.read(lambda uow: uow.scheduling.marks()).quota == quota
    assert quota["tenant", "gpus"] == (None, 500)
    assert quota["tenant", "pools"] == (4, 0)

    store.write(lambda uow: end(uow, made))
    assert store.read(lambda uow: uow.scheduling.live_tasks()) == []
