# SPDX-License-Identifier: Apache-2.0
"""Policies by name, on traces whose answers are known by hand."""

from __future__ import annotations

import pytest
from replays import Attempts, attempts, job, replay, starts

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
