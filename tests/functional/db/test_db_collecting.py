# SPDX-License-Identifier: Apache-2.0
"""The collector that keeps what it read tells the planner the same as one that begins anew."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from database_rows import THEN, Cluster, cluster, end, host, new_id, pool, start, submit

from gpuservice.db.store import DatabaseStore
from gpuservice.domain.inventory import Flavor, GpuType
from gpuservice.domain.jobspec import normalise
from gpuservice.domain.ports_store import Share, Where
from gpuservice.domain.work import Attempt, Job, JobElement, Queue
from gpuservice.planner.snapshot import Snapshot
from gpuservice.scheduler import collect
from gpuservice.scheduler.collect import WHOLE_EVERY_S, Collected, Collector, CollectSettings

DEFAULTS = {"gpus": -1, "jobs:running": 50}
SETTINGS = CollectSettings(protected_s=60.0, leads=True)


def plain(collected: Collected) -> Snapshot:
    """What does not depend on the moment."""
    return replace(collected.snapshot, now=0.0, usage={}, limit_ratio=1.0)


def same(store: DatabaseStore, kept: Collector) -> Snapshot:
    """What the one that keeps tells; as one that begins anew does, in every part."""
    mine = store.read(kept.collect)
    anew = store.read(Collector(DEFAULTS, SETTINGS).collect)
    for name in ("nodes", "pools", "queues", "pending", "running", "headroom"):
        assert getattr(mine.snapshot, name) == getattr(anew.snapshot, name), name
    assert plain(mine) == plain(anew)
    assert {key: round(value) for key, value in mine.snapshot.usage.items()}.keys() == (
        anew.snapshot.usage.keys()
    )
    assert (mine.pools, mine.unclaimed) == (anew.pools, anew.unclaimed)
    for ident, node in anew.nodes.items():
        assert (mine.nodes[ident].epoch, mine.nodes[ident].status) == (node.epoch, node.status)
    assert mine.nodes.keys() == anew.nodes.keys()
    return mine.snapshot


@dataclass
class Changes:
    """Random changes of everything that the planner is told of, as the service makes them."""

    store: DatabaseStore
    dice: random.Random
    where: Cluster
    extra: list[str] = field(default_factory=list)
    waiting: list[Job] = field(default_factory=list)
    running: list[Attempt] = field(default_factory=list)

    def submitted(self, uow: Any) -> None:
        now = datetime.now(UTC)
        kinds: list[dict[str, Any]] = [
            {},
            {"on_hold": True},
            {"priority": 900},
            {"not_before": now + timedelta(hours=self.dice.choice([-1, 1]))},
            {"created_at": now - timedelta(days=1), "claimed": True},
            {"array_size": 4, "waiting_elements": 4, "array_max_running": 2},
        ]
        if len(self.waiting) > 9:
            return
        values = self.dice.choice(kinds)
        if self.waiting and self.dice.random() < 0.3:
            other = self.dice.choice(self.waiting).id
            request = {"name": "t", "command": ["x"], "depends_on": [{"job": other}]}
            values = {**values, "spec": normalise(request, {}, None)}
        self.waiting.append(submit(uow, **{"created_at": now, **values}))

    def started(self, uow: Any) -> None:
        plain = [one for one in self.waiting if one.array_size is None]
        node = self.dice.choice(self.where.nodes).id
        free = [
            one.id
            for one in uow.devices.find(Where("node_id", "eq", node))
            if one.used_milli == 0 and one.health == "healthy"
        ]
        ready = uow.nodes.get(node)
        if plain and free and ready is not None and ready.status == "ready":
            job = self.dice.choice(plain)
            self.waiting.remove(job)
            self.running.append(start(uow, job, [(node, [Share(free[0], 1000)])]))

    def ended(self, uow: Any) -> None:
        if self.running:
            gone = self.running.pop(self.dice.randrange(len(self.running)))
            end(uow, gone)

    def runs(self, uow: Any) -> None:
        if self.running:
            one = self.dice.choice(self.running)
            now = datetime.now(UTC)
            changes: list[dict[str, Any]] = [
                {"status": "running", "started_at": now},
                {"promised_end_at": now + timedelta(seconds=self.dice.randrange(99))},
                {"stop_requested_at": now, "status": "stopping", "preempted_for": "other"},
            ]
            uow.attempts.change(one.id, self.dice.choice(changes))

    def edited(self, uow: Any) -> None:
        jobs = [one.id for one in self.waiting] + [one.job_id for one in self.running]
        if jobs:
            values = {"priority": self.dice.randrange(1000), "on_hold": self.dice.random() < 0.2}
            uow.jobs.change(self.dice.choice(jobs), values)

    def cancelled(self, uow: Any) -> None:
        if self.waiting:
            one = self.waiting.pop(self.dice.randrange(len(self.waiting)))
            uow.quotas.give_back("tenant", {"jobs:queued": one.waiting_elements})
            uow.jobs.change(one.id, {"status": "cancelled", "waiting_elements": 0, "open": None})

    def elements(self, uow: Any) -> None:
        arrays = [one for one in self.waiting if one.array_size is not None]
        if arrays:
            job = self.dice.choice(arrays)
            if not uow.elements.of_job(job.id):
                later = datetime.now(UTC) + timedelta(hours=1)
                row = JobElement(
                    job_id=job.id, index=0, project_id=job.project_id, status="queued", attempt=1,
                    queued_at=THEN, not_before=later, preempted_count=2,
                )  # fmt: skip
                uow.elements.add_many([row])
                uow.jobs.change(job.id, {"preempted_count": 2})

    def ground(self, uow: Any) -> None:
        dice = self.dice
        node = dice.choice(self.where.nodes)
        device = dice.choice(self.where.all_devices)
        what = dice.randrange(9)
        if what == 0:
            uow.nodes.change(node.id, {"status": dice.choice(["ready", "cordoned", "error"])})
        elif what == 1:
            uow.devices.change(device, {"health": dice.choice(["healthy", "unhealthy"])})
        elif what == 2:
            uow.queues.change("queue", {"status": dice.choice(["open", "closed"])})
        elif what == 3:
            uow.queues.change("queue", {"weight": dice.randrange(1, 9)})
        elif what == 4:
            uow.hosts.change(str(node.host_id), {"rack": f"r{dice.randrange(3)}"})
        elif what == 5:
            uow.quotas.set_limits("tenant", {"gpus": 1000 * dice.randrange(8, 20)})
        elif what == 6:
            uow.nodes.fence(node.id, node.epoch, datetime.now(UTC))
        elif what == 7:
            more = pool()
            self.extra.append(more.id)
            uow.pools.add(more)
        elif self.extra:
            uow.pools.remove(self.extra.pop())


def begin(store: DatabaseStore, seed: int) -> Changes:
    """A cluster of two nodes, with a queue."""

    def work(uow: Any) -> Cluster:
        made = cluster(uow, nodes=2)
        row = {"created_at": THEN, "updated_at": THEN}
        for node in made.nodes:
            place = host()
            uow.hosts.add(place)
            uow.nodes.change(node.id, {"host_id": place.id})
        uow.flavors.add(Flavor(id="flavor", name="f", gpu_type="h200", gpu_count=4, **row))
        uow.gpu_types.add(GpuType(id="t", name="h200", vendor="nvidia", memory_mib=1, **row))
        uow.queues.add(
            Queue(
                id="queue", project_id=None, name="q", projects=("*",), pool_ids=(made.pool.id,),
                name_key=new_id(), **row,
            )
        )  # fmt: skip
        return replace(made, nodes=[uow.nodes.get(node.id) for node in made.nodes])

    return Changes(store, random.Random(seed), store.write(work))


@pytest.mark.parametrize("seed", range(4))
def test_what_is_kept_is_what_is_there(
    store: DatabaseStore, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any changes, alone or several at once, read in part or now and then whole."""
    changes = begin(store, seed)
    kept = Collector(DEFAULTS, SETTINGS)
    kinds = [
        changes.submitted, changes.submitted, changes.submitted, changes.started, changes.started,
        changes.ended, changes.runs, changes.edited, changes.cancelled, changes.elements,
        changes.ground, changes.ground,
    ]  # fmt: skip
    seen: set[str] = set()
    for number in range(60):
        for _ in range(changes.dice.randrange(1, 4)):
            store.write(changes.dice.choice(kinds))
        whole = number % 10 == 9
        monkeypatch.setattr(collect, "WHOLE_EVERY_S", 0.0 if whole else WHOLE_EVERY_S)
        told = same(store, kept)
        seen |= {"pending"} if told.pending else set()
        seen |= {"running"} if told.running else set()
    assert seen == {"pending", "running"}


def test_what_did_not_change_is_the_same_object(store: DatabaseStore) -> None:
    """The planner compares by identity: nothing is worked out anew for what is as it was."""
    changes = begin(store, 1)
    store.write(lambda uow: submit(uow, created_at=datetime.now(UTC)))
    idle, busy = changes.where.nodes
    kept = Collector(DEFAULTS, SETTINGS)
    first = same(store, kept)
    again = same(store, kept)
    assert again.nodes is first.nodes
    assert again.pools is first.pools
    assert again.queues is first.queues
    assert again.pending is first.pending

    job = store.write(lambda uow: submit(uow, created_at=datetime.now(UTC)))
    device = changes.where.devices[busy.id][0]
    store.write(lambda uow: start(uow, job, [(busy.id, [Share(device, 1000)])]))
    after = same(store, kept)
    by_id = {node.id: node for node in first.nodes}
    assert {node.id for node in after.nodes if node is not by_id[node.id]} == {busy.id}
    assert idle.id in by_id
    assert len(after.running) == 1
    assert same(store, kept).running[0] is after.running[0]


def test_everything_is_read_anew_now_and_then(
    store: DatabaseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever escaped the marks (here a note of another process) is seen in the end."""
    changes = begin(store, 1)
    job = store.write(lambda uow: submit(uow, created_at=datetime.now(UTC)))
    kept = Collector(DEFAULTS, SETTINGS)
    assert same(store, kept).pending[0].due is None
    due = datetime.now(UTC).replace(microsecond=0)
    store.write(lambda uow: uow.jobs.change_each([(job.id, {"due_at": due})], silent=True))
    assert store.read(kept.collect).snapshot.pending[0].due is None
    monkeypatch.setattr("gpuservice.scheduler.collect.WHOLE_EVERY_S", 0.0)
    assert store.read(kept.collect).snapshot.pending[0].due == due.timestamp()
    assert WHOLE_EVERY_S > 0.0
    assert changes.where.nodes


def test_what_limits_are_worth_is_learned_at_once(store: DatabaseStore) -> None:
    """Due times of a burst need it within the burst, not when it is reckoned in."""
    changes = begin(store, 1)
    node = changes.where.nodes[0].id
    now = datetime.now(UTC)

    def work(uow: Any) -> None:
        job = submit(uow, max_runtime_s=100)
        gang = start(uow, job, [(node, [Share(changes.where.devices[node][0], 1000)])])
        end(uow, gang)
        ended = {"outcome": "succeeded", "started_at": now - timedelta(seconds=30)}
        uow.attempts.change(gang.id, {**ended, "ended_at": now - timedelta(seconds=5)})

    kept = Collector(DEFAULTS, SETTINGS)
    assert store.read(kept.collect).snapshot.limit_ratio == 1.0
    store.write(work)
    kept.forget()
    assert store.read(kept.collect).snapshot.limit_ratio == pytest.approx(0.25)
