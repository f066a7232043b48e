# SPDX-License-Identifier: Apache-2.0
"""Jobs that ended, as they were asked for and with the time that they really needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from gpuservice.domain.jobspec import JobSpec
from gpuservice.domain.ports_store import UnitOfWork, Where
from gpuservice.domain.states import JOB_ENDED, JobStatus
from gpuservice.domain.work import Attempt, Job
from gpuservice.planner.requests import request_of
from gpuservice.simulation.faults import InputFault
from gpuservice.simulation.workload import WorkloadJob, moment

#: The least that a job is taken to need.
ONE_SECOND = 1.0
#: So that a recorded job and the live one of the same id are two.
PREFIX = "recorded/"
_PART = 500
#: Outcomes of attempts after which the element was not tried again.
_LAST = ("succeeded", "failed", "timed_out", "cancelled")


@dataclass(frozen=True, slots=True)
class Recorded:
    """``left_out``: how many jobs of the window are not part of it, by reason."""

    jobs: tuple[WorkloadJob, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)


def recorded(uow: UnitOfWork, since: datetime, until: datetime, most: int) -> Recorded:
    """The jobs that were submitted in a window, each at its distance from the window's begin.

    :raises InputFault: if there are more than ``most``.
    """
    rows = uow.jobs.find(
        Where("created_at", "ge", since),
        Where("created_at", "lt", until),
        order=(("created_at", "asc"), ("id", "asc")),
        limit=most + 1,
    )
    if len(rows) > most:
        raise InputFault(f"more than {most} jobs were submitted in that time; choose a shorter one")
    ended = [job for job in rows if job.status in JOB_ENDED]
    ran = _run_times(uow, [job.id for job in ended])
    kept = {job.id for job in ended if job.id in ran}
    return Recorded(
        tuple(_job(job, since, ran[job.id], kept) for job in ended if job.id in kept),
        {"not_ended": len(rows) - len(ended), "never_ran": len(ended) - len(kept)},
    )


def _run_times(uow: UnitOfWork, job_ids: Sequence[str]) -> dict[str, float]:
    """By job, how long the last attempt of an element ran (on average, of an array)."""
    found: dict[str, list[float]] = {}
    for at in range(0, len(job_ids), _PART):
        for attempt in uow.attempts.find(
            Where("job_id", "in", list(job_ids[at : at + _PART])), Where("outcome", "in", _LAST)
        ):
            time = _ran(attempt)
            if time is not None:
                found.setdefault(attempt.job_id, []).append(time)
    return {ident: sum(times) / len(times) for ident, times in found.items()}


def _ran(attempt: Attempt) -> float | None:
    if attempt.started_at is None or attempt.ended_at is None:
        return None
    return max(0.0, (attempt.ended_at - attempt.started_at).total_seconds())


def _job(job: Job, since: datetime, ran: float, kept: set[str]) -> WorkloadJob:
    spec = JobSpec.from_dict(job.spec)
    submit = moment(max(0.0, (job.queued_at - since).total_seconds()))
    deadline = None
    if job.deadline_at is not None:
        deadline = moment(max(submit, (job.deadline_at - since).total_seconds()))
    failed = job.status in (JobStatus.FAILED, JobStatus.CANCELLED)
    return WorkloadJob(
        name=PREFIX + job.id,
        submit_s=submit,
        duration_s=max(ONE_SECOND, moment(ran)),
        request=request_of(spec),
        project=job.project_id,
        queue=job.queue_id,
        user=job.user_id,
        kind=job.kind,
        priority=job.priority,
        max_runtime_s=job.max_runtime_s,
        preemptible=job.preemptible,
        array_size=job.elements,
        max_running=job.array_max_running,
        depends_on=tuple(
            (PREFIX + other, "started" if condition == "started" else "ended")
            for other, condition in spec.depends_on
            if other in kept
        ),
        deadline_s=deadline,
        outcome="failed" if failed else "succeeded",
    )
