# SPDX-License-Identifier: Apache-2.0
"""What the scheduler itself has started it knows without reading; what others change at the same
time it reads."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from database_rows import THEN, Cluster, RandomIds, cluster, end, host, new_id, submit
from sqlalchemy import event

from gpuservice.db.store import DatabaseStore
from gpuservice.domain.inventory import Flavor, GpuType
from gpuservice.domain.ports import Hint
from gpuservice.domain.work import Attempt, Job, Queue
from gpuservice.planner.plan_types import ReasonFact, Start, Waiting
from gpuservice.planner.snapshot import NodeState, Snapshot, TaskPlacement
from gpuservice.scheduler import collect
from gpuservice.scheduler.collect import Collected, Collector, CollectSettings
from gpuservice.scheduler.commit import CommitSettings, Committer
from gpuservice.scheduler.explaining import Explaining

SETTINGS = CollectSettings(protected_s=60.0, leads=True)
PROJECTS = ("tenant", "other")


class Hints:
    """Nobody listens."""

    def send(self, hint: Hint) -> None: ...


class Service:
    """A cluster, a collector that is told of its own starts, and one that begins anew."""

    def __init__(self, store: DatabaseStore, isolation: str = "none") -> None:
        self.store = store
        self.kept = Collector({}, SETTINGS)
        self.where = store.write(lambda uow: self._begin(uow, isolation))
        self.epoch = store.write(lambda uow: uow.raise_epoch("all", "me"))
        ports = tuple(range(20000, 20100))
        settings = CommitSettings(300, ports)
        self.committer = Committer(store, Hints(), RandomIds(), "all", settings)  # type: ignore[arg-type]

    def _begin(self, uow: Any, isolation: str) -> Cluster:
        made = cluster(uow, nodes=3)
        row = {"created_at": THEN, "updated_at": THEN}
        uow.pools.change(made.pool.id, {"isolation": isolation})
        for node in made.nodes:
            place = host()
            uow.hosts.add(place)
            values = {"host_id": place.id, "address": f"10.0.0.{node.id[:4]}"}
            uow.nodes.change(node.id, values)
        uow.flavors.add(Flavor(id="flavor", name="f", gpu_type="h200", gpu_count=4, **row))
        uow.gpu_types.add(GpuType(id="t", name="h200", vendor="nvidia", memory_mib=1, **row))
        uow.queues.add(
            Queue(
                id="queue", project_id=None, name="q", projects=("*",), pool_ids=(made.pool.id,),
                name_key=new_id(), **row,
            )
        )  # fmt: skip
        return made

    def submit(self, project: str = "tenant", **values: Any) -> Job:
        values = {"created_at": datetime.now(UTC), "waiting_elements": 1, **values}
        return self.store.write(lambda uow: submit(uow, project, **values))

    def collect(self) -> Collected:
        return self.store.read(self.kept.collect)

    def start(self, collected: Collected, starts: list[Start]) -> list[str]:
        outcome = self.committer.commit(self.epoch, starts, collected.nodes, collected.pools)
        self.kept.began(outcome.batches)
        return outcome.started

    def same(self) -> Snapshot:
        """Both tell the same of everything but the moment."""
        mine = self.collect().snapshot
        anew = self.store.read(Collector({}, SETTINGS).collect).snapshot
        for name in ("nodes", "pools", "queues", "pending", "running"):
            assert getattr(mine, name) == getattr(anew, name), name
        return mine


def gang(job_id: str, nodes: list[NodeState], milli: int = 1000) -> Start:
    """A start on the first device with room of each of the nodes."""
    tasks = []
    for rank, node in enumerate(nodes):
        free = next(one.id for one in node.devices if one.used_milli + milli <= 1000)
        tasks.append(TaskPlacement(rank, node.id, ((free, milli),), 2, 64))
    return Start(job_id, tuple(tasks))


def statements(store: DatabaseStore) -> list[str]:
    """What is run from now on."""
    seen: list[str] = []

    @event.listens_for(store.engine, "before_cursor_execute")
    def _count(*args: Any) -> None:
        if args[2].lstrip().startswith("SELECT"):
            seen.append(args[2])

    return seen


def test_own_starts_are_not_read(store: DatabaseStore) -> None:
    service = Service(store)
    one, gang_of_two = service.submit(), service.submit("other")
    seen = service.collect()
    first, second, third = seen.snapshot.nodes
    starts = [gang(one.id, [first]), gang(gang_of_two.id, [second, third])]
    assert len(service.start(seen, starts)) == 2
    run = statements(store)
    told = service.collect().snapshot
    # The clock of the embedded database is the process's own: the marks alone.
    assert [text[:60] for text in run if "AS kind" not in text] == []
    assert len(run) == 1
    assert len(told.running) == 2 and not told.pending
    assert sum(one.used_milli for node in told.nodes for one in node.devices) == 3000
    service.same()


def test_what_others_change_beside_own_starts_is_read(store: DatabaseStore) -> None:
    """A task of the same node ends, another job's row is edited, an attempt runs or is stopped."""
    service = Service(store)
    jobs = [service.submit() for _ in range(3)]
    seen = service.collect()
    node = seen.snapshot.nodes[0]
    assert service.start(seen, [gang(jobs[0].id, [node])])
    (before,) = store.read(lambda uow: uow.attempts.find())
    seen = service.collect()
    node = seen.snapshot.nodes[0]
    store.write(lambda uow: end(uow, before))  # between the snapshot and the commit
    assert service.start(seen, [gang(jobs[1].id, [node])])
    service.same()
    seen = service.collect()
    assert service.start(seen, [gang(jobs[2].id, [seen.snapshot.nodes[0]])])
    after = store.read(lambda uow: uow.attempts.find())
    mine = next(one for one in after if one.job_id == jobs[2].id)
    store.write(lambda uow: uow.attempts.change(mine.id, {"status": "running", "started_at": THEN}))
    store.write(lambda uow: uow.jobs.change(jobs[2].id, {"priority": 900}))
    told = service.same()
    assert {one.priority for one in told.running} == {500, 900}


def test_a_start_that_was_overtaken_leaves_what_is_known_right(store: DatabaseStore) -> None:
    """One of a batch does not hold: the rest is known, it is not."""
    service = Service(store)
    jobs = [service.submit() for _ in range(4)]
    seen = service.collect()
    starts = [gang(job.id, [node]) for job, node in zip(jobs, seen.snapshot.nodes, strict=False)]
    store.write(lambda uow: uow.jobs.change(jobs[1].id, {"on_hold": True}))
    assert sorted(service.start(seen, starts)) == sorted([jobs[0].id, jobs[2].id])
    assert len(service.same().running) == 2


def test_the_explanation_goes_with_the_start(store: DatabaseStore) -> None:
    """Also when the scheduler that wrote it is another; most jobs have none, and nothing is
    dropped for them."""
    service = Service(store)
    fresh, told = service.submit(waiting_code="evaluating"), service.submit()
    reasons = (ReasonFact("insufficient_gpus", "It waits.", {}),)
    Explaining(store).save([Waiting(told.id, told.project_id, reasons, 1)])
    assert store.read(lambda uow: uow.explanation(told.id)) is not None
    deleted: list[str] = []

    @event.listens_for(store.engine, "before_cursor_execute")
    def _see(*args: Any) -> None:
        if args[2].startswith("DELETE FROM explanations"):
            deleted.append(args[2])

    seen = service.collect()
    assert service.start(seen, [gang(fresh.id, [seen.snapshot.nodes[0]])])
    assert deleted == []
    seen = service.collect()
    assert service.start(seen, [gang(told.id, [seen.snapshot.nodes[1]])])
    assert len(deleted) == 1
    assert store.read(lambda uow: uow.explanation(told.id)) is None


def test_specs_of_jobs_that_left_while_rows_were_forgotten_go_as_well(
    store: DatabaseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(store)
    for _ in range(3):
        job = service.submit()
        seen = service.collect()
        assert service.start(seen, [gang(job.id, [seen.snapshot.nodes[0]])])
        for one in store.read(lambda uow: uow.attempts.find()):
            if one.live:
                store.write(lambda uow, one=one: end(uow, one))  # type: ignore[misc]
        with monkeypatch.context() as at_once:
            at_once.setattr(collect, "WHOLE_EVERY_S", 0.0)
            service.collect()
    assert not service.kept._specs


@pytest.mark.parametrize("isolation", ["none", "node"])
@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_started_and_ends_both_tell_the_same(
    store: DatabaseStore, seed: int, isolation: str
) -> None:
    dice = random.Random(seed)
    service = Service(store, isolation)
    running: dict[str, Attempt] = {}
    begun = 0
    for _ in range(25):
        project = dice.choice(PROJECTS)
        job = service.submit(project, preempted_count=dice.randrange(2))
        seen = service.collect()
        if running and dice.random() < 0.5:
            gone = running.pop(dice.choice(sorted(running)))
            store.write(lambda uow, gone=gone: end(uow, gone))  # type: ignore[misc]
        milli = dice.choice([500, 1000])
        fit = [
            node
            for node in seen.snapshot.nodes
            if any(one.used_milli + milli <= 1000 and one.occupant in (None, project)
                   for one in node.devices)
        ]  # fmt: skip
        nodes = dice.sample(fit, min(len(fit), dice.choice([1, 2])))
        kept = [
            replace(node, devices=tuple(d for d in node.devices if d.occupant in (None, project)))
            for node in nodes
        ]
        if kept:
            begun += len(service.start(seen, [gang(job.id, kept, milli)]))
        for row in store.read(lambda uow: uow.attempts.find()):
            if row.live:
                running.setdefault(row.id, row)
        service.same()
    assert begun > 5
