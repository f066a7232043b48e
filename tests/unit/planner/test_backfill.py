# SPDX-License-Identifier: Apache-2.0
"""Promised starts, and what may start behind them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_cluster import EASY, NOW, codes, gang, job, node, snapshot, why

from gpuservice.planner.plan import plan
from gpuservice.planner.session import Session

BUSY = [gang("r", {"a": range(6)}, NOW + 100)]
WIDE = job("j1", gpu_milli=8000)


@pytest.mark.parametrize(
    ("runtime", "starts"), [(99, True), (100, True), (101, False), (None, False)]
)
def test_only_what_ends_before_the_promise_goes_ahead(runtime: int | None, starts: bool) -> None:
    made = plan(snapshot([node("a")], [WIDE, job("j2", max_runtime_s=runtime)], BUSY), EASY)
    assert [promise.start for promise in made.promises] == [NOW + 100]
    assert bool(made.starts) is starts
    if not starts:
        assert codes(made, "j2") == ["backfill_would_delay"]
        assert why(made, "j2").would_start_now_if[0] == {"change": {"max_runtime_s": 100}}


def test_what_leaves_the_promised_places_free_goes_ahead() -> None:
    made = plan(
        snapshot(
            [node("a"), node("b")],
            [WIDE, job("j2", max_runtime_s=None)],
            [*BUSY, gang("s", {"b": range(7)}, NOW + 500)],
        ),
        EASY,
    )
    assert [start.tasks[0].node_id for start in made.starts] == ["b"]


def test_an_isolated_node_that_is_promised_is_not_lent_to_another_project() -> None:
    """One GPU would do for the promise, but not another project's task beside it."""
    nodes = [node("a", isolation_node=True), node("b", isolation_node=True)]
    running = [gang("r", {"a": range(8)}, NOW + 50, "red"), gang("s", {"b": [0]}, None, "green")]
    line = [job("j1", "red", gpu_milli=1000), job("j2", "blue", max_runtime_s=500)]
    nodes[0] = node("a", isolation_node=True)
    made = plan(snapshot(nodes, line, running), EASY)
    assert [promise.start for promise in made.promises] == [NOW + 50]
    assert not made.starts


def test_a_promise_is_kept_when_it_is_nearly_due() -> None:
    base = snapshot([node("a")], [WIDE], [replace(BUSY[0], gang_id="r")])
    at = Session([node("a")], base.pools, base.queues, EASY)
    at.start(base.running[0])
    at.submit(WIDE)
    for moment in (NOW, NOW + 99.5):
        assert [promise.start for promise in at.plan(moment).promises] == [NOW + 100]


def test_an_impossible_job_blocks_nobody() -> None:
    made = plan(snapshot([node("a")], [job("j1", gpu_milli=9000), job("j2")], BUSY), EASY)
    assert not made.promises
    assert [start.job_id for start in made.starts] == ["j2"]


def test_a_job_behind_one_without_a_limit_is_promised_nothing() -> None:
    made = plan(snapshot([node("a")], [WIDE, job("j2")], [gang("r", {"a": [0]}, None)]), EASY)
    assert not made.promises
    assert why(made, "j1").estimated_start is None
    assert [start.job_id for start in made.starts] == ["j2"]


@pytest.mark.parametrize(
    ("promises", "expected"),
    [
        (0, []),
        (1, [NOW + 100]),
        (2, [NOW + 100, NOW + 200]),
        (-1, [NOW + 100, NOW + 200, NOW + 300]),
    ],
)
def test_depth_of_promises(promises: int, expected: list[float]) -> None:
    line = [job(f"j{number}", gpu_milli=8000) for number in range(1, 4)]
    made = plan(snapshot([node("a")], line, BUSY), replace(EASY, promises=promises))
    assert [promise.start for promise in made.promises] == expected


def test_a_line_is_told_one_moment_after_another() -> None:
    line = [job(f"j{number}", gpu_milli=8000) for number in range(1, 4)]
    made = plan(snapshot([node("a")], line, BUSY), EASY)
    assert [one.estimated_start for one in made.waiting] == [NOW + 100, NOW + 200, NOW + 300]
    assert {one.estimate_basis for one in made.waiting} == {"time limits of running jobs"}


def test_only_the_promised_job_itself_need_not_respect_its_promise() -> None:
    line = [job(name, gpu_milli=8000, max_runtime_s=None) for name in ("j1", "j2")]
    made = plan(snapshot([node("a")], line, BUSY), EASY)
    assert why(made, "j1").would_start_now_if == ({"change": {"resources": {"gpus": 2}}},)
    assert why(made, "j2").would_start_now_if == ()
