# SPDX-License-Identifier: Apache-2.0
"""What every repository can do, the same on each database."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from database_rows import THEN, at, attempt, device, event, host, job, new_id, node, pool, task

from gpuservice.db.store import DatabaseStore
from gpuservice.domain.errors import Invalid, NameTaken
from gpuservice.domain.inventory import Flavor, GpuType
from gpuservice.domain.ports_store import Delta, Page, UnitOfWork, Where
from gpuservice.domain.work import Artifact, CheckpointSet, Queue, ServiceRecord

DATES: dict[str, Any] = {"created_at": THEN, "updated_at": THEN}
LONG = "x" * 100_000


def full_rows() -> list[tuple[str, Any]]:
    """One row of each noun, with the awkward values: accents, emoji, empty, long, nested."""
    a_job = job(
        spec={"env": {"GREETING": "Grüße 🚀"}, "script": LONG}, labels={"team": "vision"},
        deadline_at=at(60), evidence={"a": [1, None, {"b": 0.5}]}, waiting_summary="s" * 3000,
    )  # fmt: skip
    an_attempt = attempt(a_job, due_at=at(9.000001), attention=True)
    return [
        ("gpu_types", GpuType(
            id=new_id(), **DATES, name="h200", vendor="nvidia", memory_mib=143771,
            pci_ids=("10de:2335",), partitions=({"name": "1g.18gb", "milli": 125},))),
        ("hosts", host(name="Größe")),
        ("devices", device("host")),
        ("flavors", Flavor(
            id=new_id(), **DATES, name="h200.4", gpu_type="h200", gpu_count=4,
            projects=("p1", "p2"), realised_as={"nova": "g4"})),
        ("pools", pool(fault={"code": "x", "summary": "y"}, shared_with=("*",))),
        ("nodes", node("pool", capabilities={"own_uid": True}, secret_hash="ab" * 32)),
        ("queues", Queue(
            id=new_id(), **DATES, project_id=None, name="default", projects=("*",),
            nominal={"h200": 8000}, name_key="*/default")),
        ("jobs", a_job),
        ("attempts", an_attempt),
        ("tasks", task(an_attempt, "node", signal=9, counted_gpus={"gpus": 500})),
        ("artifacts", Artifact(
            id=new_id(), job_id=a_job.id, attempt_id=an_attempt.id, task_id=new_id(), index=0,
            attempt=1, rank=0, project_id="tenant", path="out/modèle.pt", size=5 << 40,
            sha256="0" * 64, object_key="k" * 900, created_at=THEN)),
        ("checkpoints", CheckpointSet(
            id=new_id(), job_id=a_job.id, index=0, attempt=1, rank=0, seq=3, project_id="tenant",
            files=({"path": "a", "size": 1, "sha256": "0" * 64},), object_prefix="c/1",
            created_at=THEN)),
        ("services", ServiceRecord(
            id=new_id(), binary="gpuservice-api", host="h", seen_at=THEN, started_at=THEN,
            version="1")),
    ]  # fmt: skip


def test_what_goes_in_comes_out(store: DatabaseStore) -> None:
    rows = full_rows()

    def add(uow: UnitOfWork) -> None:
        for noun, row in rows:
            getattr(uow, noun).add(row)

    store.write(add)

    for noun, row in rows:
        assert store.read(lambda uow, n=noun, r=row: getattr(uow, n).get(r.id)) == row
        assert store.read(lambda uow, n=noun: getattr(uow, n).get(new_id())) is None
        assert store.read(lambda uow, n=noun, r=row: getattr(uow, n).get(r.id, lock=True)) == row


def test_names_differ_by_case_and_accent(store: DatabaseStore) -> None:
    names = ["gpu", "GPU", "gpü", "Gpu"]
    store.write(lambda uow: uow.hosts.add_many([host(name=name) for name in names]))

    found = store.read(lambda uow: uow.hosts.find(Where("name", "eq", "GPU")))
    assert [one.name for one in found] == ["GPU"]


def test_taken_name(store: DatabaseStore) -> None:
    store.write(lambda uow: uow.hosts.add(host(name="twin")))

    with pytest.raises(NameTaken) as refused:
        store.write(lambda uow: uow.hosts.add(host(name="twin")))

    assert refused.value.pointer == "name"
    assert store.read(lambda uow: uow.hosts.count()) == 1


def test_name_of_a_deleted_pool_is_free(store: DatabaseStore) -> None:
    first = pool(name="p", name_key="owner/p")
    store.write(lambda uow: uow.pools.add(first))
    store.write(lambda uow: uow.pools.change(first.id, {"status": "deleted", "name_key": None}))

    store.write(lambda uow: uow.pools.add(pool(name="p", name_key="owner/p")))

    assert store.read(lambda uow: uow.pools.count(Where("name", "eq", "p"))) == 2


def test_change_is_conditional_and_counts_versions(store: DatabaseStore) -> None:
    row = host(state="up")
    store.write(lambda uow: uow.hosts.add(row))

    def change(uow: UnitOfWork) -> tuple[bool, bool, bool]:
        return (
            uow.hosts.change(row.id, {"state": "down"}, Where("version", "eq", 7)),
            uow.hosts.change(row.id, {"state": "down"}, Where("state", "in", ("up",))),
            uow.hosts.change(new_id(), {"state": "down"}),
        )

    assert store.write(change) == (False, True, False)
    after = store.read(lambda uow: uow.hosts.get(row.id))
    assert after is not None
    assert (after.state, after.version, after.generation) == ("down", 2, 1)
    assert after.updated_at > row.updated_at + timedelta(seconds=1)

    store.write(lambda uow: uow.hosts.change(row.id, {"rack": "r1"}, edit=True))
    after = store.read(lambda uow: uow.hosts.get(row.id))
    assert after is not None
    assert (after.rack, after.version, after.generation) == ("r1", 3, 2)


def test_same_values_again_still_count_as_changed(store: DatabaseStore) -> None:
    row = task(attempt(job()), "node")
    store.write(lambda uow: uow.tasks.add(row))

    assert store.write(lambda uow: uow.tasks.change(row.id, {"status": "assigned"}))
    assert store.write(lambda uow: uow.tasks.change(row.id, {"status": "assigned"}))


def test_deltas(store: DatabaseStore) -> None:
    rows = [job(waiting_elements=10) for _ in range(3)]
    ids = [row.id for row in rows]
    store.write(lambda uow: uow.jobs.add_many(rows))

    def change(uow: UnitOfWork) -> None:
        uow.jobs.change(ids[0], {"waiting_elements": Delta(-4), "live_elements": Delta(4)})
        uow.jobs.change_many(ids, {"failed_elements": Delta(1)})
        assert uow.jobs.change_each(
            [(ident, {"waiting_elements": Delta(-n), "name": f"n{n}"})
             for n, ident in enumerate(ids)]) == 3  # fmt: skip
        assert uow.jobs.change_each([]) == 0

    store.write(change)

    after = {one.id: one for one in store.read(lambda uow: uow.jobs.get_many(ids))}
    assert [after[ident].waiting_elements for ident in ids] == [6, 9, 8]
    assert [after[ident].failed_elements for ident in ids] == [1, 1, 1]
    assert [after[ident].name for ident in ids] == ["n0", "n1", "n2"]
    assert after[ids[0]].live_elements == 4
    assert [after[ident].version for ident in ids] == [4, 3, 3]


def test_change_each_with_a_condition_counts_what_matched(store: DatabaseStore) -> None:
    rows = [job(status="queued"), job(status="held"), job(status="queued")]
    store.write(lambda uow: uow.jobs.add_many(rows))

    matched = store.write(lambda uow: uow.jobs.change_each(
        [(row.id, {"name": "x"}) for row in rows], Where("status", "eq", "queued")))  # fmt: skip

    assert matched == 2
    assert store.read(lambda uow: uow.jobs.count(Where("name", "eq", "x"))) == 2


@pytest.mark.parametrize(
    ("op", "statuses", "wanted"),
    [
        ("in", ["queued", "running"], 2),
        ("in", [], 0),
        ("notin", ["queued", "running"], 1),
        ("notin", [], 3),
    ],
)
@pytest.mark.parametrize("counted", [True, False])
def test_change_each_with_a_list(
    store: DatabaseStore, op: Any, statuses: list[str], wanted: int, counted: bool
) -> None:
    rows = [job(status="queued"), job(status="held"), job(status="queued")]
    store.write(lambda uow: uow.jobs.add_many(rows))

    changes = [(row.id, {"name": "x"}) for row in rows]
    where = Where("status", op, statuses)
    store.write(lambda uow: uow.jobs.change_each(changes, where, counted=counted))

    assert store.read(lambda uow: uow.jobs.count(Where("name", "eq", "x"))) == wanted


def test_many_rows_at_once(store: DatabaseStore) -> None:
    rows = [job() for _ in range(1201)]
    ids = [row.id for row in rows]
    store.write(lambda uow: uow.jobs.add_many(rows))

    assert store.write(lambda uow: uow.jobs.change_many(ids, {"priority": 1})) == 1201
    found = store.read(lambda uow: uow.jobs.get_many([*ids, new_id()]))
    assert [one.id for one in found] == sorted(ids)
    assert {one.priority for one in found} == {1}


CONDITIONS: list[tuple[Where, set[str]]] = [
    (Where("priority", "eq", 2), {"b"}),
    (Where("priority", "ne", 2), {"a", "c", "d"}),
    (Where("priority", "in", (1, 2)), {"a", "b"}),
    (Where("priority", "in", ()), set()),
    (Where("priority", "notin", (1, 2)), {"c", "d"}),
    (Where("priority", "lt", 2), {"a"}),
    (Where("priority", "le", 2), {"a", "b"}),
    (Where("priority", "gt", 3), {"d"}),
    (Where("priority", "ge", 3), {"c", "d"}),
    (Where("failure_class", "null"), {"a", "b"}),
    (Where("failure_class", "notnull"), {"c", "d"}),
    (Where("failure_class", "ne", "data"), {"a", "b", "d"}),
    (Where("failure_class", "notin", ("data",)), {"a", "b", "d"}),
    (Where("queued_at", "gt", at(2)), {"d"}),
    (Where("on_hold", "eq", True), {"a"}),
]


@pytest.mark.parametrize(
    ("where", "names"),
    CONDITIONS,
    ids=lambda value: str(sorted(value) if isinstance(value, set) else value)[:40],
)
def test_conditions(store: DatabaseStore, where: Where, names: set[str]) -> None:
    failures = [None, None, "data", "image"]
    store.write(lambda uow: uow.jobs.add_many([
        job(name="abcd"[n], priority=n + 1, queued_at=at(n), failure_class=failures[n],
            on_hold=n == 0)
        for n in range(4)
    ]))  # fmt: skip

    assert {one.name for one in store.read(lambda uow: uow.jobs.find(where))} == names
    assert store.read(lambda uow: uow.jobs.count(where)) == len(names)


def test_unknown_field(store: DatabaseStore) -> None:
    with pytest.raises(Invalid):
        store.read(lambda uow: uow.jobs.find(Where("colour", "eq", "red")))


def test_find_in_order_with_limit(store: DatabaseStore) -> None:
    store.write(lambda uow: uow.jobs.add_many([job(name=str(n), priority=n) for n in range(5)]))

    found = store.read(lambda uow: uow.jobs.find(
        Where("priority", "gt", 0), order=(("priority", "desc"),), limit=3, lock=True,
        skip_locked=True))  # fmt: skip

    assert [one.name for one in found] == ["4", "3", "2"]


def test_remove(store: DatabaseStore) -> None:
    row = job(labels={"a": "b"})
    store.write(lambda uow: uow.jobs.add(row))

    assert not store.write(lambda uow: uow.jobs.remove(row.id, Where("status", "eq", "held")))
    assert store.write(lambda uow: uow.jobs.remove(row.id))
    assert not store.write(lambda uow: uow.jobs.remove(row.id))
    assert store.read(lambda uow: uow.jobs.count(labels={"a": "b"})) == 0


def test_labels(store: DatabaseStore) -> None:
    rows = [job(labels={"team": "a"}), job(labels={"team": "a", "Tier": "x"}), job()]
    store.write(lambda uow: uow.jobs.add_many(rows))

    def labelled(labels: dict[str, str]) -> set[str]:
        found = store.read(lambda uow: uow.jobs.page(Page(labels=labels)))
        assert store.read(lambda uow: uow.jobs.count(labels=labels)) == len(found)
        return {one.id for one in found}

    assert labelled({"team": "a"}) == {rows[0].id, rows[1].id}
    assert labelled({"team": "a", "Tier": "x"}) == {rows[1].id}
    assert labelled({"tier": "x"}) == set()

    store.write(lambda uow: uow.jobs.change(rows[0].id, {"labels": {"team": "b"}}))
    assert labelled({"team": "a"}) == {rows[1].id}
    assert labelled({"team": "b"}) == {rows[0].id}


SORTS = [
    (("created_at", "asc"),),
    (("created_at", "desc"),),
    (("priority", "desc"), ("name", "asc")),
    (("deadline_at", "asc"),),
    (("deadline_at", "desc"), ("priority", "asc")),
    (("id", "desc"),),
]


@pytest.mark.parametrize("sort", SORTS, ids=str)
@pytest.mark.parametrize("size", [1, 3, 50])
def test_pages_meet_every_row_once_in_order(
    store: DatabaseStore, sort: tuple[tuple[str, str], ...], size: int
) -> None:
    rows = [
        job(name=f"n{n % 3}", priority=n % 2, created_at=at(n // 4),
            deadline_at=None if n % 3 else at(n // 6))
        for n in range(20)
    ]  # fmt: skip
    store.write(lambda uow: uow.jobs.add_many([*rows, job("other")]))
    mine = (Where("project_id", "eq", "tenant"),)

    met: list[Any] = []
    marker = None
    while True:
        page = Page(mine, sort, size, marker)
        found = store.read(lambda uow, page=page: uow.jobs.page(page))
        met.extend(found)
        if len(found) < size:
            break
        marker = found[-1].id

    assert sorted(one.id for one in met) == sorted(row.id for row in rows)
    keys = [tuple(getattr(one, key) for key, _ in sort) for one in met]
    for before, after in pairwise(keys):
        assert in_order(before, after, [way for _, way in sort])


def in_order(before: tuple[Any, ...], after: tuple[Any, ...], ways: list[str]) -> bool:
    for one, two, way in zip(before, after, ways, strict=True):
        if one == two:
            continue
        if one is None or two is None:
            return two is None
        return bool(one < two) == (way == "asc")
    return True


def test_vanished_marker(store: DatabaseStore) -> None:
    foreign = job("other")
    store.write(lambda uow: uow.jobs.add(foreign))

    for marker in (new_id(), foreign.id):
        page = Page((Where("project_id", "eq", "tenant"),), marker=marker)
        with pytest.raises(Invalid) as refused:
            store.read(lambda uow, page=page: uow.jobs.page(page))
        assert refused.value.pointer == "marker"


def test_only_one_live_attempt_of_an_element(store: DatabaseStore) -> None:
    of = job()
    first = attempt(of)
    store.write(lambda uow: uow.attempts.add(first))

    with pytest.raises(Exception, match=r"uplicate|UNIQUE|unique"):
        store.write(lambda uow: uow.attempts.add(attempt(of, 2)))
    store.write(lambda uow: uow.attempts.change(first.id, {"live": None, "status": "ended"}))
    store.write(lambda uow: uow.attempts.add(attempt(of, 2)))
    store.write(lambda uow: uow.attempts.add(replace(attempt(of, 3), index=1)))

    assert store.read(lambda uow: uow.attempts.count()) == 3


def test_events_by_seq(store: DatabaseStore) -> None:
    target = new_id()
    made = [event(target, action=f"job.a{n}", at=at(-n)) for n in range(7)]
    store.write(lambda uow: uow.events.add_many(made[:4]))
    for one in made[4:]:
        store.write(lambda uow, one=one: uow.events.add(one))
    mine = (Where("target_id", "eq", target),)

    found = store.read(lambda uow: uow.events.page(Page(mine, limit=5)))
    assert [one.action for one in found] == [f"job.a{n}" for n in range(5)]
    rest = store.read(lambda uow: uow.events.page(Page(mine, limit=5, marker=found[-1].id)))
    assert [one.action for one in rest] == ["job.a5", "job.a6"]
    seqs = [one.seq for one in (*found, *rest)]
    assert seqs == sorted(seqs, key=lambda seq: seq or 0)
    assert replace(found[0], seq=None) == made[0]
    back = store.read(lambda uow: uow.events.page(Page(mine, (("at", "desc"),), 2)))
    assert [one.action for one in back] == ["job.a6", "job.a5"]
