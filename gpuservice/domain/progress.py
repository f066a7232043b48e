# SPDX-License-Identifier: Apache-2.0
"""What becomes of an attempt, given what its nodes said of its tasks: pure decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from signal import Signals
from typing import Any

from gpuservice.domain.states import AttemptOutcome, AttemptStatus, TaskStatus
from gpuservice.domain.work import Attempt, Task

#: Added to a job's time limit and grace before the service itself stops it: the node's own
#: supervisor keeps the limit exactly, this is the backstop. Seconds.
LIMIT_SLACK_S = 10

#: A node that did not start its task in time is first told to drop it; a task that it has not
#: even heard of after so many seconds is given up. Longer than several syncs, since until the
#: node has heard it might still start the task.
SILENCE_S = 30

#: Reasons for which an attempt makes room although nothing is wrong with it.
PREEMPTED, SUSPENDED = "preempted", "suspended"

_STARTED = (TaskStatus.RUNNING, TaskStatus.FINISHING, TaskStatus.GONE)


@dataclass(frozen=True, slots=True)
class Ending:
    """How an attempt ended."""

    outcome: str
    failure_class: str | None = None
    exit_code: int | None = None
    evidence: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """The next step: at most one of run, stop, end; ``due_at`` as it should be from now on.

    ``silent``: tasks to be given up, since their node neither started nor dropped them in time.
    """

    run: bool = False
    stop: str | None = None
    end: Ending | None = None
    due_at: datetime | None = None
    silent: tuple[str, ...] = field(default=())


def next_step(
    attempt: Attempt, tasks: Sequence[Task], now: datetime, limit_s: int | None, grace_s: int
) -> Step:
    """Decide. ``limit_s`` is the job's time limit as it is now, ``grace_s`` its grace period."""
    alive = [task for task in tasks if task.status != TaskStatus.GONE]
    if not alive:
        return Step(end=ending(attempt, tasks))
    due = attempt.due_at is not None and attempt.due_at <= now
    if attempt.status == AttemptStatus.STOPPING:
        if not due:
            return Step(due_at=attempt.due_at)
        return Step(silent=tuple(task.id for task in alive if task.status == TaskStatus.ASSIGNED))
    reason = attempt.stop_reason or _failed(tasks)
    if reason is not None:
        return Step(stop=reason)
    if attempt.status == AttemptStatus.STARTING:
        if all(task.status in _STARTED for task in tasks):
            return Step(run=True, due_at=_limit(now, limit_s, grace_s))
        if due:
            return Step(stop="start_timeout", due_at=now + timedelta(seconds=SILENCE_S))
        return Step(due_at=attempt.due_at)
    limit = _limit(attempt.started_at or now, limit_s, grace_s)
    if limit is not None and limit <= now:
        return Step(stop="time_limit")
    return Step(due_at=limit)


def _limit(started_at: datetime, limit_s: int | None, grace_s: int) -> datetime | None:
    if limit_s is None:
        return None
    return started_at + timedelta(seconds=limit_s + grace_s + LIMIT_SLACK_S)


def _failed(tasks: Sequence[Task]) -> str | None:
    """The first failed rank stops the gang."""
    return (
        "failed"
        if any(task.status == TaskStatus.GONE and failure_class(task) is not None for task in tasks)
        else None
    )


def failure_class(task: Task) -> str | None:
    """The class of a task's failure, None when it succeeded (or has not ended)."""
    if task.status != TaskStatus.GONE:
        return None
    if task.failure_class is not None:
        return task.failure_class
    if task.oom:
        return "out_of_memory"
    if task.timed_out:
        return "time_limit"
    if task.exit_code == 0 and task.signal is None:
        return None
    return "user_code"


def ending(attempt: Attempt, tasks: Sequence[Task]) -> Ending:
    """The outcome of an attempt of which every task is gone."""
    if attempt.stop_reason == "cancelled":
        return Ending(AttemptOutcome.CANCELLED, "cancelled")
    failed = [task for task in tasks if failure_class(task) is not None]
    lost = [task for task in failed if failure_class(task) == "node_failure"]
    if attempt.stop_reason in (PREEMPTED, SUSPENDED) and failed:
        failed, lost = [task for task in failed if _failed_by_itself(task)], []
        if not failed:
            return Ending(AttemptOutcome.PREEMPTED, "preempted")
    if lost:
        return Ending(AttemptOutcome.NODE_FAILURE, "node_failure", None, _evidence(lost[0]))
    if attempt.stop_reason in ("requeue", "drained"):
        return Ending(AttemptOutcome.PREEMPTED, "preempted")
    if not failed:
        return Ending(AttemptOutcome.SUCCEEDED, None, 0)
    if attempt.stop_reason == "start_timeout":
        return Ending(
            AttemptOutcome.NODE_FAILURE,
            "node_failure",
            None,
            {"message": "not all tasks had started in time"},
        )
    first = min(failed, key=_when)
    found = failure_class(first)
    if found == "time_limit" or attempt.stop_reason == "time_limit":
        return Ending(AttemptOutcome.TIMED_OUT, "time_limit", first.exit_code, _evidence(first))
    return Ending(AttemptOutcome.FAILED, found, first.exit_code, _evidence(first))


def _failed_by_itself(task: Task) -> bool:
    """Whether the failure of a task that had to make room is its own.

    What was told to go and ends with a bad code, or by a signal, ends because of that (as do
    ranks that lose their peers), and so does what never started; the memory or time that it used
    up is its own.
    """
    found = failure_class(task)
    if found in ("out_of_memory", "time_limit"):
        return True
    told = task.exit_code is not None or task.signal is not None or task.failure_class is not None
    return told and not task.stopped and found != "node_failure"


def _when(task: Task) -> tuple[datetime, datetime, int]:
    """When a task ended; what its node claims only decides between ends told together."""
    gone = task.gone_at or task.created_at
    return gone, task.claimed_ended_at or gone, task.rank


def _evidence(task: Task) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "rank": task.rank,
        "node_id": task.node_id,
        "exit_code": task.exit_code,
        "signal": task.signal,
    }
    if task.failure_evidence:
        facts["message"] = task.failure_evidence
    return {name: value for name, value in facts.items() if value is not None}


def reason(end: Ending) -> str | None:
    """One line on why an attempt ended badly: the class and what is known of it."""
    if end.failure_class is None:
        return None
    evidence = end.evidence or {}
    what = str(evidence.get("message", ""))
    if not what and evidence.get("signal") is not None:
        what = f"killed by signal {_named(evidence['signal'])}"
    elif not what and end.exit_code is not None:
        what = f"exit code {end.exit_code}"
    return f"{end.failure_class}: {what}"[:255] if what else end.failure_class


def _named(number: int) -> str:
    """``9 (SIGKILL)``; most real-time signals have no name."""
    try:
        return f"{number} ({Signals(number).name})"
    except ValueError:
        return str(number)
