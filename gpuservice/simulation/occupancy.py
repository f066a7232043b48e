# SPDX-License-Identifier: Apache-2.0
"""Who holds what, counted apart from the planner: it checks every start and measures idleness."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from gpuservice.planner.snapshot import NodeState, TaskPlacement
from gpuservice.simulation.faults import PlanFault


@dataclass(slots=True)
class Idle:
    """Milli-GPU-seconds: ready in all, used, idle, idle while something waits, idle on nodes in
    part used, idle on GPUs in part used."""

    ready: float = 0.0
    used: float = 0.0
    waiting: float = 0.0
    nodes: float = 0.0
    devices: float = 0.0


@dataclass(slots=True)
class _Host:
    capacity: int
    vcpus: int
    memory_mib: int
    ready: bool = True
    used: int = 0
    vcpus_used: int = 0
    memory_used: int = 0
    shares: dict[str, int] = field(default_factory=dict)  # device -> used milli
    part: int = 0  # idle milli of devices in part used


class Occupancy:
    """Devices, processors and memory that are held."""

    def __init__(self, nodes: Iterable[NodeState]) -> None:
        self._hosts = {
            node.id: _Host(
                1000 * len(node.devices),
                node.vcpus,
                node.memory_mib,
                shares={device.id: 0 for device in node.devices},
            )
            for node in nodes
        }
        self.capacity = sum(host.capacity for host in self._hosts.values())
        self.ready = self.capacity
        self.used = 0
        self.idle = Idle()
        self._nodes_part = 0
        self._devices_part = 0
        self._since = 0.0

    @property
    def free(self) -> int:
        """Milli-GPUs that are free on nodes that are there."""
        return self.ready - self.used

    def advance(self, now: float, waiting: bool) -> None:
        """Nothing changed up to ``now``."""
        passed, self._since = now - self._since, now
        self.idle.ready += passed * self.ready
        self.idle.used += passed * self.used
        self.idle.nodes += passed * self._nodes_part
        self.idle.devices += passed * self._devices_part
        if waiting:
            self.idle.waiting += passed * self.free

    def begin(self, now: float) -> None:
        """Nothing is measured before ``now``."""
        self._since = now

    def take(self, job_id: str, tasks: Iterable[TaskPlacement]) -> int:
        """Hold what a start takes; how many milli-GPUs it is.

        :raises PlanFault: if a node has not got it.
        """
        return self._change(job_id, tasks, 1)

    def give(self, job_id: str, tasks: Iterable[TaskPlacement]) -> int:
        """Free what an attempt held."""
        return self._change(job_id, tasks, -1)

    def node_ready(self, node_id: str, ready: bool) -> None:
        """A node (on which nothing is) went away or came back."""
        host = self._hosts[node_id]
        self.ready += (ready - host.ready) * host.capacity
        host.ready = ready

    def _change(self, job_id: str, tasks: Iterable[TaskPlacement], sign: int) -> int:
        total = 0
        for task in tasks:
            host = self._hosts[task.node_id]
            self._leave(host)
            for device, milli in task.devices:
                host.shares[device] += sign * milli
                host.used += sign * milli
                total += milli
            host.vcpus_used += sign * task.vcpus
            host.memory_used += sign * task.memory_mib
            host.part = _in_part(host)
            self._enter(host)
            if sign > 0:
                _check(job_id, task, host)
        self.used += sign * total
        return total

    def _leave(self, host: _Host) -> None:
        self._devices_part -= host.part
        if host.used:
            self._nodes_part -= host.capacity - host.used

    def _enter(self, host: _Host) -> None:
        self._devices_part += host.part
        if host.used:
            self._nodes_part += host.capacity - host.used


def _in_part(host: _Host) -> int:
    return sum(1000 - milli for milli in host.shares.values() if 0 < milli < 1000)


def _check(job_id: str, task: TaskPlacement, host: _Host) -> None:
    over = [device for device, _ in task.devices if host.shares[device] > 1000]
    if host.vcpus_used > host.vcpus:
        over.append("vcpus")
    if host.memory_used > host.memory_mib:
        over.append("memory")
    if not host.ready:
        over.append("a node that is away")
    if over:
        raise PlanFault(f"{job_id} was given more than there is on {task.node_id}: {over}")
