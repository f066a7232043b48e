# SPDX-License-Identifier: Apache-2.0
"""Commit a plan: take what it gives, in one transaction a batch, under the leader's epoch.

A batch is all or nothing. When something in it is no longer as the snapshot said (a job was
cancelled, a device taken, a quota lowered), the batch is rolled back and tried again in halves,
down to the single start that is out of date; that one is left to the next plan.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from gpuservice.domain.errors import CommitConflict, QuotaExceeded
from gpuservice.domain.inventory import Node, Pool
from gpuservice.domain.ports import Hint, Hints, Ids
from gpuservice.domain.ports_store import Delta, Store, UnitOfWork, Where
from gpuservice.domain.reasons import Reason
from gpuservice.domain.states import JobStatus
from gpuservice.domain.waiting import NOT_WAITING
from gpuservice.domain.work import Job, JobElement
from gpuservice.planner.plan_types import Start
from gpuservice.scheduler.gang_rows import Gang, GangBuilder, by_project, takes

LOG = logging.getLogger(__name__)

#: Starts a transaction. Larger batches save round trips, smaller ones hold locks for less time.
BATCH = 64


#: What the row of a job says of its waiting before that was explained, and after it began again.
_UNEXPLAINED = (None, Reason.EVALUATING)
#: What a job that starts has no use for any more.
_KEPT_PROMISE = {"promised_since": None, "promised_start_at": None, "claimed": False}


@dataclass(slots=True)
class Outcome:
    """What became of the starts of a plan; ``batches``: what each transaction wrote."""

    started: list[str] = field(default_factory=list)
    overtaken: list[str] = field(default_factory=list)
    nodes: set[str] = field(default_factory=set)
    batches: list[Sequence[Gang]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CommitSettings:
    """Numbers of the commit: ``start_timeout_s``, and the ports gangs meet on."""

    start_timeout_s: int
    ports: tuple[int, ...]


class Committer:
    """Writes the starts of plans for one shard."""

    def __init__(
        self, store: Store, hints: Hints, ids: Ids, shard: str, settings: CommitSettings
    ) -> None:
        self._store = store
        self._hints = hints
        self._ids = ids
        self._shard = shard
        self._settings = settings

    def commit(
        self,
        epoch: int,
        starts: Sequence[Start],
        nodes: Mapping[str, Node],
        pools: Mapping[str, Pool],
    ) -> Outcome:
        """Commit every start that still holds; raises ``StaleEpoch`` when another leads."""
        outcome = Outcome()
        for at in range(0, len(starts), BATCH):
            self._commit_halving(epoch, starts[at : at + BATCH], nodes, pools, outcome)
        if outcome.nodes:
            self._hints.send(Hint("nodes", tuple(sorted(outcome.nodes))))
        return outcome

    def _commit_halving(
        self,
        epoch: int,
        starts: Sequence[Start],
        nodes: Mapping[str, Node],
        pools: Mapping[str, Pool],
        outcome: Outcome,
    ) -> None:
        def work(uow: UnitOfWork) -> list[Gang]:
            return self._batch(uow, epoch, starts, nodes, pools)

        try:
            gangs = self._store.write(work)
        except (CommitConflict, QuotaExceeded) as conflict:
            if len(starts) == 1:
                LOG.info("Start of job %s overtaken: %s", starts[0].job_id, conflict.detail)
                outcome.overtaken.append(starts[0].job_id)
                return
            middle = len(starts) // 2
            self._commit_halving(epoch, starts[:middle], nodes, pools, outcome)
            self._commit_halving(epoch, starts[middle:], nodes, pools, outcome)
            return
        outcome.batches.append(gangs)
        for gang in gangs:
            outcome.started.append(gang.job.id)
            outcome.nodes.update(task.node_id for task in gang.tasks)

    def _batch(
        self,
        uow: UnitOfWork,
        epoch: int,
        starts: Sequence[Start],
        nodes: Mapping[str, Node],
        pools: Mapping[str, Pool],
    ) -> list[Gang]:
        uow.check_epoch(self._shard, epoch)
        now = uow.now()
        per_job: dict[str, list[Start]] = {}
        for start in starts:
            per_job.setdefault(start.job_id, []).append(start)
        jobs = {job.id: job for job in uow.jobs.get_many(sorted(per_job), lock=True)}
        builder = GangBuilder(self._ids, now, nodes, pools, self._settings.start_timeout_s)
        gangs: list[Gang] = []
        for job_id, wanted in per_job.items():
            job = _startable(jobs.get(job_id), job_id, len(wanted), now)
            for start, (index, number) in zip(
                wanted, _elements(uow, job, len(wanted), now), strict=True
            ):
                gangs.append(builder.build(start, job, index, number, JobStatus.QUEUED))
        _take(uow, gangs)
        _check_nodes(uow, gangs)
        gangs = self._with_ports(uow, gangs)
        _write(uow, gangs, now)
        return gangs

    def _with_ports(self, uow: UnitOfWork, gangs: Sequence[Gang]) -> list[Gang]:
        """The gangs, each with a port of its own to meet on."""
        wanted = {
            gang.attempt.id: gang.attempt.master_address
            for gang in gangs
            if gang.attempt.master_address is not None
        }
        leased = uow.lease_ports(self._settings.ports, wanted)
        for ident, address in wanted.items():
            if ident not in leased:
                raise CommitConflict(f"No free port at {address} for the gang to meet on.")
        return [
            replace(gang, attempt=replace(gang.attempt, master_port=leased[gang.attempt.id]))
            if gang.attempt.id in leased
            else gang
            for gang in gangs
        ]


def _startable(job: Job | None, job_id: str, count: int, now: datetime) -> Job:
    """The job, if ``count`` of its elements may start now; raises ``CommitConflict``."""
    if job is None:
        raise CommitConflict(f"Job {job_id} is gone.")
    live = (JobStatus.QUEUED, JobStatus.RUNNING) if job.is_array else (JobStatus.QUEUED,)
    if job.status not in live or job.on_hold or job.waiting_elements < count:
        raise CommitConflict(f"Job {job_id} is {job.status} and does not wait any more.")
    if job.not_before is not None and job.not_before > now:
        raise CommitConflict(f"Job {job_id} waits for its next attempt.")
    limit = job.array_max_running
    if limit is not None and job.live_elements + count > limit:
        raise CommitConflict(f"Job {job_id} runs as many elements as it may.")
    return job


def _elements(uow: UnitOfWork, job: Job, count: int, now: datetime) -> list[tuple[int, int]]:
    """(index, attempt number) of the next ``count`` elements: those to be retried first."""
    if not job.is_array:
        return [(0, job.attempt + 1)]
    again = uow.elements.of_job(
        job.id,
        Where("status", "eq", JobStatus.QUEUED),
        Where("not_before", "due", now),
        limit=count,
    )
    chosen = [(one.index, one.attempt + 1) for one in again]
    missing = count - len(chosen)
    if missing:
        chosen.extend((index, 1) for index in _fresh(uow, job, missing))
    if len(chosen) < count:
        raise CommitConflict(f"Job {job.id} has fewer waiting elements than planned.")
    return chosen


def _fresh(uow: UnitOfWork, job: Job, count: int) -> list[int]:
    """The next never-started indices; those cancelled before they started have rows."""
    fresh: list[int] = []
    at, size = job.next_index, max(count * 2, 16)
    while len(fresh) < count and at < job.elements:
        # Twice as many each time: thousands in a row may have been cancelled.
        span = range(at, min(at + size, job.elements))
        size = min(size * 2, 4096)
        taken = {one.index for one in uow.elements.of_keys([(job.id, i) for i in span])}
        fresh.extend(i for i in span if i not in taken)
        at = span.stop
    return fresh[:count]


def _take(uow: UnitOfWork, gangs: Sequence[Gang]) -> None:
    """Take quota, devices and node capacity, each set-wise and guarded, in lock order."""
    projects = by_project(gangs)
    for project, theirs in projects.items():
        amounts: dict[str, int] = {}
        for gang in theirs:
            for name, amount in gang.counted.items():
                amounts[name] = amounts.get(name, 0) + amount
        amounts.update({"jobs:queued": -len(theirs), "jobs:running": len(theirs)})
        uow.quotas.move(project, amounts)
    for project, theirs in projects.items():
        shares = [share for gang in theirs for share in gang.shares]
        if shares and not uow.devices.take(shares, project):
            raise CommitConflict("A device of the plan is no longer free.")
    for project, alone, loads in takes(gangs):
        if not uow.nodes.take(loads, project, isolation_node=alone):
            raise CommitConflict("A node of the plan is no longer ready or has no room.")


def _check_nodes(uow: UnitOfWork, gangs: Iterable[Gang]) -> None:
    """The nodes, locked by now, are still those of the snapshot: one that was given up and came
    back meanwhile never orders a task of its former epoch."""
    planned = {task.node_id: task.node_epoch for gang in gangs for task in gang.tasks}
    if uow.nodes.epochs(sorted(planned)) != planned:
        raise CommitConflict("A node of the plan was given up meanwhile.")


def _write(uow: UnitOfWork, gangs: Sequence[Gang], now: datetime) -> None:
    uow.attempts.add_many([gang.attempt for gang in gangs])
    uow.tasks.add_many([task for gang in gangs for task in gang.tasks])
    uow.allocations.add_many([one for gang in gangs for one in gang.allocations])
    arrays = [gang for gang in gangs if gang.job.is_array]
    singles = [gang for gang in gangs if not gang.job.is_array]
    if singles:
        uow.jobs.change_each([(gang.job.id, _single_start(gang)) for gang in singles])
    _write_arrays(uow, arrays, now)
    uow.events.add_many([gang.event for gang in gangs])
    # Explanations are written together with what the row says of them: most often there is none.
    gone = {gang.job.id for gang in singles if gang.job.waiting_code not in _UNEXPLAINED}
    gone.update(
        gang.job.id
        for gang in arrays
        if gang.job.waiting_elements == sum(1 for one in arrays if one.job.id == gang.job.id)
    )
    if gone:
        uow.drop_explanations(sorted(gone))


def _single_start(gang: Gang) -> dict[str, Any]:
    return {
        "status": JobStatus.STARTING,
        "status_reason": None,
        "attempt": gang.attempt.number,
        "waiting_elements": 0,
        "live_elements": 1,
        "not_before": None,
        **NOT_WAITING,
        **_KEPT_PROMISE,
    }


def _write_arrays(uow: UnitOfWork, arrays: Sequence[Gang], now: datetime) -> None:
    per_job: dict[str, list[Gang]] = {}
    for gang in arrays:
        per_job.setdefault(gang.job.id, []).append(gang)
    fresh: list[JobElement] = []
    for job_id, gangs in per_job.items():
        job = gangs[0].job
        for gang in gangs:
            if gang.attempt.number == 1:
                fresh.append(
                    JobElement(
                        job_id=job_id,
                        index=gang.index,
                        project_id=job.project_id,
                        status=JobStatus.STARTING,
                        attempt=1,
                        queued_at=job.queued_at,
                    )
                )
                continue
            if not uow.elements.change(
                job_id,
                gang.index,
                {"status": JobStatus.STARTING, "attempt": gang.attempt.number, "not_before": None},
                Where("status", "eq", JobStatus.QUEUED),
            ):
                raise CommitConflict(f"Element {gang.index} of job {job_id} has changed.")
        values: dict[str, Any] = {
            "status": JobStatus.RUNNING,
            "waiting_elements": Delta(-len(gangs)),
            "live_elements": Delta(len(gangs)),
            "next_index": max(
                [job.next_index, *(gang.index + 1 for gang in gangs if gang.attempt.number == 1)]
            ),
            **_KEPT_PROMISE,
        }
        if job.started_at is None:
            values["started_at"] = now
        uow.jobs.change(job_id, values)
    if fresh:
        uow.elements.add_many(fresh)
