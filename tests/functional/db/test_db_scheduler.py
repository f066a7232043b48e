# SPDX-License-Identifier: Apache-2.0
"""The scheduler on a database: what it tells the planner, and what it keeps of plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from database_rows import THEN, Cluster, RandomIds, SystemClock, cluster, end, new_id, start, submit
from oslo_config import cfg

from gpuservice.conf import opts
from gpuservice.db.store import DatabaseStore
from gpuservice.domain.context import Caller
from gpuservice.domain.jobspec import normalise
from gpuservice.domain.ports import Hint
from gpuservice.domain.ports_store import Share, TaskEnd
from gpuservice.domain.work import Attempt, Cohort, Job, JobElement, Queue
from gpuservice.planner.plan_types import Plan, Preemption, Promise, Start
from gpuservice.planner.snapshot import Policy, Snapshot, TaskPlacement
from gpuservice.scheduler import loop
from gpuservice.scheduler.collect import Collector, CollectSettings
from gpuservice.scheduler.commit import CommitSettings, Committer
from gpuservice.scheduler.leadership import Leadership
from gpuservice.scheduler.preempting import Preempting
from gpuservice.services.job_actions import JobActions


@dataclass
class Hints:
    sent: list[Hint] = field(default_factory=list)

    def send(self, hint: Hint) -> None:
        self.sent.append(hint)

    def subscribe(self, kinds: Any, listener: Any) -> Callable[[], None]:
        return lambda: None


@dataclass
class Place:
    """A scheduler whose plans the test makes."""

    store: DatabaseStore
    scheduler: loop.Scheduler
    made: Plan = field(default_factory=Plan)
    seen: list[Snapshot] = field(default_factory=list)

    def step(self, **plan: Any) -> Snapshot:
        """One pass with this plan; the snapshot that it was made of."""
        self.made = Plan(**plan)
        self.scheduler.step()
        return self.seen[-1]

    def job(self, of: Job) -> Job:
        found = self.store.read(lambda uow: uow.jobs.get(of.id))
        assert found is not None
        return found


def scheduler(store: DatabaseStore) -> loop.Scheduler:
    conf = cfg.ConfigOpts()
    opts.register_all(conf)
    conf([], project="gpuservice", default_config_files=[], default_config_dirs=[])
    hints, ids, clock = Hints(), RandomIds(), SystemClock()
    return loop.Scheduler(
        store,
        hints,
        clock,
        conf,
        Collector({}, CollectSettings(protected_s=60.0, leads=True)),
        Committer(store, hints, ids, loop.SHARD, CommitSettings(300, (20000, 20001))),
        Preempting(store, hints, ids, loop.SHARD),
        Leadership(store, loop.SHARD, "me"),
    )


@pytest.fixture
def place(store: DatabaseStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    place = Place(store, scheduler(store))

    def plan(snapshot: Snapshot, policy: Policy) -> Plan:
        place.seen.append(snapshot)
        return place.made

    monkeypatch.setattr(loop, "plan", plan)
    monkeypatch.setattr(loop.Keeping, "plan", lambda _, snapshot, policy: plan(snapshot, policy))
    yield place


def queue(pool_ids: tuple[str, ...], **values: Any) -> Queue:
    row: dict[str, Any] = {
        "id": "queue", "created_at": THEN, "updated_at": THEN, "project_id": None, "name": "q",
        "projects": ("*",), "pool_ids": pool_ids, "name_key": new_id(),
    }  # fmt: skip
    return Queue(**{**row, **values})


def running(store: DatabaseStore, where: Cluster, device: int, **values: Any) -> Attempt:
    """A job on one device."""
    node = where.nodes[0].id

    def work(uow: Any) -> Attempt:
        made = submit(uow, **values)
        return start(uow, made, [(node, [Share(where.devices[node][device], 1000)])])

    return store.write(work)


def test_what_the_planner_is_told(place: Place) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    spec = normalise(
        {"name": "t", "command": ["x"], "grace_period_s": 7, "resources": {"gpus": 2}}, {}, None
    )
    where = place.store.write(lambda uow: cluster(uow))
    place.store.write(
        lambda uow: (
            uow.cohorts.add(Cohort(id="c", created_at=THEN, updated_at=THEN, name="red")),
            uow.queues.add(
                queue(
                    (where.pool.id,), weight=3, cohort="red", nominal={"h200": 2},
                    borrowing_limit={"h200": 1}, lending_limit={"h200": 0}, preemption="both",
                    placement="spread", kinds={"training": {"max_runtime_s": 99}},
                )
            ),
        )
    )  # fmt: skip
    waits = place.store.write(
        lambda uow: submit(
            uow, spec=spec, kind="service", preemptible=True, deadline_at=now, due_at=now,
            promised_since=now, claimed=True, preempted_count=2,
        )
    )  # fmt: skip
    gang = running(
        place.store, where, 0, user_id="eve", priority=700, preemptible=False, max_runtime_s=50,
        preempted_count=1, spec=spec,
    )  # fmt: skip
    place.store.write(
        lambda uow: uow.attempts.change(
            gang.id,
            {
                "status": "stopping",
                "stop_requested_at": now,
                "started_at": now,
                "promised_end_at": now + timedelta(seconds=50),
            },
        )
    )
    told = place.step()
    (of_queue,) = told.queues
    assert (of_queue.weight, of_queue.cohort, of_queue.preemption) == (3.0, "red", "both")
    assert (of_queue.nominal, of_queue.borrowing_limit) == ({"h200": 2000}, {"h200": 1000})
    assert (of_queue.lending_limit, of_queue.spread) == ({"h200": 0}, True)
    assert of_queue.default_runtime_s == 99
    (pending,) = told.pending
    at = now.timestamp()
    assert (pending.kind, pending.preemptible, pending.claimed) == ("service", True, True)
    assert (pending.deadline, pending.due, pending.promised) == (at, at, at)
    assert (pending.job_id, pending.preempted) == (waits.id, 2)
    (live,) = told.running
    assert (live.gang_id, live.job_id, live.queue_id) == (gang.id, gang.job_id, "queue")
    assert (live.user_id, live.priority, live.preemptible) == ("eve", 700, False)
    assert (live.started_at, live.promised_end) == (at, at + 7)  # it was told to go
    assert (live.preempting, live.preempted, live.protected_s) == (True, 1, 60.0)
    assert live.request is not None and live.request.gpu_milli == 2000
    assert live.max_runtime_s == 50
    assert set(told.usage) == {("queue", "tenant", "eve")}
    assert told.limit_ratio == 1.0 and told.reservations == ()


def test_preempted_elements_of_arrays(place: Place) -> None:
    place.store.write(lambda uow: cluster(uow))
    row = place.store.write(
        lambda uow: submit(uow, array_size=3, waiting_elements=3, preempted_count=5)
    )
    element = JobElement(
        job_id=row.id, index=0, project_id="tenant", status="queued", attempt=2, queued_at=THEN,
        preempted_count=4,
    )  # fmt: skip
    place.store.write(lambda uow: uow.elements.add_many([element]))
    assert [one.preempted for one in place.step().pending] == [4]


def test_notes_are_kept_and_change_no_version(place: Place) -> None:
    first, second = (place.store.write(submit) for _ in range(2))
    now = place.step().now
    promise = Promise(first.id, now + 600, now + 700, "tenant", ())
    place.step(due={first.id: now + 60, second.id: 1e30}, promises=(promise,))
    noted, other = place.job(first), place.job(second)
    assert (noted.version, noted.updated_at) == (first.version, first.updated_at)
    assert noted.due_at is not None and noted.due_at.timestamp() == pytest.approx(now + 60)
    assert noted.promised_start_at is not None
    assert noted.promised_start_at.timestamp() == pytest.approx(now + 600)
    assert other.due_at is not None and other.due_at.year == 9999 and other.promised_since is None
    told = {one.job_id: one for one in place.step().pending}
    assert told[first.id].due == pytest.approx(now + 60)
    assert told[first.id].promised is not None and told[second.id].promised is None
    # The promise is gone, and comes again at another time: it ranks from the first time on.
    later = replace(promise, start=now + 900)
    place.step(promises=(later,), due={first.id: now + 1})
    assert place.job(first) == noted
    # A new leader, and who only reads, know of it too.
    for leads in (True, False):
        fresh = Collector({}, CollectSettings(leads=leads))
        snapshot = place.store.read(fresh.collect).snapshot
        assert {one.job_id: one for one in snapshot.pending} == {
            ident: replace(one, promise=None) for ident, one in told.items()
        }


def test_who_only_reads_sees_notes_of_rows_it_has(place: Place) -> None:
    row = place.store.write(submit)
    reader = Collector({}, CollectSettings(leads=False))
    assert place.store.read(reader.collect).snapshot.pending[0].due is None
    place.step(due={row.id: 1000.0})
    assert place.store.read(reader.collect).snapshot.pending[0].due == 1000.0


def test_a_start_ends_a_promise_and_keeps_what_is_due(place: Place) -> None:
    where = place.store.write(lambda uow: cluster(uow))
    place.store.write(lambda uow: uow.queues.add(queue((where.pool.id,))))
    row = place.store.write(submit)
    now = place.step().now
    place.step(due={row.id: now}, promises=(Promise(row.id, now, now, "tenant", ()),))
    node = where.nodes[0].id
    placed = TaskPlacement(0, node, ((where.devices[node][0], 1000),))
    place.step(
        starts=(Start(row.id, (placed,)),), promises=(Promise(row.id, now, now, "tenant", ()),)
    )
    started = place.job(row)
    assert (started.status, started.promised_since, started.promised_start_at) == (
        "starting", None, None,
    )  # fmt: skip
    assert started.due_at is not None
    (held,) = place.store.read(lambda uow: uow.allocations.find())
    assert (held.queue_id, held.user_id) == ("queue", "user")


def test_a_claim_lasts_one_pass_longer_than_its_victims(place: Place) -> None:
    where = place.store.write(lambda uow: cluster(uow))
    victim = running(place.store, where, 0)
    row = place.store.write(submit)
    wanted = (Preemption(victim.id, victim.job_id, row.id, "reclaim"),)
    place.step(preemptions=wanted)
    assert place.job(row).claimed
    (pending,) = place.step(preemptions=wanted).pending  # overtaken by itself
    assert pending.claimed
    place.step()
    assert place.job(row).claimed
    place.store.write(lambda uow: end(uow, victim))
    (pending,) = place.step().pending
    assert pending.claimed  # what was freed for it is its own in this plan
    assert not place.job(row).claimed
    (pending,) = place.step().pending
    assert not pending.claimed


def test_another_leader_stops_all_of_it(place: Place) -> None:
    where = place.store.write(lambda uow: cluster(uow))
    victim = running(place.store, where, 0)
    row = place.store.write(submit)
    place.step()
    place.store.write(lambda uow: uow.raise_epoch(loop.SHARD, "another"))
    place.step(preemptions=(Preemption(victim.id, victim.job_id, row.id, "reclaim"),))
    place.step(due={row.id: 1.0})
    left = place.job(row)
    assert (left.claimed, left.due_at) == (False, None)


def test_usage_of_what_runs_and_ended(place: Place) -> None:
    where = place.store.write(lambda uow: cluster(uow))
    gang = running(place.store, where, 0)
    place.store.write(
        lambda uow: uow.allocations.change_many(
            [one.id for one in uow.allocations.find()], {"queue_id": "queue", "user_id": "user"}
        )
    )
    told = place.step()
    assert set(told.usage) == {("queue", "tenant", "user")}
    place.store.write(lambda uow: end(uow, gang))
    fresh = Collector({}, CollectSettings())
    after = place.store.read(fresh.collect).snapshot
    key = ("queue", "tenant", "user")
    assert after.usage[key] == pytest.approx(told.usage[key], rel=1e-3)


def test_preemption_end_and_cancel_at_once(store: DatabaseStore) -> None:
    """Whoever is first: nobody waits for ever, and what is marked is marked as a whole."""
    where = store.write(lambda uow: cluster(uow))
    hints, ids = Hints(), RandomIds()
    epoch = store.write(lambda uow: uow.raise_epoch(loop.SHARD, "me"))
    preempting = Preempting(store, hints, ids, loop.SHARD)
    actions = JobActions(services(store, hints, ids))
    for number in range(8):
        pair = [running(store, where, device) for device in (0, 1)]
        row = store.write(submit)
        wanted = [Preemption(one.id, one.job_id, row.id, "priority") for one in pair]
        doing: list[Callable[[], Any]] = [
            lambda wanted=wanted: preempting.commit(epoch, wanted),
            lambda one=pair[0]: store.write(lambda uow: gone(uow, one)),
            lambda one=pair[1]: actions.act(Caller("tenant", "user"), one.job_id, "cancel", None),
        ]
        with ThreadPoolExecutor(3) as threads:
            for done in [
                threads.submit(work) for work in doing[number % 3 :] + doing[: number % 3]
            ]:
                done.result(60)
        first, second = store.read(
            lambda uow, pair=pair: [uow.attempts.get(one.id) for one in pair]
        )
        claimed = store.read(lambda uow, row=row: uow.jobs.get(row.id)).claimed
        assert second.stop_reason == "cancelled"  # which wins whenever it comes
        assert (first.stop_reason == "preempted") is claimed
        assert (second.preempted_for == row.id) is claimed
        store.write(lambda uow, pair=pair: [close(uow, one) for one in pair])
    assert store.read(lambda uow: uow.quotas.recount()) == []


def gone(uow: Any, of: Attempt) -> int:
    """The node says that every task of it went."""
    return uow.tasks.gone(
        [TaskEnd(one.id, exit_code=0) for one in uow.tasks.of_attempts([of.id])], uow.now()
    )


def close(uow: Any, of: Attempt) -> None:
    """The end of an attempt, as its conductor writes it."""
    gone(uow, of)
    uow.quotas.give_back("tenant", {"jobs:running": 1})
    uow.attempts.change(of.id, {"status": "ended", "live": None})
    uow.jobs.change(of.job_id, {"status": "cancelled", "live_elements": 0})


def services(store: DatabaseStore, hints: Any, ids: Any) -> Any:
    return SimpleNamespace(store=store, hints=hints, ids=ids)
