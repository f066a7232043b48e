# SPDX-License-Identifier: Apache-2.0
"""The virtual clock: arrivals, ends, limits, outages, arrays, dependencies, deadlines."""

from __future__ import annotations

from dataclasses import replace

import pytest
from replays import Scripted, attempts, job, replay, starts, statuses

from gpuservice.planner.snapshot import Policy, QueueState, Reservation
from gpuservice.simulation.cluster import Outage, from_spec
from gpuservice.simulation.faults import InputFault
from gpuservice.simulation.policies import POLICIES


def test_a_job_that_finds_room_starts_when_it_comes_and_one_that_does_not_when_there_is() -> None:
    made = replay([job("a", 0, 10, 8), job("b", 3, 5, 8), job("c", 4, 5, 4)])
    assert attempts(made) == {
        "a": [(0, 10, "succeeded")],
        "b": [(10, 15, "succeeded")],
        "c": [(15, 20, "succeeded")],
    }


def test_all_ends_of_a_moment_are_told_before_it_is_planned() -> None:
    halves = [job("a", 0, 10, 4), job("b", 0, 10, 4)]
    script = Scripted({})
    made = replay([*halves, job("c", 10, 5, 8)], session=script)
    assert starts(made)["c"] == [10]
    assert [now for now in script.planned if now == 10] == [10]


def test_nothing_is_planned_while_nothing_waits() -> None:
    script = Scripted({})
    replay([job("a", 0, 10), job("b", 100, 10)], session=script)
    assert script.planned == [0, 100]


@pytest.mark.parametrize(
    ("needs", "limit", "ends", "outcome"),
    [(10, 11, 10, "succeeded"), (10, 10, 10, "succeeded"), (11, 10, 10, "timed_out")],
)
def test_limits(needs: float, limit: int, ends: float, outcome: str) -> None:
    made = replay([job("a", 0, needs, max_runtime_s=limit)])
    assert attempts(made) == {"a": [(0, ends, outcome)]}
    assert statuses(made) == {"a": outcome}


def test_a_queue_has_a_limit_for_jobs_without_one() -> None:
    cluster = replace(from_spec("1x8"), queues=(QueueState("default", (), default_runtime_s=7),))
    made = replay([job("a", 0, 10, max_runtime_s=None)], cluster)
    assert attempts(made) == {"a": [(0, 7, "timed_out")]}


def test_times_with_fractions_meet() -> None:
    """0.1 + 0.2 is not 0.3 to a computer; it is one moment here."""
    made = replay([job("a", 0.1, 0.2, 8), job("b", 0.3, 1, 8)])
    assert starts(made)["b"] == [0.3]


def test_a_job_of_no_time_is_gone_at_once() -> None:
    made = replay([job("a", 5, 0, 8), job("b", 5, 1, 8)])
    assert attempts(made) == {"a": [(5, 5, "succeeded")], "b": [(5, 6, "succeeded")]}


def test_what_can_never_start_is_left_waiting() -> None:
    made = replay([job("a", 0, 1, 9), job("b", 0, 1, 8)])
    assert attempts(made) == {"a": [], "b": [(0, 1, "succeeded")]}
    assert statuses(made) == {"a": "queued", "b": "succeeded"}


def test_a_node_that_goes_takes_its_gangs_with_it_and_they_wait_again() -> None:
    cluster = replace(from_spec("2x8"), outages=(Outage("n0000", 50, 20),))
    made = replay([job("gang", 0, 100, 8, tasks=2), job("late", 60, 5, 8)], cluster, lost_s=10)
    assert attempts(made) == {
        "gang": [(0, 50, "node_failure"), (70, 130, "succeeded")],
        "late": [(60, 65, "succeeded")],
    }


def test_work_that_a_node_took_with_it_may_be_more_than_a_preemption_takes() -> None:
    cluster = replace(from_spec("1x8"), outages=(Outage("n0000", 50, 20),))
    made = replay([job("a", 0, 100)], cluster, lost_s=0, node_failure_lost_s=1000)
    assert attempts(made)["a"][1] == (70, 170, "succeeded")


def test_what_ends_as_its_node_goes_has_ended() -> None:
    cluster = replace(from_spec("1x8"), outages=(Outage("n0000", 10, 5), Outage("n0000", 12, 8)))
    made = replay([job("a", 0, 10), job("b", 11, 1)], cluster)
    assert attempts(made) == {"a": [(0, 10, "succeeded")], "b": [(20, 21, "succeeded")]}


def test_an_array_runs_no_more_elements_than_it_may() -> None:
    made = replay([job("a", 0, 10, array_size=3, max_running=2), job("b", 1, 4, 6)])
    record = made.records[0]
    assert [(one.index, one.start_s) for one in record.attempts] == [(0, 0), (1, 0), (2, 10)]
    assert starts(made)["b"] == [1]
    assert record.status == "succeeded"


def test_dependencies() -> None:
    made = replay(
        [
            job("bad", 0, 10, outcome="failed"),
            job("after", 0, 1, depends_on=(("bad", "failed"),)),
            job("beside", 0, 1, depends_on=(("bad", "started"),)),
            job("never", 0, 1, depends_on=(("bad", "succeeded"),)),
            job("nor", 0, 1, depends_on=(("never", "started"),)),
            job("last", 0, 1, depends_on=(("never", "ended"), ("beside", "ended"))),
        ]
    )
    assert starts(made) == {
        "bad": [0],
        "after": [10],
        "beside": [0],
        "never": [],
        "nor": [],
        "last": [10],
    }
    assert statuses(made)["nor"] == "failed"
    assert made.records[3].failure == "dependency"


def test_a_dependency_names_one_other_job() -> None:
    with pytest.raises(InputFault, match="names 'x', which is 0 jobs of this file"):
        replay([job("a", 0, 1, depends_on=(("x", "ended"),))])


def test_a_deadline_ends_what_still_waits() -> None:
    late = [job("b", 0, 1, 8, deadline_s=10), job("c", 0, 5, deadline_s=9)]
    made = replay([job("a", 0, 10, 8), *late])
    assert statuses(made) == {"a": "succeeded", "b": "failed", "c": "failed"}
    assert made.records[1].failure == "deadline"
    assert made.records[1].ended_s == 10


def test_an_elastic_gang_takes_what_there_is() -> None:
    made = replay([job("a", 0, 10, 4), job("b", 0, 5, 2, tasks=4, min_tasks=1)])
    assert starts(made)["b"] == [0]
    assert len(made.records[1].attempts[0].tasks) == 2


def test_quotas_hold_at_every_moment() -> None:
    cluster = replace(from_spec("1x8"), headroom={("p", "gpus"): 2000})
    jobs = [job(f"p{one}", 0, 10, project="p") for one in range(4)]
    made = replay([*jobs, job("other", 0, 10, 6)], cluster)
    assert starts(made) == {"p0": [0], "p1": [0], "p2": [10], "p3": [10], "other": [0]}


def test_reserved_nodes_are_kept_and_come_back() -> None:
    cluster = replace(
        from_spec("1x8"), reservations=(Reservation("r", ("n0000",), 20, 40, project_id="vip"),)
    )
    made = replay([job("a", 0, 30), job("vip", 21, 5, project="vip")], cluster)
    assert starts(made)["vip"] == [21]


def test_a_due_time_wakes_the_plan() -> None:
    script = Scripted({0: lambda made: replace(made, due={"b": 7.0})})
    replay([job("a", 0, 10, 8), job("b", 0, 1, 8)], session=script)
    assert sorted(set(script.planned)) == [0, 7, 10]


def test_the_oracle_is_told_how_long_jobs_run() -> None:
    script = Scripted({})
    replay([job("a", 0, 2.5, max_runtime_s=100)], policy="sjf", session=script)
    assert script.told[0][1].max_runtime_s == 3


def test_how_limits_turn_out_is_learned() -> None:
    jobs = [job("a", 0, 10, max_runtime_s=40), job("b", 0, 20, max_runtime_s=60)]
    assert replay(jobs).limit_ratio == pytest.approx(0.3)
    assert replay(jobs, learn_limits=False).limit_ratio == 1.0


def test_a_promise_is_kept_with_its_first_start() -> None:
    made = replay([job("a", 0, 10, 8, max_runtime_s=12), job("b", 0, 1, 8)], policy="easy")
    record = made.records[1]
    assert (record.promise_made_s, record.promise_s, record.slip_s) == (0, 12, 0)


def test_a_project_that_is_not_its_queues_is_refused() -> None:
    cluster = replace(from_spec("1x8"), members={"default": frozenset({"x"})})
    with pytest.raises(InputFault, match="queue 'default' is for the projects x"):
        replay([job("a", 0, 1)], cluster)


def test_a_plan_that_gives_something_twice_is_a_fault_of_the_planner() -> None:
    from gpuservice.simulation.faults import PlanFault

    def twice(made):
        starts = made.starts
        return replace(made, starts=(starts[0], replace(starts[0], job_id="b")))

    with pytest.raises(PlanFault, match="n0000"):
        replay(
            [job("a", 0, 9, 8), job("b", 0, 9, 8)],
            policy=POLICIES["skip"].policy,
            session=Scripted({0: twice}),
        )


def test_policies_are_planner_policies() -> None:
    assert all(isinstance(one.policy, Policy) for one in POLICIES.values())
