# SPDX-License-Identifier: Apache-2.0
"""How large autoscaled pools should be for what waits."""

from __future__ import annotations

import pytest
from small_cluster import codes, gang, job, node, pool, snapshot

from gpuservice.planner.plan import plan

FULL = [gang("r", {"a": range(8)})]


@pytest.mark.parametrize(
    ("line", "more", "wanted"),
    [
        ([job("j1")], {}, {"pool": 2}),
        ([job(f"j{number}") for number in range(9)], {}, {"pool": 3}),
        ([job("j1", elements=9)], {}, {"pool": 3}),
        ([job(f"j{number}", gpu_milli=8000) for number in range(9)], {}, {"pool": 4}),
        ([job("j1")], {"autoscale": False}, {}),
        ([job("j1")], {"max_nodes": 1}, {}),
        ([job("j1")], {"size": 2, "coming": 1}, {}),
        ([job("j1", gpu_milli=9000)], {}, {}),
        ([job("j1", blocked="held")], {}, {}),
        ([job("j1", count=2, gpu_milli=8000, within="rack", required=True)], {}, {"pool": 3}),
        ([], {}, {}),
    ],
)
def test_wanted(line: list[object], more: dict[str, object], wanted: dict[str, int]) -> None:
    settings = {"size": 1, "max_nodes": 4, "autoscale": True, **more}
    made = plan(snapshot([node("a")], line, FULL, pools=[pool(**settings)]))  # type: ignore
    assert dict(made.wanted) == wanted


def test_a_growing_pool_is_named() -> None:
    made = plan(
        snapshot([node("a")], [job("j1")], FULL, pools=[pool(size=1, max_nodes=4, autoscale=True)])
    )
    assert codes(made, "j1") == ["insufficient_gpus", "pool_growing"]


def test_what_the_project_may_not_have_grows_nothing() -> None:
    made = plan(
        snapshot(
            [node("a")],
            [job("j1")],
            FULL,
            {("red", "gpus"): 0},
            [pool(size=1, max_nodes=4, autoscale=True)],
        )
    )
    assert not made.wanted
    assert codes(made, "j1") == ["project_quota"]


def test_an_empty_pool_grows_from_nothing() -> None:
    made = plan(snapshot([], [job("j1")], pools=[pool(size=0, max_nodes=2, autoscale=True)]))
    assert dict(made.wanted) == {"pool": 1}
