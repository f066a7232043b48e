# SPDX-License-Identifier: Apache-2.0
"""Commit what a plan preempts: victims are told to go, and for whom, in one transaction.

All victims of one waiting job, and the job itself, are marked together or not at all: were one of
them gone already, another plan may need fewer. The conductor carries it to the end: each task
gets its signal and its grace, and its job waits again at its old place in line.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuservice.domain.errors import CommitConflict
from gpuservice.domain.happenings import happening, status_change
from gpuservice.domain.ports import Hint, Hints, Ids
from gpuservice.domain.ports_store import Store, UnitOfWork, Where
from gpuservice.domain.progress import PREEMPTED
from gpuservice.domain.states import ATTEMPT, JOB, AttemptStatus, JobStatus, TaskStatus
from gpuservice.domain.work import Attempt, Event, Job
from gpuservice.planner.plan_types import Preemption
from gpuservice.scheduler.gang_rows import CAUSE

LOG = logging.getLogger(__name__)

#: Waiting jobs, with all their victims, in one transaction.
BATCH = 32
#: Indices and ids in one condition: every database takes so many values in a statement.
_AT_ONCE = 500

_RUNS = (JobStatus.STARTING, JobStatus.RUNNING)


@dataclass(slots=True)
class Preempted:
    """What became of the preemptions of a plan: for which jobs it was done, and for which not."""

    claimed: list[str] = field(default_factory=list)
    overtaken: list[str] = field(default_factory=list)
    nodes: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Victim:
    """One gang that has to go."""

    attempt: Attempt
    job: Job
    preemptor: Job
    why: str


class Preempting:
    """Writes the preemptions of plans for one shard."""

    def __init__(self, store: Store, hints: Hints, ids: Ids, shard: str) -> None:
        self._store = store
        self._hints = hints
        self._ids = ids
        self._shard = shard

    def commit(self, epoch: int, preemptions: Sequence[Preemption]) -> Preempted:
        """Commit what still holds; raises ``StaleEpoch`` when another leads."""
        groups: dict[str, list[Preemption]] = {}
        for one in preemptions:
            groups.setdefault(one.for_job_id, []).append(one)
        outcome = Preempted()
        wanted = list(groups.values())
        for at in range(0, len(wanted), BATCH):
            self._commit_halving(epoch, wanted[at : at + BATCH], outcome)
        if outcome.nodes:
            self._hints.send(Hint("nodes", tuple(sorted(outcome.nodes))))
        return outcome

    def unclaim(self, epoch: int, job_ids: Sequence[str]) -> None:
        """Nothing is preempted any more for these jobs, and they did not start."""
        if not job_ids:
            return

        def work(uow: UnitOfWork) -> None:
            uow.check_epoch(self._shard, epoch)
            for part in _parts(sorted(job_ids)):
                uow.jobs.change_many(part, {"claimed": False}, Where("claimed", "eq", True))

        self._store.write(work)

    def _commit_halving(
        self, epoch: int, groups: Sequence[Sequence[Preemption]], outcome: Preempted
    ) -> None:
        try:
            nodes = self._store.write(lambda uow: self._batch(uow, epoch, groups))
        except CommitConflict as conflict:
            if len(groups) == 1:
                LOG.info("Preemption for %s overtaken: %s", _whom(groups[0]), conflict.detail)
                outcome.overtaken.append(_whom(groups[0]))
                return
            middle = len(groups) // 2
            self._commit_halving(epoch, groups[:middle], outcome)
            self._commit_halving(epoch, groups[middle:], outcome)
            return
        outcome.claimed.extend(map(_whom, groups))
        outcome.nodes.update(nodes)

    def _batch(
        self, uow: UnitOfWork, epoch: int, groups: Sequence[Sequence[Preemption]]
    ) -> list[str]:
        """Mark everybody; the nodes that have news."""
        uow.check_epoch(self._shard, epoch)
        wanted = [one for group in groups for one in group]
        involved = {one.job_id for one in wanted} | {one.for_job_id for one in wanted}
        jobs = {job.id: job for job in uow.jobs.get_many(involved, lock=True)}
        attempts = {
            one.id: one for one in uow.attempts.get_many({one.gang_id for one in wanted}, lock=True)
        }
        victims = [_victim(one, attempts, jobs) for one in wanted]
        if len({one.attempt.id for one in victims}) < len(victims):
            raise CommitConflict("A gang has to make room for two jobs.")
        preemptors = sorted({one.preemptor.id for one in victims})
        _mark(uow, victims)
        uow.jobs.change_many(preemptors, {"claimed": True})
        nodes = _stop_tasks(uow, [one.attempt.id for one in victims])
        uow.events.add_many(self._events(uow, victims))
        return nodes

    def _events(self, uow: UnitOfWork, victims: Sequence[_Victim]) -> list[Event]:
        """What each is told: of another project's job only that there is one."""
        events: list[Event] = []
        per_preemptor: dict[str, list[_Victim]] = {}
        for one in victims:
            per_preemptor.setdefault(one.preemptor.id, []).append(one)
            events.extend(self._of_victim(uow, one))
        for theirs in per_preemptor.values():
            job = theirs[0].preemptor
            own = sorted({one.job.id for one in theirs if one.job.project_id == job.project_id})
            detail: dict[str, Any] = {"victims": len(theirs), "jobs": own}
            events.append(
                happening(
                    self._ids,
                    uow.now(),
                    CAUSE,
                    "job.preempting_others",
                    "job",
                    job.id,
                    project_id=job.project_id,
                    reason=theirs[0].why,
                    detail=detail,
                )
            )
        return events

    def _of_victim(self, uow: UnitOfWork, victim: _Victim) -> list[Event]:
        job, attempt = victim.job, victim.attempt
        detail: dict[str, Any] = {"attempt": attempt.number}
        if job.is_array:
            detail["index"] = attempt.index
        before = _status_of(victim)
        told = dict(detail)
        if job.project_id == victim.preemptor.project_id:
            told["for_job"] = victim.preemptor.id
        stopping = {"job_id": job.id, "index": attempt.index, "attempt": attempt.number}
        return [
            status_change(
                self._ids, uow.now(), CAUSE, "job", "preempting", job.id,
                before, JOB.after(before, "preempt"),
                project_id=job.project_id, reason=victim.why, detail=told,
            ),
            status_change(
                self._ids, uow.now(), CAUSE, "attempt", "stop", attempt.id,
                attempt.status, AttemptStatus.STOPPING,
                project_id=job.project_id, reason=PREEMPTED, detail=stopping,
            ),
        ]  # fmt: skip


def _whom(group: Sequence[Preemption]) -> str:
    return group[0].for_job_id


def _status_of(victim: _Victim) -> str:
    """What the element that has to go is doing."""
    if not victim.job.is_array:
        return victim.job.status
    running = victim.attempt.status == AttemptStatus.RUNNING
    return JobStatus.RUNNING if running else JobStatus.STARTING


def _victim(one: Preemption, attempts: Mapping[str, Attempt], jobs: Mapping[str, Job]) -> _Victim:
    """The rows of a preemption, if it may still be done; raises ``CommitConflict``."""
    attempt, job, preemptor = (
        attempts.get(one.gang_id),
        jobs.get(one.job_id),
        jobs.get(one.for_job_id),
    )
    if attempt is None or job is None or attempt.job_id != job.id:
        raise CommitConflict(f"The gang {one.gang_id} is gone.")
    if not ATTEMPT.allows(attempt.status, "stop") or attempt.stop_reason is not None:
        raise CommitConflict(f"The gang {one.gang_id} ends already.")
    if job.status not in _RUNS:
        raise CommitConflict(f"Job {job.id} is {job.status}.")
    if preemptor is None or preemptor.on_hold or not preemptor.waiting_elements:
        raise CommitConflict(f"Job {one.for_job_id} does not wait any more.")
    if preemptor.status not in (
        (JobStatus.QUEUED, JobStatus.RUNNING) if preemptor.is_array else (JobStatus.QUEUED,)
    ):
        raise CommitConflict(f"Job {one.for_job_id} is {preemptor.status}.")
    return _Victim(attempt, job, preemptor, one.why)


def _mark(uow: UnitOfWork, victims: Sequence[_Victim]) -> None:
    """Attempts and jobs (or elements) of the victims, which the caller has locked."""
    now = uow.now()
    uow.attempts.change_each(
        [
            (
                one.attempt.id,
                {
                    "status": AttemptStatus.STOPPING,
                    "stop_reason": PREEMPTED,
                    "stop_requested_at": now,
                    "preempted_for": one.preemptor.id,
                    "due_at": None,
                },
            )
            for one in victims
        ]
    )
    uow.jobs.change_each(
        [
            (
                one.job.id,
                {"status": JobStatus.PREEMPTING, "status_reason": f"{PREEMPTED}: {one.why}"},
            )
            for one in victims
            if not one.job.is_array
        ]
    )
    arrays: dict[str, list[int]] = {}
    for one in victims:
        if one.job.is_array:
            arrays.setdefault(one.job.id, []).append(one.attempt.index)
    for job_id, indices in sorted(arrays.items()):
        for part in _parts(sorted(indices)):
            uow.elements.change_where(
                job_id,
                {"status": JobStatus.PREEMPTING},
                Where("index", "in", part),
                Where("status", "in", _RUNS),
            )


def _stop_tasks(uow: UnitOfWork, attempt_ids: Sequence[str]) -> list[str]:
    """Tell the nodes to end what is left of the gangs, each within its grace; which nodes."""
    left = [one for one in uow.tasks.of_attempts(attempt_ids) if one.status != TaskStatus.GONE]
    nodes = sorted({task.node_id for task in left})
    uow.tasks.change_many(
        [task.id for task in left], {"action": "stop"}, Where("status", "ne", TaskStatus.GONE)
    )
    uow.nodes.bump_revision(nodes)
    return nodes


def _parts(items: Sequence[Any]) -> Iterable[Sequence[Any]]:
    for at in range(0, len(items), _AT_ONCE):
        yield items[at : at + _AT_ONCE]
