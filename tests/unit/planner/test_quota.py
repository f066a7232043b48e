# SPDX-License-Identifier: Apache-2.0
"""What a project's quota lets start, and what is said when it does not."""

from __future__ import annotations

import pytest
from small_cluster import A100, EASY, NOW, codes, gang, job, node, places, pool, snapshot, why

from gpuservice.planner.plan import plan


def test_gpus_are_counted_within_one_plan() -> None:
    line = [job(f"j{number}", gpu_milli=500) for number in range(6)]
    made = plan(snapshot([node("a")], line, headroom={("red", "gpus"): 1500}))
    assert len(made.starts) == 3
    assert codes(made, "j3") == ["project_quota"]
    assert why(made, "j3").reasons[0].facts["left"] == {"gpus": 0}


def test_the_limit_of_a_type_counts_for_its_pools_alone() -> None:
    nodes = [node("a", pool="p1"), node("b", pool="p2", gpu_type="t4")]
    pools = [pool("p1", 1), pool("p2", 1)]
    made = plan(snapshot(nodes, [job("j1")], pools=pools, headroom={("red", f"gpus:{A100}"): 0}))
    assert not made.starts
    pools = [
        pool("p1", 1),
        pool("p2", 1, template=pool().template.__class__("t4", 8, 16384, 64, 65536)),
    ]
    made = plan(snapshot(nodes, [job("j1")], pools=pools, headroom={("red", f"gpus:{A100}"): 0}))
    assert made.starts[0].tasks[0].node_id == "b"


def test_own_pools_take_no_gpu_quota() -> None:
    made = plan(
        snapshot(
            [node("a")],
            [job("j1")],
            pools=[pool("pool", 1, project_id="red")],
            headroom={("red", "gpus"): 0},
        )
    )
    assert made.starts


def test_own_pools_come_first() -> None:
    nodes = [node("a", pool="p1"), node("b", pool="p2")]
    pools = [pool("p1", 1), pool("p2", 1, project_id="red")]
    made = plan(snapshot(nodes, [job("j1")], pools=pools))
    assert made.starts[0].tasks[0].node_id == "b"


def test_an_elastic_gang_is_cut_to_the_quota() -> None:
    made = plan(
        snapshot([node("a")], [job("j1", count=4, min_count=1)], headroom={("red", "gpus"): 2000})
    )
    assert len(made.starts[0].tasks) == 2


def test_running_attempts_are_limited() -> None:
    made = plan(
        snapshot([node("a")], [job("j1", elements=3)], headroom={("red", "jobs:running"): 2})
    )
    assert len(made.starts) == 2
    assert codes(made, "j1") == ["project_quota"]


def test_what_quota_stops_is_promised_nothing() -> None:
    made = plan(
        snapshot(
            [node("a")],
            [job("j1", gpu_milli=8000), job("j2", "blue")],
            [gang("r", {"a": [0]})],
            headroom={("red", "gpus"): 7000},
        )
    )
    assert not made.promises
    assert [start.job_id for start in made.starts] == ["j2"]


@pytest.mark.parametrize(("owner", "starts"), [("red", True), ("green", False)])
def test_quota_that_comes_back_before_a_promise_is_not_kept_for_it(
    owner: str, starts: bool
) -> None:
    """By the promised start of j1 the project has got back what r has of its quota, if it is r's
    project: j2 may run on."""
    running = [
        gang("r", {"a": range(4)}, NOW + 100, owner),
        gang("s", {"a": [4, 5]}, NOW + 5000, "blue"),
    ]
    line = [job("j1", gpu_milli=6000), job("j2", max_runtime_s=900)]
    nodes = [node("a"), node("b", 1, groups=1)]
    made = plan(snapshot(nodes, line, running, {("red", "gpus"): 6500}), EASY)
    assert [promise.start for promise in made.promises] == [NOW + 100]
    assert places(made) == ({"j2": ["b/0"]} if starts else {})
    if not starts:
        assert codes(made, "j2") == ["behind_promise"]
