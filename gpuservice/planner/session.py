# SPDX-License-Identifier: Apache-2.0
"""A cluster that changes and is planned again and again: what the simulator and tests drive.

The caller tells what happened; :meth:`Session.plan` is ``plan`` of the snapshot of that moment.
Nothing is started by planning: the caller says what really began.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from gpuservice.planner.plan import plan
from gpuservice.planner.plan_types import Plan
from gpuservice.planner.snapshot import (
    NodeState,
    PendingJob,
    Policy,
    PoolState,
    QueueState,
    Reservation,
    RunningGang,
    Snapshot,
    TaskPlacement,
    UsageKey,
)


class Session:
    """The state of one cluster between passes."""

    def __init__(
        self,
        nodes: Iterable[NodeState],
        pools: Iterable[PoolState],
        queues: Iterable[QueueState],
        policy: Policy,
        headroom: Mapping[tuple[str, str], int] | None = None,
        reservations: Iterable[Reservation] = (),
    ) -> None:
        self._nodes = {node.id: node for node in nodes}
        self._pools = tuple(pools)
        self._queues = tuple(queues)
        self._policy = policy
        self._headroom = dict(headroom or {})
        self._reservations = tuple(reservations)
        self._pending: dict[str, PendingJob] = {}
        self._running: dict[str, RunningGang] = {}

    def submit(self, job: PendingJob) -> None:
        """A job waits (or waits again)."""
        self._pending[job.job_id] = job

    def withdraw(self, job_id: str) -> None:
        """A job waits no more, without having started."""
        self._pending.pop(job_id, None)

    def start(self, gang: RunningGang) -> None:
        """A planned start was carried out: its job has one waiting element less."""
        job = self._pending.pop(gang.job_id)
        if job.elements > 1:
            self._pending[job.job_id] = replace(job, elements=job.elements - 1)
        self._running[gang.gang_id] = gang

    def stopping(self, gang_id: str, until: float) -> None:
        """A gang was told to go; it ends at ``until`` at the latest."""
        gang = self._running[gang_id]
        end = until if gang.promised_end is None else min(until, gang.promised_end)
        self._running[gang_id] = replace(gang, preempting=True, promised_end=end)

    def finish(self, gang_id: str) -> None:
        """A gang is gone: what it held is free."""
        del self._running[gang_id]

    def node_ready(self, node_id: str, ready: bool) -> None:
        """A node went away or came back."""
        self._nodes[node_id] = replace(self._nodes[node_id], ready=ready)

    def plan(
        self,
        now: float,
        *,
        usage: Mapping[UsageKey, float] | None = None,
        limit_ratio: float = 1.0,
        explain: bool = False,
    ) -> Plan:
        """The plan of this moment. Due times and promises that it gives are kept."""
        running = tuple(self._running.values())
        snapshot = Snapshot(
            now,
            occupied(self._nodes.values(), running),
            self._pools,
            self._queues,
            tuple(self._pending.values()),
            running,
            self._headroom,
            usage or {},
            self._reservations,
            limit_ratio,
        )
        made = plan(snapshot, replace(self._policy, explain=explain))
        for job_id, due in made.due.items():
            self._pending[job_id] = replace(self._pending[job_id], due=due)
        for promise in made.promises:
            job = self._pending[promise.job_id]
            if job.promised is None:
                self._pending[promise.job_id] = replace(job, promised=now)
        return made


def occupied(nodes: Iterable[NodeState], running: Iterable[RunningGang]) -> tuple[NodeState, ...]:
    """The nodes with exactly ``running`` on them."""
    shares: dict[str, int] = {}
    owners: dict[str, str] = {}
    tasks: dict[str, list[TaskPlacement]] = {}
    for gang in running:
        for task in gang.tasks:
            tasks.setdefault(task.node_id, []).append(task)
            owners[task.node_id] = gang.project_id
            for device, milli in task.devices:
                shares[device] = shares.get(device, 0) + milli
                owners[device] = gang.project_id
    return tuple(
        replace(
            node,
            used_vcpus=sum(task.vcpus for task in tasks.get(node.id, ())),
            used_memory_mib=sum(task.memory_mib for task in tasks.get(node.id, ())),
            live_tasks=len(tasks.get(node.id, ())),
            occupant=owners.get(node.id),
            devices=tuple(
                replace(one, used_milli=shares.get(one.id, 0), occupant=owners.get(one.id))
                for one in node.devices
            ),
        )
        for node in nodes
    )
