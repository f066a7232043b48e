# SPDX-License-Identifier: Apache-2.0
"""Explanations as the scheduler keeps them: what is written, when, and how much at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from database_rows import job

from gpuservice.db.store import DatabaseStore
from gpuservice.domain.work import Job
from gpuservice.planner.plan_types import ReasonFact, Waiting
from gpuservice.scheduler import explaining
from gpuservice.scheduler.explaining import Explaining


def waits(row: Job, position: int = 1, code: str = "insufficient_gpus") -> Waiting:
    return Waiting(row.id, row.project_id, (ReasonFact(code, f"It waits: {code}.", {}),), position)


def queued(store: DatabaseStore, count: int) -> list[Job]:
    rows = [job(waiting_elements=1) for _ in range(count)]
    store.write(lambda uow: uow.jobs.add_many(rows))
    return rows


def codes(store: DatabaseStore, rows: Sequence[Job]) -> list[str | None]:
    found = store.read(lambda uow: {one.id: one for one in uow.jobs.get_many([r.id for r in rows])})
    return [found[row.id].waiting_code for row in rows]


def test_what_changed_is_written_and_is_no_change_of_the_job(store: DatabaseStore) -> None:
    (row,) = queued(store, 1)
    keeper = Explaining(store)
    assert keeper.save([waits(row)]) == 1
    assert keeper.save([waits(row)]) == 0
    assert keeper.save([waits(row, code="project_quota")]) == 1
    after = store.read(lambda uow: uow.jobs.get(row.id))
    assert after is not None
    assert after.waiting_code == "project_quota"
    assert (after.version, after.updated_at) == (row.version, row.updated_at)


def test_a_job_that_started_meanwhile_is_written_when_it_waits_again(store: DatabaseStore) -> None:
    (row,) = queued(store, 1)
    keeper = Explaining(store)
    entry = waits(row, code="retry_backoff")
    keeper.forget([row.id])  # it starts after the plan, before its explanation is kept
    store.write(lambda uow: uow.jobs.change(row.id, {"waiting_elements": 0}))
    keeper.save([entry])
    assert codes(store, [row]) == [None]
    store.write(lambda uow: uow.jobs.change(row.id, {"waiting_elements": 1}))
    assert keeper.save([entry]) == 1
    assert codes(store, [row]) == ["retry_backoff"]


def test_of_a_long_line_moved_numbers_share_a_budget(
    store: DatabaseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explaining, "REFRESHED", 10)
    rows = queued(store, 40)
    keeper = Explaining(store)
    assert keeper.save([waits(row, place) for place, row in enumerate(rows, 1)]) == 40
    moved = [waits(row, place) for place, row in enumerate(rows[1:], 1)]
    assert keeper.save(moved) == 10
    told = store.read(lambda uow: uow.jobs.get(rows[1].id))
    assert told is not None and told.waiting_position == 1  # the front of the line comes first
    for _ in range(10):
        keeper.save(moved)
    positions = [
        found.waiting_position
        for row in rows[1:]
        if (found := store.read(lambda uow, ident=row.id: uow.jobs.get(ident)))
    ]
    assert positions == list(range(1, 40))
    other = replace(moved[-1], reasons=(ReasonFact("project_quota", "Quota.", {}),))
    keeper.save([*moved[:-1], other])
    assert codes(store, [rows[-1]]) == ["project_quota"]  # another reason is no moved number


def test_between_refreshes_only_news_is_written(store: DatabaseStore) -> None:
    first, second, third = queued(store, 3)
    keeper = Explaining(store)
    assert keeper.lacks(2)
    keeper.save([waits(first, 1), waits(second, 2)])
    assert not keeper.lacks(2)
    assert keeper.lacks(3)

    moved = [waits(first, 5), waits(second, 6, "project_quota"), waits(third, 7)]
    assert keeper.save(moved, refresh=False) == 2
    assert codes(store, [second, third]) == ["project_quota", "insufficient_gpus"]
    kept = store.read(lambda uow: uow.jobs.get(first.id))
    assert kept is not None and kept.waiting_position == 1
    assert keeper.save(moved) == 1  # the number that moved
