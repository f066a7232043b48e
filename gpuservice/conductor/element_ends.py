# SPDX-License-Identifier: Apache-2.0
"""Ended attempts: retry or final status, counts, quota, ports, artifacts; all in one go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from gpuservice.conductor.deps import CAUSE, Deps
from gpuservice.domain.array_ends import end_of_array
from gpuservice.domain.happenings import status_change
from gpuservice.domain.jobspec import JobSpec
from gpuservice.domain.ports_store import Delta, UnitOfWork, Where
from gpuservice.domain.progress import PREEMPTED, SUSPENDED, Ending, reason
from gpuservice.domain.retry import Decision, decide
from gpuservice.domain.states import AttemptOutcome, AttemptStatus, JobStatus
from gpuservice.domain.work import Attempt, Event, Job

#: outcome -> (event, status of the element)
_FINAL = {
    AttemptOutcome.SUCCEEDED: ("succeed", JobStatus.SUCCEEDED),
    AttemptOutcome.FAILED: ("fail", JobStatus.FAILED),
    AttemptOutcome.NODE_FAILURE: ("fail", JobStatus.FAILED),
    AttemptOutcome.PREEMPTED: ("fail", JobStatus.FAILED),
    AttemptOutcome.TIMED_OUT: ("time_out", JobStatus.TIMED_OUT),
    AttemptOutcome.CANCELLED: ("cancelled", JobStatus.CANCELLED),
}
_COUNTS = {
    JobStatus.SUCCEEDED: "succeeded_elements",
    JobStatus.FAILED: "failed_elements",
    JobStatus.TIMED_OUT: "timed_out_elements",
    JobStatus.CANCELLED: "cancelled_elements",
}

#: Outcomes of what did start.
_RAN = (AttemptOutcome.SUCCEEDED, AttemptOutcome.FAILED, AttemptOutcome.TIMED_OUT)

End = tuple[Attempt, Job, Ending]


def _began(attempt: Attempt, end: Ending) -> datetime | None:
    """When it started; one that ran to its end before anybody heard of its start: when it was
    given out."""
    if attempt.started_at is not None or end.outcome not in _RAN:
        return attempt.started_at
    return attempt.created_at


class ElementEnds:
    """Writes the ends of a batch of attempts."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    def write(self, uow: UnitOfWork, ends: Sequence[End], jobs: Mapping[str, Job]) -> None:
        """Record every end; jobs are locked by the caller."""
        self._end_attempts(uow, ends)
        events: list[Event] = []
        quota: dict[str, list[int]] = {}
        singles: list[tuple[str, dict[str, Any]]] = []
        arrays: dict[str, Job] = {}
        before = {
            (one.job_id, one.index): one.status
            for one in uow.elements.of_keys(
                [(job.id, attempt.index) for attempt, job, _ in ends if job.is_array]
            )
        }
        for attempt, job, end in ends:
            decision = self._retry(uow, attempt, job, end)
            amounts = quota.setdefault(job.project_id, [0, 0])
            amounts[0] += 1
            amounts[1] += decision.again
            if job.is_array:
                was = before.get((job.id, attempt.index), JobStatus.RUNNING)
                self._element(uow, attempt, job, end, decision, events, was)
                arrays[job.id] = job
            else:
                singles.append((job.id, self._single(uow, attempt, job, end, decision, events)))
        for project, (ended, again) in sorted(quota.items()):
            uow.quotas.give_back(project, {"jobs:running": ended, "jobs:queued": -again})
        _change_alike(uow, singles)
        for job in arrays.values():
            self._array(uow, job.id, events)
        uow.events.add_many(events)

    @staticmethod
    def _end_attempts(uow: UnitOfWork, ends: Sequence[End]) -> None:
        """The attempts themselves, their ports and what they made."""
        now = uow.now()
        ids = [attempt.id for attempt, _, _ in ends]
        uow.attempts.change_each(
            [
                (
                    attempt.id,
                    {
                        "status": AttemptStatus.ENDED,
                        "outcome": end.outcome,
                        "live": None,
                        "attention": False,
                        "due_at": None,
                        "started_at": _began(attempt, end),
                        "ended_at": now,
                        "failure_class": end.failure_class,
                        "exit_code": end.exit_code,
                        "evidence": end.evidence,
                    },
                )
                for attempt, _, end in ends
            ]
        )
        uow.release_ports(ids)
        uow.artifacts.change_many(
            [
                one.id
                for one in uow.artifacts.find(
                    Where("attempt_id", "in", ids), Where("published", "eq", False)
                )
            ],
            {"published": True},
        )

    @staticmethod
    def _retry(uow: UnitOfWork, attempt: Attempt, job: Job, end: Ending) -> Decision:
        if job.status == JobStatus.CANCELLING or end.outcome in (
            AttemptOutcome.SUCCEEDED,
            AttemptOutcome.CANCELLED,
        ):
            return Decision(False)
        spec = JobSpec.from_dict(job.spec)
        counted = attempt.number
        if counted > 1:
            counted -= uow.attempts.count(
                Where("job_id", "eq", job.id),
                Where("index", "eq", attempt.index),
                Where("outcome", "eq", AttemptOutcome.PREEMPTED),
            )
            counted = max(counted, 1)
        return decide(spec, end.outcome, end.failure_class, counted)

    def _single(
        self,
        uow: UnitOfWork,
        attempt: Attempt,
        job: Job,
        end: Ending,
        decision: Decision,
        events: list[Event],
    ) -> dict[str, Any]:
        now = uow.now()
        if decision.again:
            # On hold although it ran: it was suspended.
            event, status = (
                ("suspend", JobStatus.HELD) if job.on_hold else ("requeue", JobStatus.QUEUED)
            )
            self._note(uow, job, event, job.status, status, attempt, end, events)
            return {
                "status": status,
                "waiting_elements": 1,
                "live_elements": 0,
                "started_at": None,
                "not_before": now + timedelta(seconds=decision.after_s),
                "status_reason": "suspended" if job.on_hold else _again(end),
                "preempted_count": Delta(_lost_place(attempt, end)),
            }
        event, status = self._final(job, end)
        self._note(uow, job, event, job.status, status, attempt, end, events)
        return {
            "status": status,
            "live_elements": 0,
            "on_hold": False,
            "ended_at": now,
            "started_at": job.started_at or attempt.started_at or attempt.created_at,
            "failure_class": end.failure_class,
            "exit_code": end.exit_code,
            "evidence": end.evidence,
            "status_reason": reason(end),
            _COUNTS[status]: 1,
        }

    @staticmethod
    def _final(job: Job, end: Ending) -> tuple[str, JobStatus]:
        if job.status == JobStatus.CANCELLING:
            return "cancelled", JobStatus.CANCELLED
        return _FINAL[AttemptOutcome(end.outcome)]

    def _element(
        self,
        uow: UnitOfWork,
        attempt: Attempt,
        job: Job,
        end: Ending,
        decision: Decision,
        events: list[Event],
        before: str,
    ) -> None:
        now = uow.now()
        if decision.again:
            lost = _lost_place(attempt, end)
            # Of an array that is suspended as a whole the hold of the job is enough.
            event, status = "requeue", JobStatus.QUEUED
            if attempt.stop_reason == SUSPENDED and job.status != JobStatus.PREEMPTING:
                event, status = "suspend", JobStatus.HELD
            values = {
                "status": status,
                "started_at": None,
                "not_before": now + timedelta(seconds=decision.after_s),
                "status_reason": _again(end),
                "preempted_count": Delta(lost),
            }
            if not lost:
                values["queued_at"] = now
            uow.elements.change(job.id, attempt.index, values)
            uow.jobs.change(
                job.id,
                {
                    "live_elements": Delta(-1),
                    "waiting_elements": Delta(1),
                    "preempted_count": Delta(lost),
                },
            )
            self._note(uow, job, event, before, status, attempt, end, events)
            return
        event, status = self._final(job, end)
        uow.elements.change(
            job.id,
            attempt.index,
            {
                "status": status,
                "started_at": _began(attempt, end),
                "ended_at": now,
                "failure_class": end.failure_class,
                "exit_code": end.exit_code,
                "status_reason": reason(end),
            },
        )
        uow.jobs.change(job.id, {"live_elements": Delta(-1), _COUNTS[status]: Delta(1)})
        self._note(uow, job, event, before, status, attempt, end, events)

    def _array(self, uow: UnitOfWork, job_id: str, events: list[Event]) -> None:
        """End an array of which nothing waits or runs, or too much has failed."""
        job = uow.jobs.get(job_id)
        if job is None:
            return
        failures = job.failed_elements + job.timed_out_elements
        limit = job.array_max_failures
        if limit is not None and failures > limit and job.waiting_elements:
            self._give_up_waiting(uow, job)
            job = uow.jobs.get(job_id) or job
        values: dict[str, Any] = {}
        if job.live_elements or (job.waiting_elements and job.status != JobStatus.PREEMPTING):
            return
        if job.waiting_elements:  # it was suspended, and nothing of it runs any more
            event, status = (
                ("suspend", JobStatus.HELD) if job.on_hold else ("requeue", JobStatus.QUEUED)
            )
            uow.jobs.change(job_id, {"status": status})
        else:
            event, status, values = end_of_array(uow, job)
            uow.jobs.change(job_id, {**values, "on_hold": False})
            uow.drop_explanations([job_id])
        events.append(
            status_change(
                self._deps.ids,
                uow.now(),
                CAUSE,
                "job",
                event,
                job_id,
                job.status,
                status,
                project_id=job.project_id,
                reason=values.get("failure_class"),
            )
        )

    @staticmethod
    def _give_up_waiting(uow: UnitOfWork, job: Job) -> None:
        """Cancel what still waits of an array that has failed too often."""
        uow.quotas.give_back(job.project_id, {"jobs:queued": job.waiting_elements})
        values = {
            "status": JobStatus.CANCELLED,
            "ended_at": uow.now(),
            "failure_class": "cancelled",
        }
        waits = (JobStatus.QUEUED, JobStatus.HELD)
        uow.elements.change_where(job.id, values, Where("status", "in", waits))
        uow.jobs.change(
            job.id,
            {
                "waiting_elements": 0,
                "next_index": job.elements,
                "cancelled_elements": Delta(job.waiting_elements),
            },
        )

    def _note(
        self,
        uow: UnitOfWork,
        job: Job,
        event: str,
        before: str,
        after: str,
        attempt: Attempt,
        end: Ending,
        events: list[Event],
    ) -> None:
        detail: dict[str, Any] = {
            "attempt": attempt.number,
            "outcome": end.outcome,
            "exit_code": end.exit_code,
        }
        if job.is_array:
            detail["index"] = attempt.index
        events.append(
            status_change(
                self._deps.ids,
                uow.now(),
                CAUSE,
                "job",
                event,
                job.id,
                before,
                after,
                project_id=job.project_id,
                reason=end.failure_class,
                detail=detail,
            )
        )


def _again(end: Ending) -> str:
    return f"requeued after {reason(end)}"[:255]


def _lost_place(attempt: Attempt, end: Ending) -> int:
    """1 where the scheduler took its place, which is counted."""
    return int(attempt.stop_reason == PREEMPTED and end.outcome == AttemptOutcome.PREEMPTED)


def _change_alike(uow: UnitOfWork, changes: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """Write changes of jobs, those of the same columns in one statement."""
    alike: dict[tuple[str, ...], list[tuple[str, dict[str, Any]]]] = {}
    for ident, values in changes:
        alike.setdefault(tuple(sorted(values)), []).append((ident, values))
    for group in alike.values():
        uow.jobs.change_each(group)
