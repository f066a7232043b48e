# SPDX-License-Identifier: Apache-2.0
"""Attempts: on from what nodes reported, in batches of one transaction each.

Jobs are locked first (and skipped when another conductor has them), then their attempts are read:
whatever is decided is decided on what nobody else can change meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from gpuservice.conductor.deps import CAUSE, Deps
from gpuservice.conductor.element_ends import ElementEnds
from gpuservice.conductor.start_trouble import Place, StartTrouble, outcomes
from gpuservice.domain.errors import Busy
from gpuservice.domain.happenings import status_change
from gpuservice.domain.job_removal import remove_job
from gpuservice.domain.kept import checkpoints_of, drop_unfinished
from gpuservice.domain.ports import Hint
from gpuservice.domain.ports_store import TaskEnd, UnitOfWork, Where
from gpuservice.domain.progress import Ending, Step, next_step
from gpuservice.domain.states import ATTEMPT, JOB_ENDED, JobStatus, TaskStatus
from gpuservice.domain.work import Attempt, Event, Job, Task

LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class Batch:
    """What one transaction did, for the hints after it."""

    handled: int = 0
    nodes: set[str] = field(default_factory=set)
    #: Jobs with ended attempts: what they held is free.
    jobs: set[str] = field(default_factory=set)
    #: Jobs that run now. Nothing is freed by that, so the scheduler is not woken.
    running: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    #: Of ended attempts, where their checkpoints lie -> the complete ones there.
    checkpoints: dict[str, set[str]] = field(default_factory=dict)
    starts: list[dict[Place, str | None]] = field(default_factory=list)


class Attempts:
    """The attempts' pipeline."""

    def __init__(self, deps: Deps, trouble: StartTrouble | None = None) -> None:
        self._deps = deps
        self._trouble = trouble or StartTrouble(deps)

    def step(self) -> int:
        """Handle one batch; how many there were to handle, 0 if others had them all."""
        candidates = self._deps.store.read(self._candidates)
        if not candidates:
            return 0
        batch = self._batch(candidates)
        if batch.nodes:
            self._deps.hints.send(Hint("nodes", tuple(sorted(batch.nodes))))
        if batch.jobs:
            self._deps.hints.send(Hint("jobs", tuple(sorted(batch.jobs))))
        if batch.jobs | batch.running:
            self._deps.hints.send(Hint("logs", tuple(sorted(batch.jobs | batch.running))))
        for told in batch.starts:
            self._trouble.note(told)
        for job_id in batch.removed:
            self._deps.logs.delete(job_id)
            self._deps.objects.delete(job_id)
        for place, complete in batch.checkpoints.items():
            drop_unfinished(self._deps.objects, place, complete)
        return len(candidates) if batch.handled else 0

    def _batch(self, candidates: Mapping[str, str]) -> Batch:
        """One transaction for all; when that fails, each job alone, so that one bad row does not
        hold up the rest."""
        try:
            return self._deps.store.write(lambda uow: self._work(uow, candidates))
        except Busy:
            raise
        except Exception:
            if len(set(candidates.values())) == 1:
                LOG.exception("Attempts of job %s could not go on", *set(candidates.values()))
                return Batch()
        whole = Batch()
        for job_id in sorted(set(candidates.values())):
            alone = {ident: job for ident, job in candidates.items() if job == job_id}
            part = self._batch(alone)
            whole.handled += part.handled
            whole.nodes |= part.nodes
            whole.jobs |= part.jobs
            whole.running |= part.running
            whole.removed |= part.removed
            whole.checkpoints |= part.checkpoints
            whole.starts += part.starts
        return whole

    def _candidates(self, uow: UnitOfWork) -> dict[str, str]:
        """Attempt id -> job id of what wants attention or is due."""
        limit = self._deps.conf.conductor.batch
        found = uow.attempts.find(
            Where("live", "eq", 1), Where("attention", "eq", True), limit=limit
        )
        if len(found) < limit:
            found += uow.attempts.find(
                Where("live", "eq", 1),
                Where("due_at", "le", uow.now()),
                Where("attention", "eq", False),
                limit=limit - len(found),
            )
        return {one.id: one.job_id for one in found}

    def _work(self, uow: UnitOfWork, candidates: Mapping[str, str]) -> Batch:
        batch = Batch()
        jobs = {
            job.id: job
            for job in uow.jobs.get_many(candidates.values(), lock=True, skip_locked=True)
        }
        wanted = [ident for ident, job_id in candidates.items() if job_id in jobs]
        attempts = [one for one in uow.attempts.get_many(wanted, lock=True) if one.live]
        tasks: dict[str, list[Task]] = {}
        for task in uow.tasks.of_attempts([one.id for one in attempts]):
            tasks.setdefault(task.attempt_id, []).append(task)
        ends: list[tuple[Attempt, Job, Ending]] = []
        events: list[Event] = []
        for attempt in attempts:
            job = jobs[attempt.job_id]
            step = next_step(
                attempt, tasks[attempt.id], uow.now(), job.max_runtime_s, job.spec["grace_period_s"]
            )
            batch.handled += 1
            if step.end is not None:
                ends.append((attempt, job, step.end))
                batch.starts.append(outcomes(tasks[attempt.id]))
                continue
            self._go_on(uow, attempt, job, tasks[attempt.id], step, batch, events)
        uow.events.add_many(events)
        if ends:
            ElementEnds(self._deps).write(uow, ends, jobs)
            batch.jobs.update(job.id for _, job, _ in ends)
            for attempt, job, _ in ends:
                if job.spec.get("checkpoint"):
                    batch.checkpoints.update(_checkpoints(uow, attempt, tasks[attempt.id]))
            batch.removed.update(self._remove_deleted(uow, [job.id for _, job, _ in ends]))
        return batch

    def _go_on(
        self,
        uow: UnitOfWork,
        attempt: Attempt,
        job: Job,
        tasks: Sequence[Task],
        step: Step,
        batch: Batch,
        events: list[Event],
    ) -> None:
        now = uow.now()
        values: dict[str, Any] = {"attention": False, "due_at": step.due_at}
        if step.run:
            values.update(
                status=ATTEMPT.after(attempt.status, "run"),
                started_at=now,
                promised_end_at=_promised(now, job),
            )
            self._running(uow, attempt, job, now, events)
            batch.running.add(job.id)
        elif step.stop is not None:
            self._stop(uow, attempt, tasks, batch)
            values.update(
                status=ATTEMPT.after(attempt.status, "stop"),
                stop_reason=step.stop,
                stop_requested_at=attempt.stop_requested_at or now,
            )
            events.append(
                status_change(
                    self._deps.ids,
                    now,
                    CAUSE,
                    "attempt",
                    "stop",
                    attempt.id,
                    attempt.status,
                    values["status"],
                    project_id=attempt.project_id,
                    reason=step.stop,
                    detail={"job_id": job.id, "index": attempt.index, "attempt": attempt.number},
                )
            )
        elif step.silent:
            uow.tasks.gone(
                [
                    TaskEnd(
                        ident,
                        failure_class="node_failure",
                        failure_evidence="the node did not start the task in time",
                    )
                    for ident in step.silent
                ],
                now,
            )
            values["attention"] = True
        uow.attempts.change(attempt.id, values, Where("live", "eq", 1))

    @staticmethod
    def _stop(uow: UnitOfWork, attempt: Attempt, tasks: Sequence[Task], batch: Batch) -> None:
        """Tell the nodes to end what is left of the gang."""
        left = [task for task in tasks if task.status != TaskStatus.GONE]
        nodes = sorted({task.node_id for task in left})
        uow.tasks.change_many(
            [task.id for task in left], {"action": "stop"}, Where("status", "ne", TaskStatus.GONE)
        )
        uow.nodes.bump_revision(nodes)
        batch.nodes.update(nodes)

    def _running(
        self, uow: UnitOfWork, attempt: Attempt, job: Job, now: datetime, events: list[Event]
    ) -> None:
        detail: dict[str, Any] = {"attempt": attempt.number}
        if job.is_array:
            detail["index"] = attempt.index
            if not uow.elements.change(
                job.id,
                attempt.index,
                {"status": JobStatus.RUNNING, "started_at": now},
                Where("status", "eq", JobStatus.STARTING),
            ):
                return
        elif not uow.jobs.change(
            job.id,
            {"status": JobStatus.RUNNING, "started_at": now},
            Where("status", "eq", JobStatus.STARTING),
        ):
            return
        events.append(
            status_change(
                self._deps.ids,
                now,
                CAUSE,
                "job",
                "run",
                job.id,
                JobStatus.STARTING,
                JobStatus.RUNNING,
                project_id=job.project_id,
                detail=detail,
            )
        )

    def _remove_deleted(self, uow: UnitOfWork, job_ids: Sequence[str]) -> list[str]:
        """Jobs whose deletion waited for their end."""
        gone: list[str] = []
        for job in uow.jobs.get_many(job_ids):
            if job.delete_requested and job.status in JOB_ENDED:
                remove_job(uow, job, self._deps.ids, CAUSE)
                gone.append(job.id)
        return gone


def _checkpoints(uow: UnitOfWork, attempt: Attempt, tasks: Sequence[Task]) -> dict[str, set[str]]:
    """Where the attempt's checkpoints lie -> the complete ones; the others are of no use now."""
    complete = {
        one.object_prefix
        for one in uow.checkpoints.find(
            Where("job_id", "eq", attempt.job_id),
            Where("index", "eq", attempt.index),
            Where("attempt", "eq", attempt.number),
        )
    }
    return {checkpoints_of(task): complete for task in tasks}


def _promised(now: datetime, job: Job) -> datetime | None:
    if job.max_runtime_s is None:
        return None
    return now + timedelta(seconds=job.max_runtime_s)
