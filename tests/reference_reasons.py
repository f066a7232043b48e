# SPDX-License-Identifier: Apache-2.0
"""Whether a reason for waiting is true, found out with the plain accounts by brute force."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpuservice.planner.plan_types import Plan, ReasonFact
from gpuservice.planner.snapshot import (
    DeviceState,
    NodeState,
    PendingJob,
    PoolState,
    Request,
    Snapshot,
)
from tests.cluster_states import with_running
from tests.reference_books import INFINITE, Books, runtime_of, suits
from tests.reference_planner import after_starts

OUTER = ("link_domain", "rack", "zone")
PLENTY = 1 << 40
CALM = frozenset({"reservations"})
BLOCKED = {"held", "dependency", "retry_backoff", "array_limit", "budget", "evaluating"}


@dataclass
class Oracle:
    """What one plan left, and what may be asked of it."""

    snapshot: Snapshot
    plan: Plan

    def __post_init__(self) -> None:
        self.books, self.left = after_starts(self.snapshot, self.plan)

    def doubts(self, job: PendingJob, reasons: Iterable[ReasonFact]) -> list[str]:
        """Everything about the reasons of a job that is not so."""
        found: list[str] = []
        reasons = tuple(reasons)
        impossible = bool(reasons) and reasons[0].code == "impossible"
        for reason in reasons:
            check = self._impossible_for if impossible else self._true
            if not check(job, reason.code, reason.facts):
                found.append(f"{job.job_id}: not {reason.code} {dict(reason.facts)}")
            if "largest_fit" in reason.facts:
                found.extend(self._numbers(job, reason.facts))
        return found

    # --- reasons

    def _fits(self, job: PendingJob, *ignoring: str) -> bool:
        return self.books.could_start(job, (), CALM | frozenset(ignoring))

    def _true(self, job: PendingJob, code: str, facts: Mapping[str, Any]) -> bool:
        if code in BLOCKED or code == "queue_closed":
            queue = self.books.queues.get(job.queue_id)
            closed = queue is None or not queue.open
            return job.blocked == code or (code == "queue_closed" and closed)
        if code == "deadline_unreachable":
            return self._too_late(job)
        if code in ("behind_higher_priority", "preempting_others", "pool_growing", "pool_at_max"):
            return self._around(job, code)
        if not code.endswith("_quota") and not possible(self.snapshot, job):
            return False
        if code in ("backfill_would_delay", "behind_promise", "behind_reservation"):
            return self._kept_back(job, code)
        if self._fits(job):
            return False
        return self._lacks(job, code)

    def _too_late(self, job: PendingJob) -> bool:
        """Whether a start now, or where that cannot be the first that can, ends too late."""
        runtime = runtime_of(job, self.books.queues[job.queue_id])
        if job.deadline is None or self.snapshot.now + runtime > job.deadline:
            return job.deadline is not None
        later = [held.end for held in self.books.held if not self._fits_at(job, held.end)]
        soon = [held.end for held in self.books.held if held.end not in later]
        return not self._fits(job) and min(soon, default=INFINITE) + runtime > job.deadline

    def _fits_at(self, job: PendingJob, moment: float) -> bool:
        """Whether the job would fit once all was gone that ends by then."""
        books = Books(with_running(self.snapshot, ()))
        books.left = dict.fromkeys(books.left, PLENTY)
        books.load = self.books.at(moment, self.plan.promises)
        return books.could_start(job, (), CALM | {"sharing"})

    def _lacks(self, job: PendingJob, code: str) -> bool:
        """Reasons of a job that does not fit what is free."""
        request = job.request
        if code == "project_quota":
            return self._fits(job, "quota") or self._stopped_by(job, "quota", "sharing")
        if code == "queue_quota":
            return self._fits(job, "sharing") or self._stopped_by(job, "sharing", "quota")
        if code == "topology":
            return request.required and self._fits(job, "topology")
        if code == "host_resources":
            return self._fits(job, "host") or not (request.whole or request.shared)
        if code == "node_unavailable":
            return self._fits(job, "ready")
        if code == "isolation":
            return self._fits(job, "isolation")
        least = request.min_count * _each(request)
        enough = any(self._free(job, pool) >= least for pool in self._pools(job))
        return code == ("fragmented" if enough else "insufficient_gpus")

    def _stopped_by(self, job: PendingJob, one: str, other: str) -> bool:
        """Whether a limit alone stops the job: in a pool, or together with the other limit."""
        both = self._fits(job, one, other) and not self._fits(job, other)
        return both or not all(self._limit_allows(job, one, pool) for pool in self._pools(job))

    def _limit_allows(self, job: PendingJob, limit: str, pool: str) -> bool:
        """Whether the limit has room for the least gang in a pool, whatever is free there."""
        gang = replace(job.request, count=job.request.min_count, vcpus=0, memory_mib=0)
        bare = replace(job, request=replace(gang, within=None, required=False))
        idle = Books(with_running(self.snapshot, ()))
        idle.left, idle.sharing = self.books.left, self.books.sharing
        queue = idle.queues[job.queue_id]
        idle.queues[job.queue_id] = replace(queue, pool_ids=(pool,))
        others = {"quota", "sharing", "reservations", "ready", "isolation"} - {limit}
        return idle.could_start(bare, (), frozenset(others))

    def _kept_back(self, job: PendingJob, code: str) -> bool:
        others = [one for one in self.plan.promises if one.job_id != job.job_id]
        if code == "behind_reservation":
            return self._fits(job) and not self.books.could_start(job)
        return self._fits(job) and not self.books.could_start(job, others, CALM)

    def _around(self, job: PendingJob, code: str) -> bool:
        """Reasons that are about others."""
        pools = set(self._pools(job))
        if code == "preempting_others":
            return job.claimed or any(one.for_job_id == job.job_id for one in self.plan.preemptions)
        if code == "behind_higher_priority":
            return any(
                other.priority > job.priority and pools & set(self._pools(other))
                for other in self.left
            )
        scaled = [one for one in self.snapshot.pools if one.id in pools and one.autoscale]
        if code == "pool_growing":
            return any(one.coming or self.plan.wanted.get(one.id, 0) > one.size for one in scaled)
        return bool(scaled) and all(one.size >= one.max_nodes for one in scaled)

    def _impossible_for(self, job: PendingJob, code: str, facts: Mapping[str, Any]) -> bool:
        """``impossible``, or the one wish without which the job would be possible."""
        request = job.request
        whole = replace(request, gpu_memory_mib=None, gpu_milli=1000)
        without: dict[str, list[Request]] = {
            "impossible": [],
            "gpu_type_unavailable": [replace(request, gpu_types=())],
            "gpu_memory": [replace(request, min_gpu_memory_mib=0), whole],
            "host_resources": [replace(request, vcpus=0, memory_mib=0)],
            "topology": [replace(request, within=None, required=False)],
        }
        if code not in without or possible(self.snapshot, job):
            return False
        return code == "impossible" or any(
            possible(self.snapshot, replace(job, request=one)) for one in without[code]
        )

    # --- numbers

    def _numbers(self, job: PendingJob, facts: Mapping[str, Any]) -> list[str]:
        request = job.request
        pools = self._pools(job)
        told = {
            "needed": request.count * _each(request) / 1000,
            "free": sum(self._free(job, pool) for pool in pools) / 1000,
            "largest_fit": max((self._largest(job, pool) for pool in pools), default=0)
            * _each(request)
            / 1000,
        }
        return [
            f"{job.job_id}: {name} is {value}, not {facts[name]}"
            for name, value in told.items()
            if facts[name] != value
        ]

    def _pools(self, job: PendingJob) -> tuple[str, ...]:
        queue = self.books.queues.get(job.queue_id)
        return queue.pool_ids if queue else ()

    def _free(self, job: PendingJob, pool: str) -> int:
        """Milli-GPUs of a pool that are free for the job's project on devices that suit it."""
        load, project = self.books.load, job.project_id
        return sum(
            1000 - load.milli[device.id]
            for node in self.snapshot.nodes
            if node.pool_id == pool and node.ready
            if not (node.isolation_node and load.foreign(node.id, project))
            for device in node.devices
            if suits(job.request, device) and not load.foreign(device.id, project)
        )

    def _largest(self, job: PendingJob, pool: str) -> int:
        """The most tasks of the gang that one pool holds now, wherever they are."""
        queue = self.books.queues[job.queue_id]
        self.books.queues[job.queue_id] = replace(queue, pool_ids=(pool,))
        least = replace(job, request=replace(job.request, min_count=1))
        found = self.books.find(least, (), CALM | {"topology", "quota", "sharing"})
        self.books.queues[job.queue_id] = queue
        return len(found or ())


def _each(request: Request) -> int:
    return request.gpu_milli if request.gpu_memory_mib is None else 1000


def possible(snapshot: Snapshot, job: PendingJob) -> bool:
    """Whether some state of the pools holds the job: at ``max_nodes``, all idle and healthy."""
    level = job.request.within if job.request.required else None
    names: set[str | None] = {None}
    if level in OUTER:
        names |= {getattr(node, str(level)) for node in snapshot.nodes}
    return any(
        Books(_idle(snapshot, job, str(level), name)).could_start(
            replace(job, deadline=None), (), frozenset({"quota", "sharing", "reservations"})
        )
        for name in names
    )


def _idle(snapshot: Snapshot, job: PendingJob, level: str, name: str | None) -> Snapshot:
    """The pools at their largest, with all nodes to come in one place of the level."""
    empty = with_running(snapshot, ())
    nodes = [
        replace(
            node,
            ready=True,
            devices=tuple(replace(device, healthy=True) for device in node.devices),
        )
        for node in empty.nodes
    ]
    for pool in snapshot.pools:
        present = sum(node.pool_id == pool.id for node in snapshot.nodes)
        for number in range(min(pool.max_nodes - present, job.request.count)):
            node = _new_node(pool, number)
            nodes.append(replace(node, **{level: name or "new"}) if level in OUTER else node)
    return replace(empty, nodes=tuple(nodes), headroom={}, reservations=())


def _new_node(pool: PoolState, number: int) -> NodeState:
    template = pool.template
    ident = f"new-{pool.id}-{number}"
    devices = tuple(
        DeviceState(f"{ident}-{gpu}", template.gpu_type, template.gpu_memory_mib, link_group="new")
        for gpu in range(template.gpu_count)
    )
    return NodeState(ident, pool.id, template.vcpus, template.memory_mib, devices)
