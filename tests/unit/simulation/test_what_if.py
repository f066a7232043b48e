# SPDX-License-Identifier: Apache-2.0
"""A workload with and without a change; replays that begin with running gangs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuservice.planner.snapshot import DueTimes, Policy, QueueState, TaskPlacement
from gpuservice.simulation.cluster import from_spec
from gpuservice.simulation.faults import InputFault
from gpuservice.simulation.opening import Begun, Opening
from gpuservice.simulation.policies import POLICIES
from gpuservice.simulation.replay import Replay
from gpuservice.simulation.what_if import Material, changed_policy, what_if
from tests.simulation.replays import attempts, job

CLUSTER = from_spec("2x4:a100-80gb")


def held(node: str, first: int, count: int, rank: int = 0) -> TaskPlacement:
    """Some GPUs of a node."""
    return TaskPlacement(rank, node, tuple((f"{node}/{first + at}", 1000) for at in range(count)))


def running(name: str, node: str, gpus: int, started: float, left: float, **more: Any) -> Begun:
    more.setdefault("ends_by_s", left)
    return Begun(name, (held(node, 0, gpus),), started, left, **more)


def quiet(share: float) -> None:
    assert 0 <= share <= 1


def test_what_runs_goes_on_for_its_rest_and_what_waits_starts_then() -> None:
    jobs = [
        job("old", 0, 150, 4, waited_s=200.0),
        job("older", 0, 400, 4, waited_s=300.0),
        job("next", 0, 10, 4, waited_s=50.0),
    ]
    opening = Opening(
        (running("old", "n0000", 4, -50, 100), running("older", "n0001", 4, -100, 300))
    )
    done = Replay(CLUSTER, jobs, POLICIES["skip"].policy, opening=opening).run()
    assert attempts(done) == {
        "old": [(-50, 100, "succeeded")],
        "older": [(-100, 300, "succeeded")],
        "next": [(100, 110, "succeeded")],
    }


def test_an_array_of_which_some_elements_run() -> None:
    jobs = [job("array", 0, 100, 4, array_size=4, max_running=2)]
    opening = Opening(
        (running("array", "n0000", 4, -60, 40), running("array", "n0001", 4, -50, 50))
    )
    done = Replay(CLUSTER, jobs, POLICIES["skip"].policy, opening=opening).run()
    assert attempts(done)["array"] == [
        (-60, 40, "succeeded"),
        (-50, 50, "succeeded"),
        (40, 140, "succeeded"),
        (50, 150, "succeeded"),
    ]


def test_what_is_being_stopped_waits_again() -> None:
    jobs = [job("victim", 0, 600, 8 // 2)]
    opening = Opening((running("victim", "n0000", 4, -300, 20, stopping=True),))
    done = Replay(CLUSTER, jobs, POLICIES["skip"].policy, opening=opening).run()
    first, second = attempts(done)["victim"]
    assert first == (-300, 20, "preempted")
    assert second[0] == 20


def test_usage_from_before_decides_who_is_next() -> None:
    policy = replace(Policy(), promises=0, small_promises=0, due=None, backfill_order="line")
    jobs = [
        job("hold", 0, 100, 4),
        job("hold2", 0, 100, 4),
        job("rich", 0, 10, 8 // 2, queue="a", user="rich", waited_s=5.0),
        job("poor", 0, 10, 8 // 2, queue="b", user="poor"),
    ]
    for one in ("rich", "poor"):
        opening = Opening(
            (running("hold", "n0000", 4, -1, 100), running("hold2", "n0001", 4, -1, 200)),
            usage={("a" if one == "rich" else "b", "default", one): 1e12},
        )
        done = attempts(Replay(CLUSTER, jobs, policy, opening=opening).run())
        other = "poor" if one == "rich" else "rich"
        assert done[other][0][0] < done[one][0][0]


def material(change: dict[str, Any], **more: Any) -> Material:
    jobs = [
        job("busy", 0, 1000, 4, project="red", waited_s=100.0),
        job("busy2", 0, 1000, 4, project="red"),
        *(job(f"j{at}", 0, 100, 4, project="blue", kind="evaluation") for at in range(4)),
    ]
    begun = (running("busy", "n0000", 4, -10, 500), running("busy2", "n0001", 4, -10, 500))
    cluster = replace(CLUSTER, queues=(QueueState("default", ("a100-80gb",)),))
    values: dict[str, Any] = {
        "cluster": cluster,
        "jobs": tuple(jobs),
        "opening": Opening(begun),
        "policy": POLICIES["skip"].policy,
        "names": {"default": "shown"},
        "change": change,
    }
    return Material(**{**values, **more})


def test_more_gpus_shorten_the_waits_of_those_who_waited() -> None:
    made = what_if(material({"gpus": {"a100-80gb": 8}}), quiet)
    assert made["base"]["wait_s"] == {"mean": 550, "p50": 600, "p90": 600, "p99": 600, "max": 600}
    assert made["changed"]["wait_s"]["max"] == 100
    assert made["difference"]["by_project"]["blue"]["wait_s"]["mean"] == -500
    assert made["base"]["by_queue"]["shown"]["jobs"] == 4  # not those that ran already
    assert made["base"]["by_kind"].keys() == {"evaluation", "training"}
    assert made["base"]["utilisation"] == 1
    assert made["changed"]["utilisation"] < 1
    assert made["running_at_start"] == 2 and made["jobs"] == 6


def test_a_node_taken_away_puts_its_job_back_in_line() -> None:
    made = what_if(material({"pools": {"a100-80gb": -1}}), quiet)
    assert made["changed"]["makespan_s"] == 500 + 1000 + 400
    some = what_if(material({"gpus": {"a100-80gb": -3}}), quiet)  # one GPU of the node is left
    assert some["changed"] == {**made["changed"], "utilisation": some["changed"]["utilisation"]}


def test_a_quota_counts_what_runs_and_what_pools_hold() -> None:
    limit = {"blue": {"gpus": 6}}
    free = what_if(material({"quotas": limit, "gpus": {"a100-80gb": 8}}), quiet)
    assert free["changed"]["wait_s"]["max"] == 300  # one at a time
    none = what_if(material({"quotas": limit}, in_use={("blue", "gpus"): 4000}), quiet)
    assert none["changed"]["never_started"] == 4
    lifted = what_if(material({"quotas": {"blue": {"gpus": None}}}), quiet)
    assert lifted["difference"]["wait_s"]["mean"] == 0


def test_a_queue_with_other_numbers() -> None:
    own = {"nominal": {"a100-80gb": 8}, "borrowing_limit": {"a100-80gb": 0}, "weight": 3}
    made = what_if(material({"queues": {"default": own}}), quiet)
    assert made["changed"]["never_started"] == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gpus": {"h100": 8}}, "no pool has GPUs of the type 'h100'"),
        ({"gpus": {"a100-80gb": -9}}, "there are 8 GPUs"),
        ({"pools": {"nosuch": 1}}, "no pool 'nosuch'"),
        ({"pools": {"a100-80gb": -3}}, "has 2 nodes"),
        ({"pools": {"a100-80gb": -2}}, "leaves no node"),
    ],
)
def test_a_change_that_cannot_be_made(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputFault, match=words):
        what_if(material(change), quiet)


def test_nothing_to_simulate() -> None:
    with pytest.raises(InputFault, match="no job"):
        what_if(material({}, jobs=(), opening=Opening()), quiet)


def test_a_policy_by_the_names_of_the_configuration() -> None:
    changed = changed_policy(
        Policy(),
        {"order": "fifo", "min_runtime_s": 5.0, "preempt": ["reclaim"], "due_times": False},
    )
    assert (changed.order, changed.protected_s, changed.preempt, changed.due) == (
        "fifo", 5.0, frozenset({"reclaim"}), None,
    )  # fmt: skip
    assert changed_policy(changed, {"due_times": True}).due == DueTimes()
    more = changed_policy(Policy(), {"due_calm": 0.5, "weight_age": 7.0})
    assert more.due == replace(DueTimes(), calm=0.5) and more.weights.age == 7.0
    assert changed_policy(changed, {"due_calm": 0.5}).due is None


def test_the_same_material_gives_the_same_figures() -> None:
    change = {"policy": {"order": "fair"}}
    assert what_if(material(change), quiet) == what_if(material(change), quiet)
