# SPDX-License-Identifier: Apache-2.0
"""Runs of the packing mode: which requests come, in which order, and what is said of them."""

from __future__ import annotations

import json

import pytest
from packing_lists import mixed_lists, node, pod

from gpuservice.planner.mix import Mix, Shape
from gpuservice.simulation.packing import POINTS, parse_options, parse_settings, run_packing
from gpuservice.simulation.packing_queue import Holding, shares_to_hold


def test_a_run_is_the_same_every_time() -> None:
    nodes, pods = mixed_lists(1)
    for policy in ("default", "random"):
        runs = [json.dumps(run_packing(nodes, pods, policy=policy, seed=5)) for _ in range(2)]
        assert runs[0] == runs[1]
    assert runs[0] != json.dumps(run_packing(nodes, pods, policy="random", seed=6))


def test_the_list_comes_once_then_copies_up_to_the_target() -> None:
    pods = [pod(f"p{index}") for index in range(7)]

    jobs = run_packing([node("n", 10)], pods, seed=3, inflation=1.3)["jobs"]

    names = [job["name"] for job in jobs]
    assert len(names) == 13
    assert sorted(names[:7]) == [f"p{index}" for index in range(7)]
    assert names[:7] != sorted(names[:7])
    assert [name.partition("+")[2] for name in names[7:]] == [str(copy) for copy in range(1, 7)]


def test_a_list_above_the_target_loses_requests() -> None:
    pods = [pod(f"p{index}") for index in range(20)]

    jobs = run_packing([node("n", 10)], pods, inflation=1.3)["jobs"]

    assert len({job["name"] for job in jobs}) == 13


def test_a_list_without_gpus_comes_once() -> None:
    result = run_packing([node("n", 1)], [pod("p", 0), pod("q", 0)], inflation=1.3)

    assert result["summary"]["placed"] == 2
    assert result["summary"]["allocation_ratio"] == {str(point): None for point in POINTS}


def test_figures_are_means_where_demand_rounds_to_the_point() -> None:
    pods = [pod(f"p{index}") for index in range(100)]

    summary = run_packing([node("n", 100, cores=95)], pods, inflation=1.2)["summary"]

    assert summary["gpus"] == 100
    assert summary["requests"] == 120
    assert (summary["placed"], summary["not_placed"], summary["held"]) == (95, 25, 0)
    ratios = summary["allocation_ratio"]
    assert [ratios[str(point)] for point in POINTS] == [50, 80, 90, 95, 95, 95, 95, None]
    # Nobody can use the last five, for want of cores; before that everything is of use.
    assert [summary["fragmentation_ratio"][str(point)] for point in POINTS[:-1]] == [
        0, 0, 0, 100, 100, 100, 100,
    ]  # fmt: skip
    assert summary["fragments_of_all"]["100"] == 5


def test_a_whole_cluster_has_no_fragment() -> None:
    summary = run_packing([node("n", 50)], [pod("p")] * 50, inflation=1.0)["summary"]

    assert summary["allocation_ratio"]["100"] == 100
    assert summary["fragmentation_ratio"]["100"] == 0


def test_jobs_say_where() -> None:
    pods = [pod("p", 2), pod("q", 1, 400, models=("Z",))]

    result = run_packing([node("n", 2)], pods, policy="fgd", seed=1, inflation=1.25)

    where = [{"task": 0, "node": "n", "devices": [0, 1], "milli": 1000}]
    by_name = {job["name"]: job for job in result["jobs"]}
    assert by_name["p"] == {"name": "p", "status": "placed", "held": False, "placement": where}
    assert by_name["q"] == {"name": "q", "status": "not_placed", "held": False, "placement": []}
    assert result["mode"] == "packing"
    assert result["settings"] == {"policy": "fgd", "seed": 1, "inflation": 1.25}


def test_settings_say_what_ours_knew() -> None:
    nodes, pods = mixed_lists(2)

    settings = run_packing(nodes, pods, options={"known": "arrivals", "value": "250"})["settings"]

    assert settings["known"] == "arrivals"
    assert settings["weights"]["value"] == 250.0


def test_looking_ahead_places_the_largest_of_a_batch_first() -> None:
    nodes = [node("n", 8)]
    pods = [pod("small", 1), pod("large", 8)]
    for seed in range(6):
        result = run_packing(
            nodes, pods, seed=seed, inflation=9 / 8, queue=True, options={"batch": 2}
        )
        assert {job["name"] for job in result["jobs"] if job["status"] == "placed"} == {"large"}
    assert result["mode"] == "packing+queue"
    assert result["settings"]["batch"] == 2


def test_what_waits_gets_its_turn_with_the_last_request() -> None:
    pods = [pod(f"p{index}") for index in range(7)]

    result = run_packing([node("n", 10)], pods, inflation=0.7, queue=True, options={"batch": 1000})

    assert result["summary"]["placed"] == 7


def test_held_jobs_are_told_and_placed_last() -> None:
    # Ten GPUs, 0.81 spoils a fifth of each: ten of one and ten of the other cannot all run.
    pods = [pod(f"part{index}", 1, 810) for index in range(10)]
    pods += [pod(f"whole{index}") for index in range(2)]
    options = {"hold": "true", "hold_slack": 0, "batch": 1}

    free = run_packing([node("n", 10)], pods, inflation=1.0, queue=True, options={"batch": 1})
    held = run_packing([node("n", 10)], pods, inflation=1.0, queue=True, options=options)

    assert free["summary"]["held"] == 0
    assert held["summary"]["held"] > 0
    assert held["settings"]["hold"] is True
    assert sum(job["held"] for job in held["jobs"]) == held["summary"]["held"]


def test_what_wastes_most_is_held_as_far_as_it_must() -> None:
    mix = Mix()
    mix.add(Shape(0, 1, 810), 100)  # costs 100 GPUs, uses 81
    mix.add(Shape(0, 1, 550), 100)  # costs 100 as nothing fits beside it, uses 55
    mix.add(Shape(0, 1, 1000), 64)

    # 200 GPUs are asked for and 264 would be needed: of the worst, 64 in 100 are too many.
    assert shares_to_hold(mix, 0.0) == pytest.approx({550: 0.64})
    assert shares_to_hold(mix, 0.4) == pytest.approx({550: 1.0, 810: 0.44})
    assert shares_to_hold(Mix([Shape(0, 1, 500), Shape(4000, 0, 0)]), 0.0) == {}

    holding = Holding(mix, 0.0, learning=False)
    held = [holding.holds(Shape(0, 1, 550)) for _ in range(100)]
    assert sum(held) == 64
    assert sum(held[:50]) == 32
    assert not holding.holds(Shape(0, 1, 810))


def test_holding_learns_from_arrivals() -> None:
    holding = Holding(Mix(first=10), 0.0, learning=True)
    held = [holding.holds(Shape(0, 1, 810)) for _ in range(100)]

    assert not any(held[:9])
    assert any(held)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"speed": 1}, "no packing option 'speed'; there are known, batch"),
        ({"batch": "few"}, "batch is 'few', not a number"),
        ({"batch": 0}, "batch is 0, not 1 or more"),
        ({"known": "all"}, "known is 'all', not list or arrivals"),
        ({"hold": "perhaps"}, "hold is 'perhaps', not true or false"),
        ({"steps": 0}, "steps is 0"),
        ({"value": "nan"}, "value is 'nan', not a number"),
    ],
)
def test_wrong_options_are_named(options: dict[str, object], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        parse_options(options)


def test_settings_of_a_command_line() -> None:
    found = parse_settings(["packing.batch=20", "packing.known=arrivals", "packing.value=150"])

    assert (found.batch, found.known, found.weights.value) == (20, "arrivals", 150.0)
    for word in ("batch=20", "scheduler.batch=20", "packing.batch"):
        with pytest.raises(ValueError, match="in packing mode write"):
            parse_settings([word])


def test_wrong_settings_are_named() -> None:
    with pytest.raises(ValueError, match="no GPU"):
        run_packing([node("n", 0)], [pod("p")])
    with pytest.raises(ValueError, match="inflation is 0"):
        run_packing([node("n", 1)], [pod("p")], inflation=0)
    with pytest.raises(ValueError, match="inflation is nan"):
        run_packing([node("n", 1)], [pod("p")], inflation=float("nan"))
