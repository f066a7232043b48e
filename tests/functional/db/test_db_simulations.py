# SPDX-License-Identifier: Apache-2.0
"""Simulations as rows, and the lease of the one that runs."""

from __future__ import annotations

from database_rows import THEN, at, new_id

from gpuservice.db.store import DatabaseStore
from gpuservice.domain.ports_store import Page, Where
from gpuservice.domain.simulations import Simulation


def simulation(**values: object) -> Simulation:
    row: dict[str, object] = {
        "id": new_id(), "created_at": THEN, "updated_at": THEN, "name": "s", "user_id": "ada",
        "request": {"from": "now", "change": {"gpus": {"a100-80gb": 16}}},
    }  # fmt: skip
    return Simulation(**{**row, **values})  # type: ignore[arg-type]


def test_a_simulation_comes_back_as_it_was(store: DatabaseStore) -> None:
    rows = tuple({"submit_s": number, "duration_s": 1.5} for number in range(2000))
    row = simulation(workload=rows, resolved={"workload": ["q"] * 2000}, created_at=at(1))
    store.write(lambda uow: uow.simulations.add(row))
    assert store.read(lambda uow: uow.simulations.get(row.id)) == row
    result = {"base": {"wait_s": {"mean": 0.25}}}
    values = {"status": "succeeded", "result": result, "ended_at": at(5), "progress": 100}
    assert store.write(lambda uow: uow.simulations.change(row.id, values))
    now = store.read(lambda uow: uow.simulations.get(row.id))
    assert now is not None
    assert (now.result, now.ended_at, now.progress, now.generation) == (result, at(5), 100, 1)
    page = Page((Where("status", "eq", "succeeded"),))
    assert [one.id for one in store.read(lambda uow: uow.simulations.page(page))] == [row.id]
    assert store.write(lambda uow: uow.simulations.remove(row.id))


def test_a_lease_is_held_for_longer_only_by_its_holder(store: DatabaseStore) -> None:
    token = store.write(lambda uow: uow.claim("simulation", "all", "one", 60))
    assert token is not None
    assert store.write(lambda uow: uow.claim("simulation", "all", "two", 60)) is None
    assert store.write(lambda uow: uow.renew("simulation", "all", token, -10))
    assert not store.write(lambda uow: uow.renew("simulation", "all", "other", 60))
    heir = store.write(lambda uow: uow.claim("simulation", "all", "two", 60))
    assert heir is not None
    assert not store.write(lambda uow: uow.renew("simulation", "all", token, 60))
