# SPDX-License-Identifier: Apache-2.0
"""From the database to the planner's snapshot: a fixed number of queries, nothing of history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from gpuservice.domain.dependencies import MET, verdict
from gpuservice.domain.inventory import Device, Node, Pool
from gpuservice.domain.jobspec import JobSpec
from gpuservice.domain.pools import IN_SIZE
from gpuservice.domain.ports_scheduling import LiveGang, LiveTask, WaitingJob
from gpuservice.domain.ports_store import UnitOfWork, Where
from gpuservice.domain.quota import UNLIMITED
from gpuservice.domain.reasons import Reason
from gpuservice.domain.states import POOL_COUNTED, NodeStatus, PoolStatus, QueueStatus
from gpuservice.domain.work import Queue
from gpuservice.planner import snapshot as plan_input
from gpuservice.scheduler.cluster_state import COMING, node_state, pool_state, queue_state
from gpuservice.scheduler.running_state import held_milli, request_of, running_gangs
from gpuservice.scheduler.usage import Reading

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
    """Collects snapshots. Rows of waiting jobs are kept between passes and read again when their
    version has changed; specs of jobs never change.

    :param defaults: quota limits of projects without their own, in stored units.
    """

    def __init__(
        self, defaults: Mapping[str, int], settings: CollectSettings = CollectSettings()
    ) -> None:
        self._defaults = defaults
        self._settings = settings
        self._usage = Reading(settings.half_life_s)
        self._specs: dict[str, JobSpec] = {}
        self._wants: dict[str, tuple[plan_input.Request, int]] = {}
        self._rows: dict[str, WaitingJob] = {}
        self._made: dict[str, tuple[WaitingJob, bool, plan_input.PendingJob]] = {}

    def forget(self) -> None:
        """Others may have led meanwhile: read everything anew."""
        self._rows, self._made = {}, {}
        self._usage = Reading(self._settings.half_life_s)

    def note(self, notes: Mapping[str, Note]) -> None:
        """Noted with jobs, without a change of their version."""
        for ident, (due, since) in notes.items():
            row = self._rows.get(ident)
            if row is not None:
                self._rows[ident] = replace(row, due_at=due, promised_since=since)

    def collect(self, uow: UnitOfWork) -> Collected:
        """The state of this moment."""
        now = uow.now()
        pools = {
            pool.id: pool
            for pool in uow.pools.find(Where("status", "in", POOL_COUNTED - {PoolStatus.DELETING}))
        }
        nodes = [
            node
            for node in uow.nodes.find(Where("status", "in", tuple(IN_SIZE)))
            if node.pool_id in pools
        ]
        flavors = {row.id: row for row in uow.flavors.find()}
        types = {row.name: row for row in uow.gpu_types.find()}
        queues = uow.queues.find(order=(("id", "asc"),))
        gangs, tasks = uow.scheduling.live_gangs(), uow.scheduling.live_tasks()
        usage, ratio = self._usage.read(uow, gangs, held_milli(tasks))
        snapshot = plan_input.Snapshot(
            now=now.timestamp(),
            nodes=_nodes(uow, nodes, pools),
            pools=tuple(
                pool_state(pool, flavors[pool.flavor_id], types, nodes)
                for pool in pools.values()
                if pool.flavor_id in flavors
            ),
            queues=tuple(
                queue_state(queue, pools, self._settings.default_runtime_s) for queue in queues
            ),
            pending=self._pending(uow, now, queues),
            running=self._running(uow, gangs, tasks),
            headroom=self._headroom(uow),
            usage=usage,
            limit_ratio=ratio,
        )
        going = {gang.preempted_for for gang in gangs}
        unclaimed = (row.id for row in self._rows.values() if row.claimed and row.id not in going)
        return Collected(snapshot, {node.id: node for node in nodes}, pools, tuple(unclaimed))

    def _running(
        self, uow: UnitOfWork, gangs: Sequence[LiveGang], tasks: Sequence[LiveTask]
    ) -> tuple[plan_input.RunningGang, ...]:
        """Live attempts, with what their jobs asked for, which is read once."""
        jobs = {gang.job_id for gang in gangs}
        self._wants = {ident: self._wants[ident] for ident in jobs & self._wants.keys()}
        for ident in jobs & self._specs.keys():
            self._wants.setdefault(ident, _wanted(self._specs[ident]))
        missing = sorted(jobs - self._wants.keys())
        for ident, spec in uow.scheduling.specs(missing).items():
            self._wants[ident] = _wanted(JobSpec.from_dict(spec))
        return running_gangs(gangs, tasks, self._wants, self._settings.protected_s)

    def spec_of(self, job_id: str, spec: Mapping[str, Any]) -> JobSpec:
        """The typed spec of a job, kept."""
        if job_id not in self._specs:
            self._specs[job_id] = JobSpec.from_dict(spec)
        return self._specs[job_id]

    # -- pending ---------------------------------------------------------------------------
    def _pending(
        self, uow: UnitOfWork, now: datetime, queues: Sequence[Queue]
    ) -> tuple[plan_input.PendingJob, ...]:
        waiting = self._waiting(uow)
        others = self._others(uow)
        closed = {queue.id for queue in queues if queue.status == QueueStatus.CLOSED}
        backing_off, held = uow.elements.backing_off(now), uow.elements.held()
        arrays = any(job.array_size is not None and job.preempted_count for job in waiting)
        lost = uow.scheduling.most_preempted() if arrays else {}
        made = self._made
        self._made = {}
        pending: list[plan_input.PendingJob] = []
        for job in waiting:
            shut = job.queue_id in closed
            known = made.get(job.id)
            if known is not None and known[0] is job and known[1] is shut:
                self._made[job.id] = known
                pending.append(known[2])
                continue
            spec = self._specs[job.id]
            later = (backing_off.get(job.id, 0), held.get(job.id, 0))
            one = pending_job(job, spec, now, others, shut, *later)
            if job.array_size is not None:
                one = replace(one, preempted=lost.get(job.id, 0))
            if not spec.depends_on and job.not_before is None and job.array_size is None:
                # Nothing but the row and the queue decides: good until the row changes.
                self._made[job.id] = (job, shut, one)
            pending.append(one)
        return tuple(pending)

    def _waiting(self, uow: UnitOfWork) -> list[WaitingJob]:
        """The rows of all waiting jobs, in order of submission, each with its spec kept."""
        versions = uow.scheduling.waiting_versions()
        rows = {
            ident: self._rows[ident]
            for ident, version in versions
            if ident in self._rows and self._rows[ident].version == version
        }
        changed = [ident for ident, _ in versions if ident not in rows]
        if changed:
            rows.update({job.id: job for job in uow.scheduling.waiting(changed)})
        self._specs = {ident: spec for ident, spec in self._specs.items() if ident in rows}
        missing = [ident for ident in rows if ident not in self._specs]
        for ident, spec in uow.scheduling.specs(missing).items():
            self.spec_of(ident, spec)
        self._rows = rows
        if not self._settings.leads:
            known = uow.scheduling.notes()
            self.note(
                {
                    ident: known.get(ident, (None, None))
                    for ident, row in rows.items()
                    if (row.due_at, row.promised_since) != known.get(ident, (None, None))
                }
            )
        return [rows[ident] for ident, _ in versions if ident in rows and ident in self._specs]

    def _others(self, uow: UnitOfWork) -> dict[str, tuple[str, bool]]:
        """Status of every job that a waiting one depends on."""
        ids = {ident for spec in self._specs.values() for ident, _ in spec.depends_on}
        return (
            {job.id: (job.status, job.started_at is not None) for job in uow.jobs.get_many(ids)}
            if ids
            else {}
        )

    # -- quota -----------------------------------------------------------------------------
    def _headroom(self, uow: UnitOfWork) -> dict[tuple[str, str], int]:
        left: dict[tuple[str, str], int] = {}
        quota = uow.scheduling.quota()
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


def _wanted(spec: JobSpec) -> tuple[plan_input.Request, int]:
    return request_of(spec), spec.grace_period_s


def _nodes(
    uow: UnitOfWork, nodes: Sequence[Node], pools: Mapping[str, Pool]
) -> tuple[plan_input.NodeState, ...]:
    """The nodes that are there, with their devices and where their hosts stand."""
    devices: dict[str, list[Device]] = {}
    for device in uow.devices.find(Where("node_id", "notnull"), order=(("ordinal", "asc"),)):
        devices.setdefault(str(device.node_id), []).append(device)
    hosts = {host.id: host for host in uow.hosts.find()}
    return tuple(
        node_state(
            node, pools[node.pool_id], devices.get(node.id, []), hosts.get(str(node.host_id))
        )
        for node in nodes
        if node.status not in COMING and node.status != NodeStatus.ERROR
    )
