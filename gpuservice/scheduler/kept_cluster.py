# SPDX-License-Identifier: Apache-2.0
"""What there is of nodes, pools and queues, kept between passes: only what changed is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from gpuservice.domain.inventory import Device, Flavor, GpuType, Host, Node, Pool
from gpuservice.domain.pools import IN_SIZE
from gpuservice.domain.ports_scheduling import Marks, NodeUse
from gpuservice.domain.ports_store import NodeLoad, UnitOfWork, Where
from gpuservice.domain.states import POOL_COUNTED, NodeStatus, PoolStatus
from gpuservice.domain.work import Queue
from gpuservice.planner import snapshot as plan_input
from gpuservice.scheduler.cluster_state import COMING, node_state, pool_state, queue_state
from gpuservice.scheduler.gang_rows import Gang, by_project, takes

_POOLS = Where("status", "in", POOL_COUNTED - {PoolStatus.DELETING})
_IN_SIZE = Where("status", "in", tuple(IN_SIZE))


class KeptCluster:
    """The rows, and the planner's view of them: the same objects while nothing changed.

    ``follow`` brings them up to the moment of the marks. Whatever seldom changes (all but nodes) is
    read whole when any of it did, and then the nodes too.
    """

    def __init__(self, default_runtime_s: int | None) -> None:
        self._default_runtime_s = default_runtime_s
        self._ground: dict[str, tuple[int, int, datetime | None]] | None = None
        self._marks: dict[str, tuple[int, int]] = {}
        self._flavors: dict[str, Flavor] = {}
        self._types: dict[str, GpuType] = {}
        self._hosts: dict[str, Host] = {}
        self._states: dict[str, plan_input.NodeState] = {}
        self.pools: dict[str, Pool] = {}
        self.queues: list[Queue] = []
        #: Those of the pools, in order of id.
        self.nodes: dict[str, Node] = {}
        self.node_states: tuple[plan_input.NodeState, ...] = ()
        self.pool_states: tuple[plan_input.PoolState, ...] = ()
        self.queue_states: tuple[plan_input.QueueState, ...] = ()

    def forget(self) -> None:
        """Read everything anew."""
        self._ground, self._marks = None, {}

    def follow(self, uow: UnitOfWork, marks: Marks) -> None:
        """The state of the moment of these marks, which were read in the same transaction."""
        whole = marks.ground != self._ground
        if whole:
            self._read_ground(uow)
            self._marks, self.nodes, self._states = {}, {}, {}
        changed = [ident for ident, mark in marks.nodes.items() if self._marks.get(ident) != mark]
        gone = self._marks.keys() - marks.nodes.keys()
        if whole or changed or gone:
            before = {ident: _place(node) for ident, node in self.nodes.items()}
            self.nodes = dict(self.nodes)  # whoever has the former one keeps it as it was
            taken = [ident for ident in changed if self._only_taken(ident, marks)]
            if taken:
                self._follow_use(uow.scheduling.use(taken))
            other = sorted(set(changed) - set(taken))
            if whole or other:
                self._read_nodes(uow, other, whole)
            for ident in gone:
                self.nodes.pop(ident, None)
                self._states.pop(ident, None)
            self.nodes = dict(sorted(self.nodes.items()))
            self._list_states()
            if whole or before != {ident: _place(node) for ident, node in self.nodes.items()}:
                self._shape_pools()
        self._ground, self._marks = marks.ground, dict(marks.nodes)

    def took(self, gangs: Sequence[Gang]) -> None:
        """A transaction of this process started these gangs: what it took is known without
        reading. A node that others changed meanwhile has another mark, and is read."""
        milli: dict[str, int] = {}
        projects: dict[str, str] = {}
        for project, theirs in by_project(gangs).items():
            for share in (share for gang in theirs for share in gang.shares):
                milli[share.device_id] = milli.get(share.device_id, 0) + share.milli
                projects[share.device_id] = project
        self.nodes = dict(self.nodes)
        for project, _, loads in takes(gangs):
            for node_id in dict.fromkeys(load.node_id for load in loads):
                self._take(node_id, project, [one for one in loads if one.node_id == node_id])
        for node_id in {task.node_id for gang in gangs for task in gang.tasks}:
            state = self._states.get(node_id)
            if state is not None:
                devices = tuple(
                    _taken(one, one.used_milli + milli[one.id], projects[one.id])
                    if one.id in milli
                    else one
                    for one in state.devices
                )
                self._states[node_id] = replace(state, devices=devices)
        self._list_states()

    def _take(self, node_id: str, project: str, loads: Sequence[NodeLoad]) -> None:
        node, state, mark = (
            self.nodes.get(node_id),
            self._states.get(node_id),
            self._marks.get(node_id),
        )
        if node is None or state is None or mark is None:
            self._marks.pop(node_id, None)
            return
        vcpus = node.used_vcpus + sum(load.vcpus for load in loads)
        memory = node.used_memory_mib + sum(load.memory_mib for load in loads)
        tasks = node.live_tasks + sum(load.tasks for load in loads)
        self._use(NodeUse(node_id, node.epoch, vcpus, memory, tasks, project))
        self._marks[node_id] = (mark[0], mark[1] + 1)

    def _read_ground(self, uow: UnitOfWork) -> None:
        self.pools = {pool.id: pool for pool in uow.pools.find(_POOLS, order=(("id", "asc"),))}
        self._flavors = {row.id: row for row in uow.flavors.find()}
        self._types = {row.name: row for row in uow.gpu_types.find()}
        self._hosts = {row.id: row for row in uow.hosts.find()}
        self.queues = uow.queues.find(order=(("id", "asc"),))
        self.queue_states = tuple(
            queue_state(queue, self.pools, self._default_runtime_s) for queue in self.queues
        )

    def _read_nodes(self, uow: UnitOfWork, changed: list[str], whole: bool) -> None:
        """Nodes with their devices; where their hosts stand is known."""
        rows = uow.nodes.find(_IN_SIZE) if whole else uow.nodes.get_many(changed)
        mine = [node for node in rows if node.pool_id in self.pools]
        held = (
            Where("node_id", "notnull")
            if whole
            else Where("node_id", "in", [node.id for node in mine])
        )
        devices: dict[str, list[Device]] = {}
        for device in uow.devices.find(held, order=(("ordinal", "asc"), ("id", "asc"))):
            devices.setdefault(str(device.node_id), []).append(device)
        for node in mine:
            self.nodes[node.id] = node
            if node.status in COMING or node.status == NodeStatus.ERROR:
                self._states.pop(node.id, None)
                continue
            host = self._hosts.get(str(node.host_id))
            self._states[node.id] = node_state(
                node, self.pools[node.pool_id], devices.get(node.id, []), host
            )

    def _list_states(self) -> None:
        self.node_states = tuple(
            self._states[ident] for ident in self.nodes if ident in self._states
        )

    def _only_taken(self, ident: str, marks: Marks) -> bool:
        """Whether nothing of a known node changed but what tasks take of it. (That its devices are
        as they were, the ground tells.)"""
        known = self._marks.get(ident)
        return known is not None and known[0] == marks.nodes[ident][0] and ident in self._states

    def _follow_use(self, uses: Sequence[NodeUse]) -> None:
        for use in uses:
            self._use(use)
            state = self._states[use.node_id]
            devices = tuple(_taken(one, *use.devices[one.id]) for one in state.devices)
            self._states[use.node_id] = replace(state, devices=devices)

    def _use(self, use: NodeUse) -> None:
        """What is taken of a node itself."""
        self.nodes[use.node_id] = replace(
            self.nodes[use.node_id],
            epoch=use.epoch,
            used_vcpus=use.used_vcpus,
            used_memory_mib=use.used_memory_mib,
            live_tasks=use.live_tasks,
            occupant_project_id=use.occupant,
        )
        self._states[use.node_id] = replace(
            self._states[use.node_id],
            used_vcpus=use.used_vcpus,
            used_memory_mib=use.used_memory_mib,
            live_tasks=use.live_tasks,
            occupant=use.occupant,
        )

    def _shape_pools(self) -> None:
        by_pool: dict[str, list[Node]] = {}
        for node in self.nodes.values():
            by_pool.setdefault(node.pool_id, []).append(node)
        self.pool_states = tuple(
            pool_state(pool, self._flavors[pool.flavor_id], self._types, by_pool.get(pool.id, []))
            for pool in self.pools.values()
            if pool.flavor_id in self._flavors
        )


def _taken(
    device: plan_input.DeviceState, milli: int, occupant: str | None
) -> plan_input.DeviceState:
    """The device with so much of it taken; the same object if that is nothing new."""
    if (device.used_milli, device.occupant) == (milli, occupant):
        return device
    return replace(device, used_milli=milli, occupant=occupant)


def _place(node: Node) -> tuple[str, str]:
    return node.pool_id, node.status
