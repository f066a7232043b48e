# SPDX-License-Identifier: Apache-2.0
"""How an array ends of which nothing waits or runs any more, and what is said of it."""

from __future__ import annotations

from typing import Any

from gpuservice.domain.ports_store import UnitOfWork, Where
from gpuservice.domain.states import JobStatus
from gpuservice.domain.waiting import NOT_WAITING
from gpuservice.domain.work import Job


def end_of_array(uow: UnitOfWork, job: Job) -> tuple[str, JobStatus, dict[str, Any]]:
    """(event, status, columns) of its end."""
    event, status = _outcome(job)
    values: dict[str, Any] = {
        "status": status,
        "ended_at": uow.now(),
        **NOT_WAITING,
    }
    if status == JobStatus.CANCELLED:
        values.update(failure_class="cancelled", status_reason="cancelled")
    elif status == JobStatus.FAILED:
        values.update(_failure(uow, job))
    return event, status, values


def _outcome(job: Job) -> tuple[str, JobStatus]:
    if job.status == JobStatus.CANCELLING:
        return "cancelled", JobStatus.CANCELLED
    if job.failed_elements + job.timed_out_elements:
        return "fail", JobStatus.FAILED
    if job.succeeded_elements == job.elements:
        return "succeed", JobStatus.SUCCEEDED
    if job.succeeded_elements:
        return "fail", JobStatus.FAILED
    return "cancelled", JobStatus.CANCELLED


def _failure(uow: UnitOfWork, job: Job) -> dict[str, Any]:
    """Class, exit code and evidence of the first element (by index) that failed."""
    cancelled = f"{job.cancelled_elements} of {job.elements} elements were cancelled"
    first = uow.elements.of_job(
        job.id, Where("status", "in", (JobStatus.FAILED, JobStatus.TIMED_OUT)), limit=1
    )
    if not first:
        return {"failure_class": "cancelled", "status_reason": cancelled}
    row = first[0]
    bad = job.failed_elements + job.timed_out_elements
    reason = f"{bad} of {job.elements} elements failed"
    if job.cancelled_elements:
        reason += f", {job.cancelled_elements} were cancelled"
    last = uow.attempts.find(
        Where("job_id", "eq", job.id),
        Where("index", "eq", row.index),
        limit=1,
        order=(("number", "desc"),),
    )
    evidence = (last[0].evidence if last else None) or {}
    return {
        "failure_class": row.failure_class,
        "exit_code": row.exit_code,
        "evidence": {**evidence, "index": row.index},
        "status_reason": f"{reason}; first: index {row.index}, {row.status_reason}"[:255],
    }
