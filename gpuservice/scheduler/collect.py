# SPDX-License-Identifier: Apache-2.0
"""From the database to the planner's snapshot: a fixed number of queries, nothing of history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuservice.domain.dependencies import MET, verdict
from gpuservice.domain.health import usable
from gpuservice.domain.inventory import Device, Flavor, GpuType, Host, Node, Pool
from gpuservice.domain.isolation import one_project_at_a_time, unproved
from gpuservice.domain.jobspec import JobSpec
from gpuservice.domain.pools import IN_SIZE, serves
from gpuservice.domain.ports_scheduling import LiveTask, WaitingJob
from gpuservice.domain.ports_store import UnitOfWork, Where
from gpuservice.domain.quota import UNLIMITED
from gpuservice.domain.reasons import Reason
from gpuservice.domain.states import POOL_COUNTED, NodeStatus, PoolStatus, QueueStatus
from gpuservice.planner import snapshot as plan_input

_COMING = (
    NodeStatus.REQUESTED,
    NodeStatus.BUILDING,
    NodeStatus.CONFIGURING,
    NodeStatus.CHECKING,
    NodeStatus.REPAIRING,
)


@dataclass(frozen=True, slots=True)
class Collected:
    """A snapshot, and the rows that committing a plan of it needs."""

    snapshot: plan_input.Snapshot
    nodes: Mapping[str, Node]
    pools: Mapping[str, Pool]


class Collector:
    """Collects snapshots. Rows of waiting jobs are kept between passes and read again when their
    version has changed; specs of jobs never change.

    :param defaults: quota limits of projects without their own, in stored units.
    """

    def __init__(self, defaults: Mapping[str, int]) -> None:
        self._defaults = defaults
        self._specs: dict[str, JobSpec] = {}
        self._rows: dict[str, WaitingJob] = {}
        self._made: dict[str, tuple[WaitingJob, bool, plan_input.PendingJob]] = {}

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
        devices: dict[str, list[Device]] = {}
        for device in uow.devices.find(Where("node_id", "notnull"), order=(("ordinal", "asc"),)):
            devices.setdefault(str(device.node_id), []).append(device)
        hosts = {host.id: host for host in uow.hosts.find()}
        flavors = {row.id: row for row in uow.flavors.find()}
        types = {row.name: row for row in uow.gpu_types.find()}
        live = uow.scheduling.live_tasks()
        snapshot = plan_input.Snapshot(
            now=now.timestamp(),
            nodes=tuple(
                _node(
                    node,
                    pools[node.pool_id],
                    devices.get(node.id, []),
                    hosts.get(str(node.host_id)),
                )
                for node in nodes
                if node.status not in _COMING and node.status != NodeStatus.ERROR
            ),
            pools=tuple(
                _pool(pool, flavors[pool.flavor_id], types, nodes)
                for pool in pools.values()
                if pool.flavor_id in flavors
            ),
            queues=tuple(
                plan_input.QueueState(
                    queue.id,
                    tuple(
                        one
                        for one in queue.pool_ids
                        if one in pools and serves(pools[one], queue.project_id)
                    ),
                    queue.status != QueueStatus.CLOSED,
                )
                for queue in uow.queues.find(order=(("id", "asc"),))
            ),
            pending=self._pending(uow, now),
            running=_running(live),
            headroom=self._headroom(uow),
        )
        return Collected(snapshot, {node.id: node for node in nodes}, pools)

    def spec_of(self, job_id: str, spec: Mapping[str, Any]) -> JobSpec:
        """The typed spec of a job, kept."""
        if job_id not in self._specs:
            self._specs[job_id] = JobSpec.from_dict(spec)
        return self._specs[job_id]

    # -- pending ---------------------------------------------------------------------------
    def _pending(self, uow: UnitOfWork, now: datetime) -> tuple[plan_input.PendingJob, ...]:
        waiting = self._waiting(uow)
        others = self._others(uow)
        closed = {queue.id for queue in uow.queues.find(Where("status", "eq", QueueStatus.CLOSED))}
        backing_off = uow.elements.backing_off(now)
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
            one = _pending_job(job, spec, now, others, shut, backing_off.get(job.id, 0))
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


def request_of(spec: JobSpec) -> plan_input.Request:
    """The planner's shape of a spec."""
    return plan_input.Request(
        count=spec.count,
        min_count=spec.min_count,
        gpu_milli=spec.gpu_milli,
        gpu_memory_mib=spec.gpu_memory_mib,
        gpu_types=spec.gpu_types,
        min_gpu_memory_mib=spec.min_gpu_memory_mib,
        vcpus=spec.vcpus,
        memory_mib=spec.memory_mib,
        within=spec.within,
        required=spec.required,
    )


def _pending_job(
    job: WaitingJob,
    spec: JobSpec,
    now: datetime,
    others: Mapping[str, tuple[str, bool]],
    closed: bool,
    backing_off: int,
) -> plan_input.PendingJob:
    elements = job.waiting_elements - backing_off
    if job.array_max_running is not None:
        elements = min(elements, job.array_max_running - job.live_elements)
    blocked: str | None = None
    facts: dict[str, Any] = {}
    state, unmet = verdict(spec.depends_on, others)
    if job.on_hold:
        blocked = Reason.HELD
    elif state != MET:
        blocked, facts = Reason.DEPENDENCY, {"unmet": len(unmet), "jobs": unmet[:10]}
    elif closed:
        blocked = Reason.QUEUE_CLOSED
    elif (job.not_before is not None and job.not_before > now) or (
        backing_off and backing_off == job.waiting_elements
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
    )


def _node(node: Node, pool: Pool, devices: list[Device], host: Host | None) -> plan_input.NodeState:
    return plan_input.NodeState(
        id=node.id,
        pool_id=node.pool_id,
        vcpus=node.vcpus,
        memory_mib=node.memory_mib,
        devices=tuple(
            plan_input.DeviceState(
                id=device.id,
                gpu_type=device.gpu_type,
                memory_mib=device.memory_mib,
                used_milli=device.used_milli,
                healthy=usable(node, device),
                link_group=device.link_group,
                occupant=device.occupant_project_id,
            )
            for device in devices
        ),
        used_vcpus=node.used_vcpus,
        used_memory_mib=node.used_memory_mib,
        live_tasks=node.live_tasks,
        ready=node.status == NodeStatus.READY,
        isolation_node=one_project_at_a_time(pool.isolation, node.capabilities),
        unproved=unproved(node.capabilities) if pool.isolation == "device" else (),
        occupant=node.occupant_project_id,
        link_domain=host.link_domain if host else None,
        rack=host.rack if host else None,
        zone=host.zone if host else None,
    )


def _pool(
    pool: Pool, flavor: Flavor, types: Mapping[str, GpuType], nodes: list[Node]
) -> plan_input.PoolState:
    mine = [node for node in nodes if node.pool_id == pool.id]
    gpu_type = types.get(flavor.gpu_type)
    return plan_input.PoolState(
        id=pool.id,
        project_id=pool.project_id,
        max_nodes=pool.max_nodes,
        template=plan_input.NodeTemplate(
            flavor.gpu_type,
            flavor.gpu_count,
            gpu_type.memory_mib if gpu_type else 0,
            flavor.vcpus,
            flavor.memory_mib,
        ),
        autoscale=pool.autoscale,
        size=len(mine),
        coming=sum(node.status in _COMING for node in mine),
        isolation_node=pool.isolation != "none",
    )


def _running(live: list[LiveTask]) -> tuple[plan_input.RunningGang, ...]:
    gangs: dict[str, list[LiveTask]] = {}
    for task in live:
        gangs.setdefault(task.attempt_id, []).append(task)
    return tuple(
        plan_input.RunningGang(
            tasks[0].job_id,
            tasks[0].project_id,
            tuple(
                plan_input.TaskPlacement(
                    task.rank, task.node_id, task.shares, task.vcpus, task.memory_mib
                )
                for task in tasks
            ),
            tasks[0].promised_end_at.timestamp() if tasks[0].promised_end_at else None,
        )
        for tasks in gangs.values()
    )
