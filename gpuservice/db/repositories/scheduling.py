# SPDX-License-Identifier: Apache-2.0
"""What the scheduler reads each pass: light rows, nothing of history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, and_, func, or_, select

from gpuservice.db.statements import chunks
from gpuservice.db.tables import (
    ALLOCATIONS,
    ATTEMPTS,
    ELEMENTS,
    JOBS,
    QUOTA_LIMITS,
    QUOTA_USAGE,
    TASKS,
)
from gpuservice.domain.ports_scheduling import LiveGang, LiveTask, WaitingJob
from gpuservice.domain.states import JobStatus, TaskStatus

_WAITING = (
    "id",
    "project_id",
    "user_id",
    "queue_id",
    "kind",
    "status",
    "priority",
    "preemptible",
    "max_runtime_s",
    "deadline_at",
    "on_hold",
    "array_size",
    "array_max_running",
    "waiting_elements",
    "live_elements",
    "not_before",
    "queued_at",
    "created_at",
    "version",
    "preempted_count",
    "due_at",
    "promised_since",
    "claimed",
)

_OPEN = and_(JOBS.c.open == 1, JOBS.c.waiting_elements > 0)
_ROWS = (
    select(*(JOBS.c[name] for name in _WAITING)).where(_OPEN).order_by(JOBS.c.created_at, JOBS.c.id)
)
_VERSIONS = select(JOBS.c.id, JOBS.c.version).where(_OPEN).order_by(JOBS.c.created_at, JOBS.c.id)


_GANGS = (
    select(
        ATTEMPTS.c.id,
        ATTEMPTS.c.job_id,
        ATTEMPTS.c.project_id,
        ATTEMPTS.c.queue_id,
        JOBS.c.user_id,
        ATTEMPTS.c.status,
        JOBS.c.priority,
        JOBS.c.preemptible,
        JOBS.c.max_runtime_s,
        ATTEMPTS.c.created_at,
        ATTEMPTS.c.started_at,
        ATTEMPTS.c.promised_end_at,
        ATTEMPTS.c.stop_requested_at,
        ATTEMPTS.c.preempted_for,
        func.coalesce(ELEMENTS.c.preempted_count, JOBS.c.preempted_count),
    )
    .select_from(
        ATTEMPTS.join(JOBS, JOBS.c.id == ATTEMPTS.c.job_id).outerjoin(
            ELEMENTS,
            and_(ELEMENTS.c.job_id == ATTEMPTS.c.job_id, ELEMENTS.c.index == ATTEMPTS.c.index),
        )
    )
    .where(ATTEMPTS.c.live == 1)
    .order_by(ATTEMPTS.c.id)
)


class SchedulingReads:
    """Read models for the planner's snapshot."""

    def __init__(self, connection: Connection) -> None:
        self._c = connection

    def waiting_versions(self) -> list[tuple[str, int]]:
        """(id, version) of every job with elements that wait, held ones too, in order of
        submission: what a reader that keeps the rows needs to read each time."""
        return [(ident, version) for ident, version in self._c.execute(_VERSIONS)]

    def waiting(self, job_ids: Sequence[str] | None = None) -> list[WaitingJob]:
        """Those jobs, all or some of them, in order of submission."""
        if job_ids is None:
            return [WaitingJob(*row) for row in self._c.execute(_ROWS)]
        found = [
            WaitingJob(*row)
            for part in chunks(sorted(job_ids))
            for row in self._c.execute(_ROWS.where(JOBS.c.id.in_(part)))
        ]
        return sorted(found, key=lambda job: (job.created_at, job.id))

    def specs(self, job_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The specs of jobs (they never change, so a reader may keep them)."""
        found: dict[str, dict[str, Any]] = {}
        for part in chunks(sorted(job_ids)):
            query = select(JOBS.c.id, JOBS.c.spec).where(JOBS.c.id.in_(part))
            found.update(self._c.execute(query).all())
        return found

    def notes(self) -> dict[str, tuple[datetime | None, datetime | None]]:
        """(due, promised since) of the waiting jobs that have either."""
        job = JOBS.c
        query = select(job.id, job.due_at, job.promised_since).where(
            _OPEN, or_(job.due_at.is_not(None), job.promised_since.is_not(None))
        )
        return {ident: (due, since) for ident, due, since in self._c.execute(query)}

    def most_preempted(self) -> dict[str, int]:
        """How often the waiting element of an array that was preempted the most was."""
        element = ELEMENTS.c
        query = (
            select(element.job_id, func.max(element.preempted_count))
            .where(element.status == JobStatus.QUEUED, element.preempted_count > 0)
            .group_by(element.job_id)
        )
        return dict(self._c.execute(query).all())

    def live_gangs(self) -> list[LiveGang]:
        """Every live attempt, with what its job (or element) says of it."""
        rows: Iterable[Any] = self._c.execute(_GANGS)
        return [LiveGang(*row) for row in rows]

    def live_tasks(self) -> list[LiveTask]:
        """Every task that holds something, with its shares and the end it was promised."""
        shares: dict[str, list[tuple[str, int]]] = {}
        held = select(ALLOCATIONS.c.task_id, ALLOCATIONS.c.device_id, ALLOCATIONS.c.milli).where(
            ALLOCATIONS.c.held == 1
        )
        for task_id, device_id, milli in self._c.execute(held):
            shares.setdefault(task_id, []).append((device_id, milli))
        task, attempt = TASKS.c, ATTEMPTS.c
        query = (
            select(
                task.id,
                task.attempt_id,
                task.job_id,
                task.project_id,
                attempt.queue_id,
                task.node_id,
                task.rank,
                task.vcpus,
                task.memory_mib,
                task.counted_gpus,
                attempt.promised_end_at,
                attempt.created_at,
            )
            .select_from(ATTEMPTS.join(TASKS, task.attempt_id == attempt.id))
            .where(attempt.live == 1, task.status != TaskStatus.GONE)
            .order_by(task.attempt_id, task.rank)
        )
        found = []
        for row in self._c.execute(query):
            values: list[Any] = [*row, tuple(sorted(shares.get(row[0], ())))]
            found.append(LiveTask(*values))
        return found

    def quota(self) -> dict[tuple[str, str], tuple[int | None, int]]:
        """(project, name) -> (own limit or None, in use), for every project known."""
        use: dict[tuple[str, str], int] = {
            (project, name): value
            for project, name, value in self._c.execute(
                select(QUOTA_USAGE.c.project_id, QUOTA_USAGE.c.name, QUOTA_USAGE.c.in_use)
            )
        }
        limits: dict[tuple[str, str], int] = {
            (project, name): value
            for project, name, value in self._c.execute(
                select(QUOTA_LIMITS.c.project_id, QUOTA_LIMITS.c.name, QUOTA_LIMITS.c.value)
            )
        }
        return {key: (limits.get(key), use.get(key, 0)) for key in {*use, *limits}}
