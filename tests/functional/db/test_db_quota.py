# SPDX-License-Identifier: Apache-2.0
"""The ledger: limits, takes, returns, and the recount from the counted rows."""

from __future__ import annotations

import pytest
from database_rows import OWNER, cluster, end, start, submit
from sqlalchemy import Engine, update

from gpuservice.db.store import DatabaseStore
from gpuservice.db.tables import QUOTA_USAGE
from gpuservice.domain.errors import QuotaExceeded
from gpuservice.domain.ports_store import Share
from gpuservice.domain.work import QuotaState


def test_limits_stand_over_defaults(store: DatabaseStore) -> None:
    store.write(lambda uow: uow.quotas.set_limits("p", {"gpus": 8000, "jobs:queued": 5}))
    store.write(lambda uow: uow.quotas.set_limits("p", {"gpus": 4000, "jobs:queued": None}))
    store.write(lambda uow: uow.quotas.take("p", {"gpus": 1500, "jobs:running": 2}))

    assert store.read(lambda uow: uow.quotas.limits("p")) == {"gpus": 4000}
    assert store.read(lambda uow: uow.quotas.states("p")) == [
        QuotaState(project_id="p", name="gpus", limit=4000, in_use=1500),
        QuotaState(project_id="p", name="jobs:queued", limit=32, in_use=0),
        QuotaState(project_id="p", name="jobs:running", limit=-1, in_use=2),
    ]
    store.write(lambda uow: uow.quotas.set_limits("q", {"pools": 1}))
    assert store.read(lambda uow: uow.quotas.projects()) == ["p", "q"]
    store.write(lambda uow: uow.quotas.drop_limits("p"))
    assert store.read(lambda uow: uow.quotas.limits("p")) == {}


def test_take_is_all_or_nothing(store: DatabaseStore) -> None:
    store.write(lambda uow: uow.quotas.set_limits("p", {"gpus": 4000, "gpus:h200": 2000}))
    store.write(lambda uow: uow.quotas.take("p", {"gpus": 1500, "gpus:h200": 1500}))

    with pytest.raises(QuotaExceeded) as refused:
        store.write(lambda uow: uow.quotas.take("p", {"gpus": 1000, "gpus:h200": 1000}))

    assert refused.value.meta == {"limit": "gpus:h200", "value": 2, "used": 1.5, "asked": 1}
    assert store.read(lambda uow: uow.quotas.usage("p")) == {"gpus": 1500, "gpus:h200": 1500}


def test_a_limit_below_use_stops_takes_only(store: DatabaseStore) -> None:
    store.write(lambda uow: uow.quotas.take("p", {"gpus": 3000}))
    store.write(lambda uow: uow.quotas.set_limits("p", {"gpus": 1000}))

    with pytest.raises(QuotaExceeded):
        store.write(lambda uow: uow.quotas.take("p", {"gpus": 1}))
    store.write(lambda uow: uow.quotas.give_back("p", {"gpus": 2000}))
    with pytest.raises(QuotaExceeded):
        store.write(lambda uow: uow.quotas.take("p", {"gpus": 1}))
    store.write(lambda uow: uow.quotas.give_back("p", {"gpus": 1000}))
    store.write(lambda uow: uow.quotas.take("p", {"gpus": 1000}))


def test_unlimited_and_zero(store: DatabaseStore) -> None:
    store.write(lambda uow: uow.quotas.set_limits("p", {"gpus": -1, "pools": 0}))
    store.write(lambda uow: uow.quotas.take("p", {"gpus": 10**12}))

    with pytest.raises(QuotaExceeded):
        store.write(lambda uow: uow.quotas.take("p", {"pools": 1}))
    store.write(lambda uow: uow.quotas.take("p", {"pools": 0}))


def test_more_cannot_be_returned_than_was_taken(store: DatabaseStore) -> None:
    store.write(lambda uow: uow.quotas.take("p", {"gpus": 1}))

    with pytest.raises(Exception, match="in_use"):
        store.write(lambda uow: uow.quotas.give_back("p", {"gpus": 2}))
    assert store.read(lambda uow: uow.quotas.usage("p")) == {"gpus": 1}


def test_recount_follows_a_job_through_its_life(store: DatabaseStore) -> None:
    held = store.write(lambda uow: cluster(uow, nodes=2, gpus=4))
    assert store.read(lambda uow: uow.quotas.recount()) == []
    assert store.read(lambda uow: uow.quotas.usage(OWNER)) == {
        "pools": 1, "nodes": 2, "gpus": 8000, "gpus:h200": 8000,
    }  # fmt: skip

    of = store.write(lambda uow: submit(uow))
    array = store.write(lambda uow: submit(uow, array_size=10, waiting_elements=10))
    assert store.read(lambda uow: uow.quotas.usage("tenant")) == {"jobs:queued": 11}
    assert store.read(lambda uow: uow.quotas.recount()) == []

    shares = [Share(held.all_devices[0], 500), Share(held.all_devices[1], 1000)]
    made = store.write(lambda uow: start(uow, of, [(held.nodes[0].id, shares)]))
    usage = {"jobs:queued": 10, "jobs:running": 1, "gpus": 1500, "gpus:h200": 1500}
    assert store.read(lambda uow: uow.quotas.usage("tenant")) == usage
    assert store.read(lambda uow: uow.quotas.recount()) == []

    assert store.write(lambda uow: end(uow, made)) == 1
    usage = {"jobs:queued": 10, "jobs:running": 0, "gpus": 0, "gpus:h200": 0}
    assert store.read(lambda uow: uow.quotas.usage("tenant")) == usage
    assert store.read(lambda uow: uow.quotas.recount()) == []

    store.write(lambda uow: uow.quotas.give_back("tenant", {"jobs:queued": 10}))
    store.write(lambda uow: uow.jobs.change(array.id, {"status": "cancelled"}))
    assert store.read(lambda uow: uow.quotas.recount()) == []


def test_repair(store: DatabaseStore, engine: Engine) -> None:
    store.write(lambda uow: submit(uow))
    with engine.begin() as connection:
        connection.execute(update(QUOTA_USAGE).values(in_use=7))
    store.write(lambda uow: uow.quotas.take("ghost", {"pools": 3}))

    assert store.read(lambda uow: uow.quotas.recount()) == [
        ("ghost", "pools", 3, 0),
        ("tenant", "jobs:queued", 7, 1),
    ]
    assert store.write(lambda uow: uow.quotas.repair()) == 2
    assert store.read(lambda uow: uow.quotas.recount()) == []
    assert store.read(lambda uow: uow.quotas.usage("tenant")) == {"jobs:queued": 1}


def test_a_move_takes_and_returns_together_or_not_at_all(store: DatabaseStore) -> None:
    """What the start of a job does to the ledger, names without a row among it."""
    store.write(lambda uow: uow.quotas.set_limits("p", {"gpus": 4000, "gpus:h200": 2000}))
    store.write(lambda uow: uow.quotas.take("p", {"jobs:queued": 3}))
    amounts = {"gpus": 1500, "gpus:h200": 1500, "jobs:queued": -1, "jobs:running": 1}
    store.write(lambda uow: uow.quotas.move("p", amounts))
    after = {"gpus": 1500, "gpus:h200": 1500, "jobs:queued": 2, "jobs:running": 1}
    assert store.read(lambda uow: uow.quotas.usage("p")) == after

    with pytest.raises(QuotaExceeded) as refused:
        store.write(lambda uow: uow.quotas.move("p", amounts))
    assert refused.value.meta == {"limit": "gpus:h200", "value": 2, "used": 1.5, "asked": 1.5}
    assert store.read(lambda uow: uow.quotas.usage("p")) == after

    # Lowered below what is in use: nothing more is taken, what comes back is.
    store.write(lambda uow: uow.quotas.set_limits("p", {"gpus": 0, "jobs:queued": 0}))
    store.write(lambda uow: uow.quotas.move("p", {"jobs:queued": -2, "pools": 0}))
    with pytest.raises(QuotaExceeded):
        store.write(lambda uow: uow.quotas.move("p", {"gpus": 1, "jobs:running": 1}))
    store.write(lambda uow: uow.quotas.move("p", {}))
    assert store.read(lambda uow: uow.quotas.usage("p")) == {**after, "jobs:queued": 0}
    with pytest.raises(Exception, match="in_use"):
        store.write(lambda uow: uow.quotas.move("p", {"jobs:queued": -1}))
