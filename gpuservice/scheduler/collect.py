# SPDX-License-Identifier: Apache-2.0
"""From the database to the planner's snapshot: what changed since the last one, nothing of
history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from gpuservice.domain.dependencies import MET, verdict
from gpuservice.domain.inventory import Node, Pool
from gpuservice.domain.jobspec import JobSpec
from gpuservice.domain.ports_scheduling import WaitingJob
from gpuservice.domain.ports_store import UnitOfWork
from gpuservice.domain.quota import UNLIMITED
from gpuservice.domain.reasons import Reason
from gpuservice.domain.states import QueueStatus
from gpuservice.planner import snapshot as plan_input
from gpuservice.planner.requests import request_of
from gpuservice.scheduler.gang_rows import Gang
from gpuservice.scheduler.kept_cluster import KeptCluster
from gpuservice.scheduler.kept_running import KeptRunning
from gpuservice.scheduler.usage import Reading

#: So often (seconds) everything is read anew, whatever the marks say.
WHOLE_EVERY_S = 60.0

#: (due, promised since), as noted with a job.
Note = tuple[datetime | None, datetime | None]


@dataclass(frozen=True, slots=True)
class Collected:
    """A snapshot, and the rows that committing a plan of it needs.

    ``unclaimed``: waiting jobs for which something was preempted of which nothing is left.
    """

    snapshot: plan_input.Snapshot
    nodes: Mapping[str, Node]
    pools: Mapping[str, Pool]
    unclaimed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CollectSettings:
    """``protected_s``: how long a start is protected; ``default_runtime_s``: of jobs without a
    limit. ``leads``: this process alone notes things with jobs and says so (``note``), so they need
    not be read each time."""

    protected_s: float = 0.0
    half_life_s: float = 7 * 86400.0
    default_runtime_s: int | None = None
    leads: bool = False


class Collector:
    """Collects snapshots. What was read is kept between passes and read again when its marks have
    changed, and now and then whatever they say; specs of jobs never change. What did not change is
    the same object in the next snapshot.

    :param defaults: quota limits of projects without their own, in stored units.
    """

    def __init__(
        self, defaults: Mapping[str, int], settings: CollectSettings = CollectSettings()
    ) -> None:
        self._defaults = defaults
        self._settings = settings
        self._usage = Reading(settings.half_life_s)
        self._cluster = KeptCluster(settings.default_runtime_s)
        self._running = KeptRunning(settings.protected_s)
        self._specs: dict[str, JobSpec] = {}
        self._rows: dict[str, WaitingJob] = {}
        self._made: dict[str, tuple[WaitingJob, bool, plan_input.PendingJob]] = {}
        self._pending: tuple[plan_input.PendingJob, ...] | None = None
        self._shut: set[str] = set()
        self._told: dict[str, plan_input.Promise] = {}
        self._promised: dict[str, tuple[plan_input.PendingJob, plan_input.PendingJob]] = {}
        self._whole_at = float("-inf")

    def forget(self) -> None:
        """Others may have led meanwhile: read everything anew."""
        self._told, self._promised = {}, {}
        self._forget_rows()
        self._usage = Reading(self._settings.half_life_s)

    def _forget_rows(self) -> None:
        self._rows, self._made, self._pending = {}, {}, None
        self._cluster.forget()
        self._running.forget()

    def note(self, notes: Mapping[str, Note]) -> None:
        """Noted with jobs, without a change of their version."""
        for ident, (due, since) in notes.items():
            row = self._rows.get(ident)
            if row is not None:
                self._rows[ident] = replace(row, due_at=due, promised_since=since)
                self._pending = None

    def began(self, batches: Iterable[Sequence[Gang]]) -> None:
        """What this process itself has started since the last snapshot, by transaction: it need
        not be read."""
        for gangs in batches:
            self._cluster.took(gangs)
            self._running.began(gangs, self._specs)

    def told(self, promises: Iterable[plan_input.Promise]) -> None:
        """What the last plan promised, and where those start for whom others go: each is kept by
        the next plans where it was given. (A new leader promises anew, by the rank that is kept
        with the job.)"""
        self._told = {one.job_id: one for one in promises}

    def _with_promises(
        self, pending: tuple[plan_input.PendingJob, ...]
    ) -> tuple[plan_input.PendingJob, ...]:
        """The jobs, those with a promise with that; the same objects where nothing is new."""
        if not self._told:
            return pending
        promised: dict[str, tuple[plan_input.PendingJob, plan_input.PendingJob]] = {}
        with_them: list[plan_input.PendingJob] = []
        for job in pending:
            promise = self._told.get(job.job_id)
            if promise is None:
                with_them.append(job)
                continue
            known = self._promised.get(job.job_id)
            if known is None or known[0] is not job or known[1].promise != promise:
                known = (job, replace(job, promise=promise))
            promised[job.job_id] = known
            with_them.append(known[1])
        self._promised = promised
        return tuple(with_them)

    def collect(self, uow: UnitOfWork) -> Collected:
        """The state of this moment."""
        marks = uow.scheduling.marks()  # first: it tells the time along with them
        at = uow.now()
        now = at.timestamp()
        if not 0.0 <= now - self._whole_at < WHOLE_EVERY_S:
            self._forget_rows()
            self._whole_at = now
        cluster, running = self._cluster, self._running
        cluster.follow(uow, marks)
        self._follow_waiting(uow, marks.waiting)
        running.follow(uow, marks, self._specs)
        gangs = running.gangs.values()
        usage, ratio = self._usage.read(uow, gangs, running.held)
        snapshot = plan_input.Snapshot(
            now=now,
            nodes=cluster.node_states,
            pools=cluster.pool_states,
            queues=cluster.queue_states,
            pending=self._with_promises(self._pending_jobs(uow, at)),
            running=running.states,
            headroom=self._headroom(marks.quota),
            usage=usage,
            limit_ratio=ratio,
        )
        going = {gang.preempted_for for gang in gangs}
        unclaimed = (row.id for row in self._rows.values() if row.claimed and row.id not in going)
        return Collected(snapshot, cluster.nodes, cluster.pools, tuple(unclaimed))

    # -- pending ---------------------------------------------------------------------------
    def _follow_waiting(self, uow: UnitOfWork, versions: Mapping[str, int]) -> None:
        """Bring the rows of waiting jobs up to date, in order of submission, and their specs."""
        rows = self._rows
        for ident in rows.keys() - versions.keys():
            del rows[ident]
            self._specs.pop(ident, None)
            self._made.pop(ident, None)
            self._pending = None
        if not rows:  # they may have been forgotten, with who left the line since
            for ident in self._specs.keys() - versions.keys():
                del self._specs[ident]
        changed = [
            ident
            for ident, version in versions.items()
            if ident not in rows or rows[ident].version != version
        ]
        if changed:
            last = next(reversed(rows.values()), None)
            read = self._read_waiting(uow, changed)
            rows.update((job.id, job) for job in read)
            if last is not None and _submission(read[0]) < _submission(last):
                self._rows = rows = dict(
                    sorted(rows.items(), key=lambda item: _submission(item[1]))
                )
            self._pending = None
        if not self._settings.leads:
            known = uow.scheduling.notes()
            self.note(
                {
                    ident: known.get(ident, (None, None))
                    for ident, row in rows.items()
                    if (row.due_at, row.promised_since) != known.get(ident, (None, None))
                }
            )

    def _read_waiting(self, uow: UnitOfWork, idents: Sequence[str]) -> list[WaitingJob]:
        """Rows of waiting jobs, in order of submission; new ones come with their specs."""
        known = [ident for ident in idents if ident in self._specs]
        fresh = [ident for ident in idents if ident not in self._specs]
        read = uow.scheduling.waiting(known) if known else []
        if fresh:
            for job, spec in uow.scheduling.submitted(fresh):
                self._specs[job.id] = JobSpec.from_dict(spec)
                read.append(job)
        return sorted(read, key=_submission) if known and fresh else read

    def _pending_jobs(self, uow: UnitOfWork, now: datetime) -> tuple[plan_input.PendingJob, ...]:
        shut = {queue.id for queue in self._cluster.queues if queue.status == QueueStatus.CLOSED}
        if self._pending is not None and shut == self._shut and len(self._made) == len(self._rows):
            return self._pending
        others = self._others(uow)
        waiting = self._rows.values()
        backing_off, held, lost = _of_arrays(uow, waiting, now)
        pending: list[plan_input.PendingJob] = []
        for job in waiting:
            closed = job.queue_id in shut
            known = self._made.get(job.id)
            if known is not None and known[0] is job and known[1] is closed:
                pending.append(known[2])
                continue
            self._made.pop(job.id, None)
            spec = self._specs[job.id]
            later = (backing_off.get(job.id, 0), held.get(job.id, 0))
            one = pending_job(job, spec, now, others, closed, *later)
            if job.array_size is not None:
                one = replace(one, preempted=lost.get(job.id, 0))
            if not spec.depends_on and job.not_before is None and job.array_size is None:
                # Nothing but the row and the queue decides: good until the row changes.
                self._made[job.id] = (job, closed, one)
            pending.append(one)
        self._shut, self._pending = shut, tuple(pending)
        return self._pending

    def _others(self, uow: UnitOfWork) -> dict[str, tuple[str, bool]]:
        """Status of every job that a waiting one depends on."""
        ids = {
            ident
            for job_id in self._rows.keys() - self._made.keys()
            for ident, _ in self._specs[job_id].depends_on
        }
        return (
            {job.id: (job.status, job.started_at is not None) for job in uow.jobs.get_many(ids)}
            if ids
            else {}
        )

    # -- quota -----------------------------------------------------------------------------
    def _headroom(
        self, quota: Mapping[tuple[str, str], tuple[int | None, int]]
    ) -> dict[tuple[str, str], int]:
        left: dict[tuple[str, str], int] = {}
        for (project, name), (own, used) in quota.items():
            limit = self._defaults.get(name, UNLIMITED) if own is None else own
            if limit != UNLIMITED:
                left[project, name] = max(limit - used, 0)
        for name, limit in self._defaults.items():
            if limit == UNLIMITED:
                continue
            for project in {key[0] for key in quota}:
                if (project, name) not in quota:
                    left[project, name] = limit
        return left


def _submission(job: WaitingJob) -> tuple[datetime, str]:
    return job.created_at, job.id


def _of_arrays(
    uow: UnitOfWork, waiting: Iterable[WaitingJob], now: datetime
) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """By array: elements that wait for another attempt, those that are held, and how often the
    most preempted one was. Only arrays have elements of their own."""
    arrays = [job for job in waiting if job.array_size is not None]
    if not arrays:
        return {}, {}, {}
    lost = any(job.preempted_count for job in arrays)
    return (
        uow.elements.backing_off(now),
        uow.elements.held(),
        uow.scheduling.most_preempted() if lost else {},
    )


def pending_job(
    job: WaitingJob,
    spec: JobSpec,
    now: datetime,
    others: Mapping[str, tuple[str, bool]],
    closed: bool,
    backing_off: int,
    held: int,
) -> plan_input.PendingJob:
    """A waiting job as the planner is told of it.

    :param others: status of those that it depends on, and whether they have started.
    :param closed: whether its queue is.
    :param backing_off: how many of its elements wait for the end of a retry's backoff.
    :param held: how many are held.
    """
    elements = job.waiting_elements - backing_off - held
    if job.array_max_running is not None:
        elements = min(elements, job.array_max_running - job.live_elements)
    blocked: str | None = None
    facts: dict[str, Any] = {}
    state, unmet = verdict(spec.depends_on, others)
    if job.on_hold or (held and held == job.waiting_elements):
        blocked = Reason.HELD
    elif state != MET:
        blocked, facts = Reason.DEPENDENCY, {"unmet": len(unmet), "jobs": unmet[:10]}
    elif closed:
        blocked = Reason.QUEUE_CLOSED
    elif (job.not_before is not None and job.not_before > now) or (
        backing_off and backing_off + held == job.waiting_elements
    ):
        blocked = Reason.RETRY_BACKOFF
    elif elements <= 0:
        blocked, facts = Reason.ARRAY_LIMIT, {"max_running": job.array_max_running}
    return plan_input.PendingJob(
        job_id=job.id,
        project_id=job.project_id,
        user_id=job.user_id,
        queue_id=job.queue_id,
        request=request_of(spec),
        priority=job.priority,
        queued_at=job.queued_at.timestamp(),
        sequence=int(job.created_at.timestamp() * 1e6),
        max_runtime_s=job.max_runtime_s,
        elements=max(elements, 0),
        blocked=blocked,
        facts=facts,
        kind=job.kind,
        preemptible=job.preemptible,
        deadline=_seconds(job.deadline_at),
        due=_seconds(job.due_at),
        promised=_seconds(job.promised_since),
        claimed=job.claimed,
        preempted=job.preempted_count,
    )


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()
