# SPDX-License-Identifier: Apache-2.0
"""What the scheduler reads each pass: light rows, nothing of history."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import BindParameter, Connection, Select, and_, bindparam, func, or_, select

from gpuservice.db.moments import DatabaseTime
from gpuservice.db.repositories import marks
from gpuservice.db.statements import chunks
from gpuservice.db.tables import (
    ALLOCATIONS,
    ATTEMPTS,
    DEVICES,
    ELEMENTS,
    JOBS,
    NODES,
    TASKS,
)
from gpuservice.domain.ports_scheduling import LiveGang, LiveTask, Marks, NodeUse, WaitingJob
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
_IDS: BindParameter[str] = bindparam("ids", expanding=True)


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
_TASKS = (
    select(
        TASKS.c.id,
        TASKS.c.attempt_id,
        TASKS.c.job_id,
        TASKS.c.project_id,
        ATTEMPTS.c.queue_id,
        TASKS.c.node_id,
        TASKS.c.rank,
        TASKS.c.vcpus,
        TASKS.c.memory_mib,
        TASKS.c.counted_gpus,
        ATTEMPTS.c.promised_end_at,
        ATTEMPTS.c.created_at,
    )
    .select_from(ATTEMPTS.join(TASKS, TASKS.c.attempt_id == ATTEMPTS.c.id))
    .where(ATTEMPTS.c.live == 1, TASKS.c.status != TaskStatus.GONE)
    .order_by(TASKS.c.attempt_id, TASKS.c.rank)
)
_SHARE = (ALLOCATIONS.c.task_id, ALLOCATIONS.c.device_id, ALLOCATIONS.c.milli)
_HELD = select(*_SHARE).where(ALLOCATIONS.c.held == 1)
#: The same of some attempts, each made once: making a statement costs more than running it.
_OF_SOME = ATTEMPTS.c.id.in_(_IDS)
_SOME_GANGS, _SOME_TASKS = _GANGS.where(_OF_SOME), _TASKS.where(_OF_SOME)
_SOME_HELD = (
    select(*_SHARE)
    .select_from(
        ATTEMPTS.join(TASKS, TASKS.c.attempt_id == ATTEMPTS.c.id).join(
            ALLOCATIONS, ALLOCATIONS.c.task_id == TASKS.c.id
        )
    )
    .where(ALLOCATIONS.c.held == 1, _OF_SOME)
)
_SOME_ROWS = _ROWS.where(JOBS.c.id.in_(_IDS))
_SUBMITTED = _SOME_ROWS.add_columns(JOBS.c.spec)
_SPECS = select(JOBS.c.id, JOBS.c.spec).where(JOBS.c.id.in_(_IDS))
_STILL = (
    select(JOBS.c.id, DatabaseTime())
    .where(JOBS.c.id.in_(_IDS), JOBS.c.waiting_elements > 0)
    .order_by(JOBS.c.id)
    .with_for_update()
)
_USE = (
    select(
        NODES.c.id,
        NODES.c.epoch,
        NODES.c.used_vcpus,
        NODES.c.used_memory_mib,
        NODES.c.live_tasks,
        NODES.c.occupant_project_id,
        DEVICES.c.id,
        DEVICES.c.used_milli,
        DEVICES.c.occupant_project_id,
    )
    .select_from(NODES.outerjoin(DEVICES, DEVICES.c.node_id == NODES.c.id))
    .where(NODES.c.id.in_(_IDS))
)


class SchedulingReads:
    """Read models for the planner's snapshot."""

    def __init__(
        self, connection: Connection, seen: Callable[[datetime | None], None] = lambda _: None
    ) -> None:
        self._c = connection
        self._seen = seen

    def marks(self) -> Marks:
        """What a reader that keeps rows needs to read each time, and the moment of it."""
        found, moment = marks.read(self._c)
        self._seen(moment)
        return found

    def waiting(self, job_ids: Sequence[str] | None = None) -> list[WaitingJob]:
        """Those jobs, all or some of them, in order of submission."""
        if job_ids is None:
            return [WaitingJob(*row) for row in self._c.execute(_ROWS)]
        found = [
            WaitingJob(*row)
            for part in chunks(sorted(job_ids))
            for row in self._c.execute(_SOME_ROWS, {"ids": part})
        ]
        return sorted(found, key=lambda job: (job.created_at, job.id))

    def submitted(self, job_ids: Sequence[str]) -> list[tuple[WaitingJob, dict[str, Any]]]:
        """Those of the jobs that wait, in order of submission, with their specs."""
        found = [
            (WaitingJob(*row[:-1]), row[-1])
            for part in chunks(sorted(job_ids))
            for row in self._c.execute(_SUBMITTED, {"ids": part})
        ]
        return sorted(found, key=lambda one: (one[0].created_at, one[0].id))

    def lock_waiting(self, job_ids: Sequence[str]) -> set[str]:
        """Which of the jobs have elements that wait; locks their rows, in order of id."""
        still: set[str] = set()
        for part in chunks(sorted(job_ids)):
            for ident, moment in self._c.execute(_STILL, {"ids": part}):
                still.add(ident)
                self._seen(moment)
        return still

    def use(self, node_ids: Sequence[str]) -> list[NodeUse]:
        """What is taken of nodes."""
        found: dict[str, NodeUse] = {}
        for part in chunks(sorted(node_ids)):
            for *node, device, milli, occupant in self._c.execute(_USE, {"ids": part}):
                one = found.setdefault(node[0], NodeUse(*node))
                if device is not None:
                    one.devices[device] = (milli, occupant)
        return list(found.values())

    def specs(self, job_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The specs of jobs (they never change, so a reader may keep them)."""
        found: dict[str, dict[str, Any]] = {}
        for part in chunks(sorted(job_ids)):
            found.update(self._c.execute(_SPECS, {"ids": part}).all())
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

    def live_gangs(self, attempt_ids: Sequence[str] | None = None) -> list[LiveGang]:
        """Every live attempt (or some), with what its job (or element) says of it."""
        rows = self._of_attempts(_GANGS, _SOME_GANGS, attempt_ids)
        return [LiveGang(*row) for row in rows]

    def live_tasks(self, attempt_ids: Sequence[str] | None = None) -> list[LiveTask]:
        """Every task that holds something (or those of some attempts), with its shares and the
        end it was promised."""
        shares: dict[str, list[tuple[str, int]]] = {}
        for task_id, device_id, milli in self._of_attempts(_HELD, _SOME_HELD, attempt_ids):
            shares.setdefault(task_id, []).append((device_id, milli))
        found = []
        for row in self._of_attempts(_TASKS, _SOME_TASKS, attempt_ids):
            values: list[Any] = [*row, tuple(sorted(shares.get(row[0], ())))]
            found.append(LiveTask(*values))
        return found

    def quota(self) -> dict[tuple[str, str], tuple[int | None, int]]:
        """(project, name) -> (own limit or None, in use), for every project known."""
        return marks.read_quota(self._c)

    def _of_attempts(
        self, every: Select[Any], some: Select[Any], attempt_ids: Sequence[str] | None
    ) -> Iterator[Any]:
        """All rows, or those of some attempts."""
        if attempt_ids is None:
            yield from self._c.execute(every)
            return
        for part in chunks(sorted(attempt_ids)):
            yield from self._c.execute(some, {"ids": part})
