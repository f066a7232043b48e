# SPDX-License-Identifier: Apache-2.0
"""What a preemption costs, and what the planner is told of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from replays import Scripted, also, attempts, job, replay

from gpuservice.planner.plan_types import Preemption
from gpuservice.simulation.report import summary

OUT = also(preemptions=(Preemption("low#0", "low", "high", "priority"),))
LOW = job("low", 0, 1000, 8)
HIGH = job("high", 100, 10, 8, priority=900)


def test_a_victim_ends_after_its_grace_and_does_what_it_lost_again() -> None:
    made = replay([LOW, HIGH], session=Scripted({100: OUT}), lost_s=50)
    assert attempts(made) == {
        "low": [(0, 160, "preempted"), (170, 1060, "succeeded")],
        "high": [(160, 170, "succeeded")],
    }
    assert summary(made)["preemptions"] == 1


def test_without_grace_the_preemptor_starts_at_that_very_moment() -> None:
    made = replay([LOW, HIGH], session=Scripted({100: OUT}), lost_s=0, grace_s=0)
    assert attempts(made) == {
        "low": [(0, 100, "preempted"), (110, 1010, "succeeded")],
        "high": [(100, 110, "succeeded")],
    }


def test_no_more_is_lost_than_was_done() -> None:
    made = replay([LOW, HIGH], session=Scripted({100: OUT}), grace_s=0)
    assert attempts(made)["low"][1] == (110, 1110, "succeeded")


def test_who_ends_within_its_grace_has_ended() -> None:
    made = replay([job("low", 0, 130, 8), HIGH], session=Scripted({100: OUT}))
    assert attempts(made)["low"] == [(0, 130, "succeeded")]
    assert attempts(made)["high"] == [(130, 140, "succeeded")]


def _said_of(script: Scripted, name: str) -> list[Any]:
    return [said for verb, said in script.told if verb == "submit" and said.job_id == name]


def test_a_victim_keeps_its_place_and_is_counted() -> None:
    script = Scripted({100: OUT})
    replay([LOW, HIGH], session=script)
    first, *_, last = _said_of(script, "low")
    assert (last.queued_at, last.sequence, last.due) == (first.queued_at, first.sequence, first.due)
    assert (first.preempted, last.preempted) == (0, 1)
    assert last.max_runtime_s == first.max_runtime_s


def test_a_victim_may_ask_for_what_is_left_of_its_limit() -> None:
    script = Scripted({100: OUT})
    replay([LOW, HIGH], session=script, remaining_limits=True, lost_s=60)
    last = _said_of(script, "low")[-1]
    assert last.max_runtime_s == 1000 - 160 + 60


def test_the_planner_knows_for_whom_something_is_being_stopped() -> None:
    script = Scripted({100: OUT})
    replay([LOW, HIGH], session=script)
    assert [said.claimed for said in _said_of(script, "high")] == [False, True]
    assert ("stopping", ("low#0", 160)) in script.told


def test_a_claim_that_came_to_nothing_ends() -> None:
    """What was stopped for it went to another: it may ask again."""
    script = Scripted({100: OUT, 160: lambda made: replace(made, starts=())})
    replay([LOW, HIGH], session=script)
    assert [said.claimed for said in _said_of(script, "high")] == [False, True, False]


def test_nobody_is_stopped_twice() -> None:
    script = Scripted({100: OUT, 120: OUT})
    made = replay([LOW, HIGH, job("more", 120, 1, 8)], session=script)
    assert attempts(made)["low"][0] == (0, 160, "preempted")


def test_a_node_that_goes_ends_the_grace() -> None:
    from gpuservice.simulation.cluster import Outage, from_spec

    cluster = replace(from_spec("1x8"), outages=(Outage("n0000", 130, 10),))
    made = replay([LOW, HIGH], cluster, session=Scripted({100: OUT}))
    assert attempts(made)["low"][0] == (0, 130, "node_failure")
