# SPDX-License-Identifier: Apache-2.0
"""The next step of an attempt: tables of what nodes said and what follows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuservice.domain.progress import LIMIT_SLACK_S, SILENCE_S, ending, failure_class, next_step
from gpuservice.domain.states import ATTEMPT, AttemptOutcome, TaskStatus
from gpuservice.domain.work import Attempt, Task

NOW = datetime(2026, 5, 6, tzinfo=UTC)


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def attempt(status: str = "starting", **values: Any) -> Attempt:
    row: dict[str, Any] = {
        "id": "a",
        "job_id": "j",
        "index": 0,
        "number": 1,
        "project_id": "p",
        "queue_id": "q",
        "pool_id": "pool",
        "status": status,
        "created_at": NOW,
        "tasks_count": 2,
        "gang_secret": "s",
        "due_at": later(300),
    }
    return Attempt(**{**row, **values})


def task(rank: int, status: str, **values: Any) -> Task:
    row: dict[str, Any] = {
        "id": f"t{rank}",
        "attempt_id": "a",
        "job_id": "j",
        "index": 0,
        "attempt": 1,
        "rank": rank,
        "project_id": "p",
        "node_id": f"n{rank}",
        "node_epoch": 1,
        "status": status,
        "created_at": NOW,
        "gone_at": NOW if status == "gone" else None,
    }
    return Task(**{**row, **values})


def test_it_runs_when_every_rank_has_started() -> None:
    waiting = [task(0, "running"), task(1, "preparing")]
    assert next_step(attempt(), waiting, NOW, 100, 5).run is False
    step = next_step(attempt(), [task(0, "running"), task(1, "finishing")], NOW, 100, 5)
    assert step.run and step.due_at == later(105 + LIMIT_SLACK_S)
    assert next_step(attempt(), [task(0, "running")], NOW, None, 5).due_at is None


def test_a_rank_that_succeeded_early_does_not_stop_the_others() -> None:
    tasks = [task(0, "gone", exit_code=0), task(1, "running")]
    assert next_step(attempt("running", due_at=None), tasks, NOW, None, 5).stop is None
    assert next_step(attempt(), tasks, NOW, None, 5).run


def test_the_first_failed_rank_stops_the_gang() -> None:
    tasks = [task(0, "gone", exit_code=1), task(1, "running")]
    assert next_step(attempt("running"), tasks, NOW, None, 5).stop == "failed"


def test_a_request_stops_it_whatever_else_holds() -> None:
    tasks = [task(0, "running"), task(1, "running")]
    assert next_step(attempt(stop_reason="cancelled"), tasks, NOW, None, 5).stop == "cancelled"


def test_silence_is_answered_in_two_stages() -> None:
    tasks = [task(0, "running"), task(1, "assigned")]
    step = next_step(attempt(due_at=NOW), tasks, NOW, None, 5)
    assert (step.stop, step.silent) == ("start_timeout", ())
    assert step.due_at == later(SILENCE_S)
    stopping = attempt("stopping", stop_reason="start_timeout", due_at=step.due_at)
    assert next_step(stopping, tasks, later(SILENCE_S - 1), None, 5).silent == ()
    assert next_step(stopping, tasks, later(SILENCE_S), None, 5).silent == ("t1",)


def test_the_limit_is_that_of_now() -> None:
    tasks = [task(0, "running")]
    running = attempt("running", started_at=NOW, due_at=later(15 + LIMIT_SLACK_S))
    at = later(15 + LIMIT_SLACK_S)
    assert next_step(running, tasks, at, 10, 5).stop == "time_limit"
    assert next_step(running, tasks, at, 20, 5).due_at == later(25 + LIMIT_SLACK_S)
    assert next_step(running, tasks, at, None, 5).due_at is None


@pytest.mark.parametrize(
    ("reason", "ends", "outcome", "failure"),
    [
        (None, [{"exit_code": 0}, {"exit_code": 0}], "succeeded", None),
        (None, [{"exit_code": 0}, {"exit_code": 2}], "failed", "user_code"),
        ("failed", [{"exit_code": 2}, {"signal": 15}], "failed", "user_code"),
        ("cancelled", [{"exit_code": 0}, {"exit_code": 0}], "cancelled", "cancelled"),
        ("cancelled", [{"failure_class": "node_failure"}], "cancelled", "cancelled"),
        ("preempted", [{"exit_code": 0, "stopped": True}], "succeeded", None),
        ("preempted", [{"exit_code": 1, "stopped": True}, {}], "preempted", "preempted"),
        ("preempted", [{"exit_code": 1}, {"stopped": True, "signal": 9}], "failed", "user_code"),
        ("suspended", [{"exit_code": 143, "stopped": True}], "preempted", "preempted"),
        (
            "suspended",
            [{"signal": 9, "oom": True, "stopped": True}],
            "failed",
            "out_of_memory",
        ),
        ("requeue", [{"signal": 15}], "preempted", "preempted"),
        ("preempted", [{"failure_class": "node_failure"}], "preempted", "preempted"),
        ("requeue", [{"failure_class": "node_failure"}], "node_failure", "node_failure"),
        (
            "failed",
            [{"exit_code": 1}, {"failure_class": "node_failure"}],
            "node_failure",
            "node_failure",
        ),
        ("time_limit", [{"signal": 15}], "timed_out", "time_limit"),
        ("time_limit", [{"exit_code": 0}], "succeeded", None),
        (None, [{"timed_out": True, "signal": 15}], "timed_out", "time_limit"),
        (None, [{"timed_out": True, "exit_code": 0}], "timed_out", "time_limit"),
        (None, [{"oom": True, "signal": 9}], "failed", "out_of_memory"),
        ("start_timeout", [{"signal": 15}, {}], "node_failure", "node_failure"),
    ],
)
def test_how_it_ended(
    reason: str | None, ends: list[dict[str, Any]], outcome: str, failure: str | None
) -> None:
    tasks = [task(rank, "gone", **end) for rank, end in enumerate(ends)]
    end = ending(attempt("stopping", stop_reason=reason), tasks)
    assert (end.outcome, end.failure_class) == (outcome, failure)


def test_the_failure_told_first_is_the_cause() -> None:
    tasks = [
        task(0, "gone", signal=15, gone_at=later(2)),
        task(1, "gone", exit_code=7, gone_at=later(1)),
        task(2, "gone", signal=15, gone_at=later(2)),
    ]
    end = ending(attempt("stopping", stop_reason="failed"), tasks)
    assert end.exit_code == 7 and end.evidence is not None and end.evidence["rank"] == 1
    # Told together: what the nodes claim decides.
    together = [
        replace(tasks[0], gone_at=NOW, claimed_ended_at=later(1)),
        replace(tasks[1], gone_at=NOW, claimed_ended_at=later(0.5)),
    ]
    assert ending(attempt("stopping"), together).exit_code == 7


ENDS = st.fixed_dictionaries(
    {},
    optional={
        "exit_code": st.sampled_from([0, 1]),
        "signal": st.sampled_from([9, 15]),
        "oom": st.booleans(),
        "timed_out": st.booleans(),
        "stopped": st.booleans(),
        "failure_class": st.sampled_from(["node_failure", "gpu_failure", "data"]),
    },
)
TASKS = st.lists(st.tuples(st.sampled_from(list(TaskStatus)), ENDS), min_size=1, max_size=4)


@given(
    TASKS,
    st.sampled_from(["starting", "running", "stopping"]),
    st.sampled_from(
        [None, "cancelled", "requeue", "preempted", "suspended", "failed", "start_timeout"]
    ),
    st.sampled_from([None, later(-1), later(1)]),
    st.sampled_from([None, 10]),
)
def test_every_step_is_one_that_the_table_allows(
    given_tasks: list[tuple[TaskStatus, dict[str, Any]]],
    status: str,
    reason: str | None,
    due_at: datetime | None,
    limit: int | None,
) -> None:
    tasks = [task(rank, one, **end) for rank, (one, end) in enumerate(given_tasks)]
    of = attempt(status, stop_reason=reason, due_at=due_at, started_at=NOW)
    step = next_step(of, tasks, NOW, limit, 5)
    alive = [one for one in tasks if one.status != "gone"]
    assert (step.end is not None) == (not alive)
    assert sum((step.run, step.stop is not None, step.end is not None)) <= 1
    for event, taken in (("run", step.run), ("stop", step.stop), ("end", step.end)):
        assert not taken or ATTEMPT.allows(status, event)
    assert set(step.silent) <= {one.id for one in alive if one.status == TaskStatus.ASSIGNED}
    # Nothing is due in the past without a step: the pipeline would never rest.
    if not (step.run or step.stop or step.end or step.silent):
        assert step.due_at is None or step.due_at > NOW
    if step.end is not None:
        assert step.end.outcome in set(AttemptOutcome)
        failed = any(failure_class(one) for one in tasks)
        assert (step.end.outcome == "succeeded") <= (not failed and reason != "cancelled")
