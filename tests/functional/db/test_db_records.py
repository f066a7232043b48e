# SPDX-License-Identifier: Apache-2.0
"""The smaller records: elements, explanations, ports, idempotency keys, epochs, work leases."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from database_rows import THEN, at, new_id

from gpuservice.db.store import DatabaseStore
from gpuservice.domain.errors import StaleEpoch
from gpuservice.domain.ports_store import Delta, Where
from gpuservice.domain.work import Explanation, IdempotencyRecord, JobElement


def element(job_id: str, index: int, status: str = "running", **values: object) -> JobElement:
    row = JobElement(job_id=job_id, index=index, project_id="tenant", status=status, queued_at=THEN)
    return replace(row, **values)  # type: ignore[arg-type]


def test_elements(store: DatabaseStore) -> None:
    one, two = new_id(), new_id()
    rows = [element(one, n, "queued" if n % 2 else "running") for n in range(6)]
    store.write(lambda uow: uow.elements.add_many([*rows, element(two, 0)]))
    store.write(lambda uow: uow.elements.add_many([]))

    assert store.read(lambda uow: uow.elements.get(one, 3)) == rows[3]
    assert store.read(lambda uow: uow.elements.get(one, 3, lock=True)) == rows[3]
    assert store.read(lambda uow: uow.elements.get(one, 9)) is None
    assert store.read(lambda uow: uow.elements.of_job(one)) == rows
    assert store.read(lambda uow: uow.elements.of_job(one, limit=2, after=1)) == rows[2:4]
    queued = Where("status", "eq", "queued")
    assert store.read(lambda uow: uow.elements.of_job(one, queued)) == rows[1::2]
    keys = [(one, 5), (two, 0), (one, 0), (two, 7)]
    found = store.read(lambda uow: uow.elements.of_keys(keys))
    assert {(row.job_id, row.index) for row in found} == {(one, 5), (two, 0), (one, 0)}

    values = {"status": "starting", "attempt": Delta(1)}
    assert store.write(lambda uow: uow.elements.change(one, 1, values, queued))
    assert not store.write(lambda uow: uow.elements.change(one, 1, values, queued))
    now = store.read(lambda uow: uow.elements.get(one, 1))
    assert now is not None
    assert (now.status, now.attempt, now.version) == ("starting", 1, 2)


def test_elements_that_back_off(store: DatabaseStore) -> None:
    one, two = new_id(), new_id()
    store.write(lambda uow: uow.elements.add_many([
        element(one, 0, "queued", not_before=at(10)),
        element(one, 1, "queued", not_before=at(20)),
        element(one, 2, "queued"),
        element(one, 3, "cancelled", not_before=at(10)),
        element(two, 0, "queued", not_before=at(5)),
    ]))  # fmt: skip

    assert store.read(lambda uow: uow.elements.backing_off(at(0))) == {one: 2, two: 1}
    assert store.read(lambda uow: uow.elements.backing_off(at(10))) == {one: 1}


def test_explanations(store: DatabaseStore) -> None:
    first = Explanation(job_id=new_id(), digest="a", body={"code": "fragmented"}, evaluated_at=THEN)
    other = replace(first, job_id=new_id())
    store.write(lambda uow: uow.save_explanations([first, other]))
    newer = replace(first, digest="b", body={"code": "évaluation"})
    store.write(lambda uow: uow.save_explanations([newer]))
    store.write(lambda uow: uow.save_explanations([]))

    assert store.read(lambda uow: uow.explanation(first.job_id)) == newer
    ids = [first.job_id, other.job_id, new_id()]
    digests = {first.job_id: "b", other.job_id: "a"}
    assert store.read(lambda uow: uow.explanation_digests(ids)) == digests
    store.write(lambda uow: uow.drop_explanations([first.job_id]))
    assert store.read(lambda uow: uow.explanation(first.job_id)) is None


def test_ports(store: DatabaseStore) -> None:
    ports = (29500, 29501)
    mine, other = new_id(), new_id()

    def lease(attempt_id: str, address: str = "10.0.0.1") -> int | None:
        leased = store.write(lambda uow: uow.lease_ports(ports, {attempt_id: address}))
        return leased.get(attempt_id)

    assert lease(mine) == 29500
    assert lease(other) == 29501
    assert lease(new_id()) is None
    assert lease(new_id(), "10.0.0.2") == 29500
    store.write(lambda uow: uow.release_ports([mine]))
    assert lease(new_id()) == 29500


def test_many_ports_in_one_transaction(store: DatabaseStore) -> None:
    ports = (29500, 29501)
    a, b, c, d = (new_id() for _ in range(4))
    wanted = {a: "10.0.0.1", b: "10.0.0.1", c: "10.0.0.2", d: "10.0.0.1"}
    leased = store.write(lambda uow: uow.lease_ports(ports, wanted))
    assert leased == {a: 29500, b: 29501, c: 29500}


def test_idempotency_keys(store: DatabaseStore) -> None:
    record = IdempotencyRecord(
        project_id="p", user_id="u", path="/v1/jobs", key="K", digest="d", status=None,
        body=None, created_at=THEN,
    )  # fmt: skip
    assert store.write(lambda uow: uow.save_idempotency(record))
    assert not store.write(lambda uow: uow.save_idempotency(record))
    assert store.write(lambda uow: uow.save_idempotency(replace(record, key="k")))
    done = replace(record, status=202, body={"job": {"id": "1"}}, headers={"Location": "/v1/j"})
    store.write(lambda uow: uow.finish_idempotency(done))

    assert store.read(lambda uow: uow.idempotency("p", "u", "/v1/jobs", "K")) == done
    assert store.read(lambda uow: uow.idempotency("q", "u", "/v1/jobs", "K")) is None
    assert store.write(lambda uow: uow.purge_idempotency(at(0))) == 0
    assert store.write(lambda uow: uow.purge_idempotency(at(1))) == 2


def test_epochs(store: DatabaseStore) -> None:
    assert store.write(lambda uow: uow.raise_epoch("s", "one")) == 1
    assert store.write(lambda uow: uow.raise_epoch("s", "two")) == 2
    assert store.write(lambda uow: uow.raise_epoch("t", "one")) == 1

    store.write(lambda uow: uow.check_epoch("s", 2))
    for shard, epoch in (("s", 1), ("s", 3), ("none", 1)):
        with pytest.raises(StaleEpoch):
            store.write(lambda uow, s=shard, e=epoch: uow.check_epoch(s, e))


def test_work_leases(store: DatabaseStore) -> None:
    token = store.write(lambda uow: uow.claim("pool", "p", "one", 60))
    assert token
    assert store.write(lambda uow: uow.claim("pool", "p", "two", 60)) is None
    assert store.write(lambda uow: uow.claim("node", "p", "two", 60))
    assert store.write(lambda uow: uow.holds("pool", "p", token))
    assert not store.write(lambda uow: uow.holds("pool", "p", "other"))

    store.write(lambda uow: uow.unclaim("pool", "p", "other"))
    assert store.write(lambda uow: uow.holds("pool", "p", token))
    store.write(lambda uow: uow.unclaim("pool", "p", token))
    assert not store.write(lambda uow: uow.holds("pool", "p", token))

    gone = store.write(lambda uow: uow.claim("pool", "p", "one", -1))
    later = store.write(lambda uow: uow.claim("pool", "p", "two", 60))
    assert gone
    assert later
    assert not store.write(lambda uow: uow.holds("pool", "p", gone))
    assert store.write(lambda uow: uow.holds("pool", "p", later))


def test_time_is_the_same_all_through_a_unit_of_work(store: DatabaseStore) -> None:
    first, second = store.read(lambda uow: (uow.now(), uow.now()))
    later = store.read(lambda uow: uow.now())

    assert first == second
    assert first.utcoffset() == timedelta(0)
    assert first < later
