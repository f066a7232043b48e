# SPDX-License-Identifier: Apache-2.0
"""The laws notice: a planner with one check taken out breaks the law that this check is for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import test_planner_laws as laws
import test_planner_preemption as preemption
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from planner_worlds import crowded, policies, snapshots

from gpuservice.planner import capacity, cohorts, guards, placement, quota
from gpuservice.planner import preemption as preempting
from gpuservice.planner.ledger import Ledger
from gpuservice.planner.snapshot import Policy, Request, Snapshot

pytestmark = pytest.mark.b1

PLENTY = 1 << 20
Law = Callable[[Snapshot, Policy], None]


def _falsified(law: Any, worlds: st.SearchStrategy[Snapshot], how: Any = policies) -> bool:
    """Whether a fixed search of the law's worlds comes to one in which it does not hold."""
    inner: Law = law.hypothesis.inner_test

    @settings(
        max_examples=2000,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(worlds, how)
    def attempt(snapshot: Snapshot, policy: Policy) -> None:
        inner(snapshot, policy)

    try:
        attempt()
    except AssertionError:
        return True
    return False


def _replace(patch: pytest.MonkeyPatch, function: Any, other: Any) -> None:
    """Put another function wherever the planner has this one by name."""
    for name, module in list(sys.modules.items()):
        if name.startswith("gpuservice.planner"):
            for word, value in list(vars(module).items()):
                if value is function:
                    patch.setattr(module, word, other)


def test_without_the_check_of_cpus_and_memory_l1_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def boundless(ledger: Ledger, request: Request, rows: Any) -> Any:
        return ledger.tasks[rows] * 0 + PLENTY

    _replace(monkeypatch, capacity.host_slots, boundless)
    assert _falsified(laws.test_l1_nothing_holds_more_than_it_has, snapshots())


def test_without_the_check_of_free_devices_l1_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_free(ledger: Ledger, request: Request, rows: Any, project: int) -> Any:
        return capacity.right_kind(ledger, request, rows).astype("int64")

    def all_free_of(ledger: Ledger, request: Request, row: int, project: int) -> Any:
        return all_free(ledger, request, slice(row, row + 1), project)[0].tolist()

    def count(view: Any, books: Ledger, rows: Any) -> Any:
        return capacity.task_slots(books, view._request, rows, view.project)

    _replace(monkeypatch, capacity.device_slots, all_free)
    _replace(monkeypatch, capacity.device_slots_of, all_free_of)
    _replace(monkeypatch, capacity.may_fit, lambda request, most: True)
    monkeypatch.setattr(capacity.View, "_count", count)
    assert _falsified(laws.test_l1_nothing_holds_more_than_it_has, snapshots())


def test_without_the_check_of_promises_l5_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards.Guards, "within", lambda self, pool, rows, slots, *rest: slots)
    assert _falsified(laws.test_l5_each_promise_has_room_when_it_is_due, snapshots())


def test_without_putting_victims_back_l6_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    _replace(monkeypatch, preempting.put_back, lambda self, job, shape, gone, tasks: tasks)
    law = preemption.test_l6_with_one_victim_less_the_preemptor_does_not_start
    assert _falsified(law, crowded, preemption.preempting)


def test_without_the_limit_of_the_cohort_l4_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cohorts.QueueQuotas, "room", lambda *asked: PLENTY)
    assert _falsified(laws.test_l4_no_quota_and_no_share_of_a_queue_is_exceeded, snapshots())


def test_without_the_limit_of_the_project_l4_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota.Headroom, "room", lambda *asked: PLENTY)
    assert _falsified(laws.test_l4_no_quota_and_no_share_of_a_queue_is_exceeded, snapshots())


def test_without_the_check_of_reservations_l3_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards.Reserved, "within", lambda self, rows, slots, *rest: slots)
    assert _falsified(laws.test_l3_every_hard_constraint_holds, snapshots())


def test_without_the_check_of_topology_l3_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    _replace(monkeypatch, placement._levels, lambda request: (None,))
    assert _falsified(laws.test_l3_every_hard_constraint_holds, snapshots())


def test_without_the_check_of_other_projects_l13_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def ready(books: Ledger, rows: Any, project: int) -> Any:
        return books.ready[rows].copy()

    _replace(monkeypatch, capacity.usable, ready)
    assert _falsified(laws.test_l13_projects_do_not_meet_where_they_must_not, snapshots())
