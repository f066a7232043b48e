# SPDX-License-Identifier: Apache-2.0
"""Decayed usage and the history of time limits: exact, folded once, whatever breaks meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from database_rows import RandomIds, attempt, job, new_id

from gpuservice.db.repositories.usage import Usage
from gpuservice.db.store import DatabaseStore
from gpuservice.domain.context import Cause
from gpuservice.domain.decay import worth
from gpuservice.domain.errors import StaleEpoch
from gpuservice.domain.job_removal import remove_job
from gpuservice.domain.ports_scheduling import LiveGang
from gpuservice.domain.ports_usage import UsageKey
from gpuservice.domain.work import Allocation
from gpuservice.scheduler import usage
from gpuservice.scheduler.usage import Folding, Reading

DAY = 86400.0
TAU = 7 * DAY
ADA: UsageKey = ("queue", "tenant", "user")
EVE: UsageKey = ("queue", "other", "user")


def ago(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


def had(key: UsageKey, begin: float, end: float | None, milli: int = 1000) -> Allocation:
    """A share held from so many seconds ago to so many seconds ago."""
    queue, project, user = key
    return Allocation(
        id=new_id(), task_id=new_id(), device_id="d", node_id="n", job_id="j", project_id=project,
        milli=milli, allocated_at=ago(begin), released_at=None if end is None else ago(end),
        queue_id=queue, user_id=user,
    )  # fmt: skip


def keep(store: DatabaseStore, *shares: Allocation) -> None:
    store.write(lambda uow: uow.allocations.add_many(shares))


def expected(shares: Sequence[Allocation], now: float | None = None) -> float:
    """The closed form, share by share."""
    seen = now or datetime.now(UTC).timestamp()
    return sum(
        worth(
            one.milli,
            one.allocated_at.timestamp(),
            one.released_at.timestamp() if one.released_at else seen,
            seen,
            TAU,
        )
        for one in shares
    )


def read(store: DatabaseStore, reading: Reading | None = None, **gangs: Any) -> Any:
    live = [gang for gang, _ in gangs.get("live", ())]
    held = {gang.attempt_id: milli for gang, milli in gangs.get("live", ())}
    return store.read(lambda uow: (reading or Reading(TAU)).read(uow, live, held))


@pytest.fixture
def epoch(store: DatabaseStore) -> int:
    return store.write(lambda uow: uow.raise_epoch("all", "me"))


def fold(store: DatabaseStore, epoch: int) -> bool:
    return Folding(store, "all", TAU).fold(epoch)


def test_it_is_the_same_before_and_after_it_was_folded(store: DatabaseStore, epoch: int) -> None:
    lately = [had(ADA, 800, 400), had(ADA, 300, 10, 250)]
    keep(store, *lately, had(EVE, 500, 100, 8000))
    before, _ = read(store)
    assert before[ADA] == pytest.approx(expected(lately), rel=1e-4)
    assert fold(store, epoch) is False
    kept, tail = store.read(lambda uow: uow.usage.usage(ago(usage.TAIL_S)))
    assert [one.key for one in tail] == [ADA]  # what ended ten seconds ago is not settled yet
    assert {one.key for one in kept} == {ADA, EVE}
    after, _ = read(store)
    assert after[ADA] == pytest.approx(expected(lately), rel=1e-4)
    for _ in range(3):
        fold(store, epoch)
    assert read(store)[0] == pytest.approx(after, rel=1e-3)


def test_what_is_past_counts_half_after_a_half_life(store: DatabaseStore, epoch: int) -> None:
    keep(store, had(ADA, TAU + 3600, TAU), had(EVE, 3700, 100))
    fold(store, epoch)
    sums, _ = read(store)
    assert sums[ADA] == pytest.approx(sums[EVE] / 2, rel=1e-3)
    assert sums[EVE] == pytest.approx(3600 * 1000, rel=1e-2)


def test_a_crash_in_the_middle_neither_loses_nor_doubles(
    store: DatabaseStore, epoch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = [had(ADA, 5000 + n, 1000 + n) for n in range(10)]
    keep(store, *shares)
    monkeypatch.setattr(usage, "BATCH", 3)
    real = Usage.set_mark
    calls = 0

    def killed(self: Usage, *args: Any) -> None:
        """Every other transaction dies between its sums and its mark."""
        nonlocal calls
        calls += 1
        if calls % 2:
            raise KeyboardInterrupt
        real(self, *args)

    batches = 0
    more = True
    while more:
        with monkeypatch.context() as broken:
            broken.setattr(Usage, "set_mark", killed)
            calls = 0
            with pytest.raises(KeyboardInterrupt):
                fold(store, epoch)
        more = fold(store, epoch)
        batches += 1
    assert batches == 4
    sums, _ = read(store)
    assert sums[ADA] == pytest.approx(expected(shares), rel=1e-4)
    assert fold(store, epoch) is False
    assert read(store)[0][ADA] == pytest.approx(expected(shares), rel=1e-3)


def test_only_who_leads_folds(store: DatabaseStore, epoch: int) -> None:
    keep(store, had(ADA, 500, 100))
    store.write(lambda uow: uow.raise_epoch("all", "another"))
    with pytest.raises(StaleEpoch):
        fold(store, epoch)
    assert store.read(lambda uow: uow.usage.mark("usage")) is None
    assert fold(store, epoch + 1) is False
    assert store.read(lambda uow: uow.usage.mark("usage")) is not None


def test_a_deleted_job_has_had_what_it_had(store: DatabaseStore, epoch: int) -> None:
    row = job(status="succeeded", waiting_elements=0)
    keep(store, had(ADA, 500, 100))
    store.write(lambda uow: uow.jobs.add(row))
    store.write(lambda uow: remove_job(uow, row, RandomIds(), Cause(actor="user:ada")))
    fold(store, epoch)
    assert read(store)[0][ADA] > 0


def running(key: UsageKey, since: float) -> LiveGang:
    queue, project, user = key
    return LiveGang(
        new_id(), "j", project, queue, user, "running", 500, True, None, ago(since), ago(since),
        None, None, None, 0,
    )  # fmt: skip


def test_what_runs_grows_between_two_reads(
    store: DatabaseStore, epoch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gang = running(ADA, 3600)
    reading = Reading(TAU)
    first, _ = read(store, reading, live=[(gang, 4000)])
    assert first[ADA] == pytest.approx(4000 * 3600, rel=1e-2)
    queries: list[int] = []
    real = Usage.usage

    def counted(self: Usage, since: datetime) -> Any:
        queries.append(1)
        return real(self, since)

    monkeypatch.setattr(Usage, "usage", counted)
    second, _ = read(store, reading, live=[(gang, 4000)])
    assert second[ADA] >= first[ADA] and queries == []
    gone, _ = read(store, reading)  # it ended since: what it had stays
    assert gone[ADA] == pytest.approx(first[ADA], rel=1e-3)
    monkeypatch.setattr(usage, "REFRESH_S", 0.0)
    assert read(store, reading)[0] == {} and queries == [1]


def test_how_true_limits_are(store: DatabaseStore, epoch: int) -> None:
    assert read(store)[1] == 1.0
    for number, (outcome, ran, limit) in enumerate(
        (("succeeded", 600, 3600), ("succeeded", 300, 600), ("failed", 60, 6000),
         ("succeeded", 60, None))
    ):  # fmt: skip
        one = job(max_runtime_s=limit, kind="training")
        run = attempt(
            one, status="ended", outcome=outcome, live=None,
            started_at=ago(1000 + number + ran), ended_at=ago(1000 + number),
        )  # fmt: skip
        store.write(lambda uow, one=one, run=run: (uow.jobs.add(one), uow.attempts.add(run)))  # type: ignore[misc]
    fold(store, epoch)
    fold(store, epoch)
    assert read(store)[1] == pytest.approx(900 / 4200, rel=1e-3)
    (kept,) = store.read(lambda uow: uow.usage.histories())
    assert kept.key == ("queue", "user", "training")
    assert kept.runs == pytest.approx(2, rel=1e-2)


def test_old_sums_go(store: DatabaseStore, epoch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(store, had(ADA, 30 * TAU, 25 * TAU), had(EVE, 500, 100))
    fold(store, epoch)
    assert [one.key for one in store.read(lambda uow: uow.usage.sums([ADA, EVE]))] == [EVE]
    store.write(lambda uow: uow.usage.forget_sums(ago(0)))
    assert store.read(lambda uow: uow.usage.sums([EVE])) == []
