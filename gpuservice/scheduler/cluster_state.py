# SPDX-License-Identifier: Apache-2.0
"""Rows of nodes, pools and queues as the planner is told of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuservice.domain.health import usable
from gpuservice.domain.inventory import Device, Flavor, GpuType, Host, Node, Pool
from gpuservice.domain.isolation import one_project_at_a_time, unproved
from gpuservice.domain.pools import serves
from gpuservice.domain.states import NodeStatus, QueueStatus
from gpuservice.domain.work import Queue
from gpuservice.planner import snapshot as plan_input

#: Nodes that will be there.
COMING = (
    NodeStatus.REQUESTED,
    NodeStatus.BUILDING,
    NodeStatus.CONFIGURING,
    NodeStatus.CHECKING,
    NodeStatus.REPAIRING,
)


def node_state(
    node: Node, pool: Pool, devices: Sequence[Device], host: Host | None
) -> plan_input.NodeState:
    """A node with its devices, and where its host stands."""
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


def pool_state(
    pool: Pool, flavor: Flavor, types: Mapping[str, GpuType], nodes: Sequence[Node]
) -> plan_input.PoolState:
    """A pool, and what a new node of it would be."""
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
        coming=sum(node.status in COMING for node in mine),
        isolation_node=pool.isolation != "none",
    )


def queue_state(
    queue: Queue, pools: Mapping[str, Pool], default_runtime_s: int | None
) -> plan_input.QueueState:
    """A queue; its GPUs in milli."""
    policy = queue.kinds.get("training") or {}
    return plan_input.QueueState(
        id=queue.id,
        pool_ids=tuple(
            one for one in queue.pool_ids if one in pools and serves(pools[one], queue.project_id)
        ),
        open=queue.status != QueueStatus.CLOSED,
        weight=float(queue.weight),
        cohort=queue.cohort,
        nominal=_milli(queue.nominal),
        borrowing_limit=_milli(queue.borrowing_limit),
        lending_limit=_milli(queue.lending_limit),
        preemption=queue.preemption,
        spread=queue.placement == "spread",
        default_runtime_s=policy.get("max_runtime_s", default_runtime_s),
    )


def _milli(gpus: Mapping[str, int]) -> dict[str, int]:
    return {gpu_type: count * 1000 for gpu_type, count in sorted(gpus.items())}
