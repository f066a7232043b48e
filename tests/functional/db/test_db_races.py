# SPDX-License-Identifier: Apache-2.0
"""Many threads at once: what is counted stays exact, nothing is taken or freed twice.

Every test ends with the recount: the ledger equals what the rows say.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from database_rows import THEN, Cluster, cluster, end, job, new_id, start, submit
from sqlalchemy import Engine, text

from gpuservice.db.store import DatabaseStore
from gpuservice.domain.errors import Busy, CommitConflict, QuotaExceeded
from gpuservice.domain.ports_store import Share, TaskEnd, UnitOfWork, Where
from gpuservice.domain.work import Attempt, IdempotencyRecord, Job

T = TypeVar("T")


def patiently(work: Callable[[], T]) -> T:
    """Ask again after 503, as every caller of the service does."""
    for _ in range(50):
        try:
            return work()
        except Busy:
            continue
    raise AssertionError("busy for ever")


def at_once(works: Sequence[Callable[[], T]], threads: int = 60) -> list[T]:
    """Run all, each thread starting at the same moment; the results in order."""
    barrier = threading.Barrier(min(threads, len(works)))
    first = threading.local()

    def run(work: Callable[[], T]) -> T:
        if not getattr(first, "passed", False):
            first.passed = True
            barrier.wait(30)
        return patiently(work)

    with ThreadPoolExecutor(min(threads, len(works))) as pool:
        return list(pool.map(run, works))


def exact(store: DatabaseStore) -> None:
    assert store.read(lambda uow: uow.quotas.recount()) == []


def test_sixty_takes_against_a_limit_of_thirty_two(store: DatabaseStore) -> None:
    def one() -> bool:
        try:
            store.write(lambda uow: submit(uow))
        except QuotaExceeded as refused:
            assert refused.meta["value"] == 32
            return False
        return True

    assert at_once([one] * 60).count(True) == 32
    assert store.read(lambda uow: uow.jobs.count()) == 32
    assert store.read(lambda uow: uow.events.page.__self__.count()) == 32
    assert store.read(lambda uow: uow.quotas.usage("tenant")) == {"jobs:queued": 32}
    exact(store)


def test_first_use_of_a_project_by_many(store: DatabaseStore) -> None:
    names = [f"project-{n % 5}" for n in range(50)]

    at_once([lambda name=name: store.write(lambda uow: submit(uow, name)) for name in names])

    for name in set(names):
        assert store.read(lambda uow, n=name: uow.quotas.usage(n)) == {"jobs:queued": 10}
    exact(store)


def gangs_of(held: Cluster, count: int) -> list[list[tuple[str, list[Share]]]]:
    """Placements of two tasks with two GPU halves each, all over the same few devices."""
    nodes = [node.id for node in held.nodes]
    made = []
    for n in range(count):
        placed = []
        for step in (0, 1):
            mine = nodes[(n + step * (1 + n % 3)) % len(nodes)]
            devices = held.devices[mine]
            chosen = (devices[n % len(devices)], devices[(n + 1) % len(devices)])
            placed.append((mine, [Share(one, 500) for one in chosen]))
        made.append(placed)
    return made


def test_two_committers_of_a_thousand_gangs(store: DatabaseStore, engine: Engine) -> None:
    store.write(lambda uow: uow.quotas.set_limits("tenant", {"jobs:queued": -1}))
    held = store.write(lambda uow: cluster(uow, nodes=6, gpus=8))
    placements = gangs_of(held, 1000)
    jobs = [job() for _ in placements]

    def add(uow: UnitOfWork) -> None:
        uow.quotas.take("tenant", {"jobs:queued": len(jobs)})
        uow.jobs.add_many(jobs)

    store.write(add)
    started: list[Attempt] = []

    def commit(which: int, of: Job) -> str:
        try:
            made = store.write(lambda uow: start(uow, of, placements[which]))
        except CommitConflict:
            return "refused"
        started.append(made)
        return "started"

    def committer(numbers: range) -> list[str]:
        outcomes = []
        for n in numbers:
            outcomes.append(patiently(lambda n=n: commit(n, jobs[n])))
            if len(started) > 20 and n % 3 == 0:  # make room, so that devices change hands
                oldest = started.pop(0)
                patiently(lambda one=oldest: store.write(lambda uow: end(uow, one)))
        return outcomes

    forwards = lambda: committer(range(1000))  # noqa: E731
    backwards = lambda: committer(range(999, -1, -1))  # noqa: E731
    outcomes = at_once([forwards, backwards])

    assert sum(one.count("started") for one in outcomes) > 100
    consistent(store, engine)
    for one in started:
        store.write(lambda uow, one=one: end(uow, one))
    consistent(store, engine)
    used = store.read(lambda uow: uow.devices.find(Where("used_milli", "ne", 0)))
    assert used == []
    assert {one.occupant_project_id for one in store.read(lambda uow: uow.devices.find())} == {None}
    nodes = store.read(lambda uow: uow.nodes.find())
    assert {(one.used_vcpus, one.used_memory_mib, one.live_tasks) for one in nodes} == {(0, 0, 0)}


def consistent(store: DatabaseStore, engine: Engine) -> None:
    """Devices and nodes hold what the unreleased allocations and tasks say, quota too."""
    with engine.connect() as connection:
        over = connection.execute(text(
            "SELECT d.id, d.used_milli, COALESCE(SUM(a.milli), 0) FROM devices d"
            " LEFT JOIN allocations a ON a.device_id = d.id AND a.released_at IS NULL"
            " GROUP BY d.id, d.used_milli HAVING d.used_milli <> COALESCE(SUM(a.milli), 0)"
        )).all()  # fmt: skip
        assert over == []
        wrong = connection.execute(text(
            "SELECT n.id FROM nodes n LEFT JOIN tasks t ON t.node_id = n.id AND t.status <> 'gone'"
            " GROUP BY n.id, n.live_tasks, n.used_vcpus"
            " HAVING n.live_tasks <> COUNT(t.id) OR n.used_vcpus <> COALESCE(SUM(t.vcpus), 0)"
        )).all()  # fmt: skip
        assert wrong == []
    exact(store)


def test_a_job_is_started_once(store: DatabaseStore, engine: Engine) -> None:
    held = store.write(lambda uow: cluster(uow, nodes=4, gpus=4))
    of = store.write(submit)

    def one(n: int) -> bool:
        node = held.nodes[n % 4].id
        try:
            share = Share(held.devices[node][n // 4], 1000)
            store.write(lambda uow: start(uow, of, [(node, [share])]))
        except CommitConflict:
            return False
        return True

    assert at_once([lambda n=n: one(n) for n in range(16)]).count(True) == 1
    consistent(store, engine)


def test_tasks_that_go_in_many_threads_free_once(store: DatabaseStore, engine: Engine) -> None:
    store.write(lambda uow: uow.quotas.set_limits("tenant", {"jobs:queued": -1}))
    held = store.write(lambda uow: cluster(uow, nodes=2, gpus=4))
    attempts = []
    for n in range(10):
        node = held.nodes[n % 2].id
        share = [Share(held.devices[node][n % 4], 300)]
        of = store.write(submit)
        attempts.append(store.write(lambda uow, of=of, node=node, share=share: start(
            uow, of, [(node, share)])))  # fmt: skip
    tasks = store.read(lambda uow: uow.tasks.of_attempts([one.id for one in attempts]))

    def reporter(n: int) -> int:
        mine = [one for at, one in enumerate(tasks) if (at + n) % 3]
        ends = [TaskEnd(one.id, exit_code=n) for one in mine]
        return store.write(lambda uow: uow.tasks.gone(ends, uow.now()))

    freed = at_once([lambda n=n: reporter(n) for n in range(12)])

    assert sum(freed) == 10
    for one in attempts:
        store.write(lambda uow, one=one: uow.quotas.give_back("tenant", {"jobs:running": 1}))
        store.write(lambda uow, one=one: uow.attempts.change(one.id, {"live": None}))
    consistent(store, engine)
    assert store.read(lambda uow: uow.quotas.usage("tenant"))["gpus"] == 0
    after = store.read(lambda uow: uow.attempts.find())
    assert all(one.attention for one in after)


def test_shares_of_one_device_stay_with_one_project(store: DatabaseStore) -> None:
    held = store.write(lambda uow: cluster(uow, nodes=1, gpus=1))
    share = [Share(held.all_devices[0], 100)]

    def one(project: str) -> str | None:
        def work(uow: UnitOfWork) -> None:
            if not uow.devices.take(share, project):
                raise CommitConflict("taken")

        try:
            store.write(work)
        except CommitConflict:
            return None
        return project

    winners = at_once([lambda n=n: one(f"p{n % 2}") for n in range(30)])

    taken = [one for one in winners if one]
    assert len(taken) == 10
    assert len(set(taken)) == 1


def test_whole_devices_go_to_one_node(store: DatabaseStore) -> None:
    held = store.write(lambda uow: cluster(uow, nodes=1, gpus=4))
    store.write(lambda uow: uow.devices.release_node(held.nodes[0].id))
    wanted = [held.all_devices, held.all_devices[:2], held.all_devices[2:]]

    def one(n: int) -> list[str]:
        def work(uow: UnitOfWork) -> None:
            if not uow.devices.claim_for_node(f"node-{n}", wanted[n % 3]):
                raise CommitConflict("claimed")

        try:
            store.write(work)
        except CommitConflict:
            return []
        return wanted[n % 3]

    outcomes = at_once([lambda n=n: one(n) for n in range(12)])

    claimed = [device for mine in outcomes for device in mine]
    assert sorted(claimed) == sorted(set(claimed))
    assert len(claimed) in (2, 4)


def test_a_port_is_leased_once(store: DatabaseStore) -> None:
    ports = range(29500, 29520)

    def one() -> int | None:
        mine = new_id()
        return store.write(lambda uow: uow.lease_ports(ports, {mine: "127.1.0.1"})).get(mine)

    leased = at_once([one] * 24, threads=8)

    assert sorted(port for port in leased if port is not None) == list(ports)
    assert leased.count(None) == 4


def test_a_lease_has_one_holder(store: DatabaseStore) -> None:
    tokens = at_once([
        lambda n=n: store.write(lambda uow: uow.claim("pool", "p1", f"conductor-{n}", 30))
        for n in range(20)
    ])  # fmt: skip

    holders = [token for token in tokens if token]
    assert len(holders) == 1
    assert store.write(lambda uow: uow.holds("pool", "p1", holders[0]))


def test_leaders_get_epochs_of_their_own(store: DatabaseStore) -> None:
    epochs = at_once([
        lambda n=n: store.write(lambda uow: uow.raise_epoch("all", f"leader-{n}"))
        for n in range(20)
    ])  # fmt: skip

    assert sorted(epochs) == list(range(1, 21))


def test_one_of_many_equal_keys_is_saved(store: DatabaseStore) -> None:
    record = IdempotencyRecord(
        project_id="tenant", user_id="user", path="/v1/jobs", key="k", digest="d", status=None,
        body=None, created_at=THEN,
    )  # fmt: skip

    saved = at_once([lambda: store.write(lambda uow: uow.save_idempotency(record))] * 20)

    assert saved.count(True) == 1
