# SPDX-License-Identifier: Apache-2.0
"""Policies by name, on traces whose answers are known by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from replays import Attempts, attempts, job, replay, starts

from gpuservice.planner.snapshot import Policy, QueueState
from gpuservice.simulation.cluster import from_spec
from gpuservice.simulation.policies import POLICIES

FAIR = replace(POLICIES["skip"].policy, order="fair")

#: Half the host is busy until 10; a whole host is wanted; behind it wait a long and a short job.
QUEUE = [
    job("half", 0, 10, 4),
    job("whole", 1, 10, 8),
    job("long", 2, 20, 4),
    job("short", 3, 5, 4),
]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("skip", {"half": 0, "long": 2, "short": 10, "whole": 22}),
        ("easy", {"half": 0, "short": 3, "whole": 10, "long": 20}),
        ("conservative", {"half": 0, "short": 3, "whole": 10, "long": 20}),
    ],
)
def test_who_may_pass_whom(policy: str, expected: dict[str, float]) -> None:
    assert {name: at for name, (at,) in starts(replay(QUEUE, policy=policy)).items()} == expected


def test_easy_promises_one_job_a_start_and_keeps_it() -> None:
    made = replay(QUEUE, policy="easy")
    whole, long = made.records[1], made.records[2]
    assert (whole.promise_s, whole.attempts[0].start_s, whole.slip_s) == (10, 10, 0)
    assert long.promise_made_s == 10


def test_conservative_promises_all() -> None:
    made = replay(QUEUE, policy="conservative")
    assert {record.job.name: record.promise_s for record in made.records} == {
        "half": None,
        "whole": 10,
        "long": 20,
        "short": None,
    }


def test_early_ends_move_a_promised_start_forward() -> None:
    jobs = [job("half", 0, 6, 4, max_runtime_s=10), *QUEUE[1:]]
    made = replay(jobs, policy="easy")
    assert attempts(made)["whole"] == [(8, 18, "succeeded")]  # short, from 3 to 8, was in the way
    assert made.records[1].promise_s == 10


def test_the_same_input_gives_the_same_attempts() -> None:
    jobs = [job(f"j{one}", one % 7, 3 + one % 5, 1 + one % 8) for one in range(60)]
    ran: list[dict[str, Attempts]] = [attempts(replay(jobs, "2x8", "easy")) for _ in range(2)]
    assert ran[0] == ran[1]


def test_a_strict_line_is_blocked_by_its_head() -> None:
    made = starts(replay(QUEUE, policy="fifo"))
    assert made == {"half": [0], "whole": [10], "long": [20], "short": [20]}


def test_the_oracle_goes_by_true_durations() -> None:
    jobs = [job("first", 0, 10, 8)] + [
        job(f"runs-{runs}", 1, runs, 8, max_runtime_s=1000) for runs in (30, 10, 20)
    ]
    made = starts(replay(jobs, policy="sjf"))
    assert made == {"first": [0], "runs-10": [10], "runs-20": [20], "runs-30": [40]}


def test_fair_share_goes_by_usage() -> None:
    jobs = [job("long", 0, 100, 8, user="greedy")] + [
        job(user, 1, 10, 8, user=user) for user in ("greedy", "modest")
    ]
    made = starts(replay(jobs, policy=FAIR))
    assert made == {"long": [0], "modest": [100], "greedy": [110]}


def test_a_higher_tier_takes_from_a_lower_one_where_the_queue_says_so() -> None:
    cluster = replace(
        from_spec("1x8"), queues=(QueueState("default", (), preemption="lower_priority"),)
    )
    jobs = [job("low", 0, 5000, 8, priority=100), job("high", 100, 50, 8, priority=900)]
    made = replay(jobs, cluster, Policy(protected_s=600), lost_s=60, grace_s=30)
    assert attempts(made) == {
        "low": [(0, 630, "preempted"), (680, 5110, "succeeded")],
        "high": [(630, 680, "succeeded")],
    }
    kept = replay([replace(one, preemptible=False) for one in jobs], cluster, Policy())
    assert starts(kept)["high"] == [5000]


def test_a_queue_takes_back_what_it_lent_and_no_more() -> None:
    queues = tuple(
        QueueState(name, (), cohort="all", nominal={"gpu": 4000}, preemption="reclaim")
        for name in ("mine", "theirs")
    )
    cluster = replace(from_spec("1x8"), queues=queues)
    jobs = [job(f"b{one}", 0, 5000, 2, queue="theirs") for one in range(4)]
    policy = Policy(order="fifo", protected_s=0)
    made = replay([*jobs, job("own", 100, 50, 2, queue="mine")], cluster, policy, grace_s=0)
    assert starts(made)["own"] == [100]
    assert sorted(len(ran) for name, ran in attempts(made).items() if name != "own") == [1, 1, 1, 2]
