# SPDX-License-Identifier: Apache-2.0
"""A cluster with more nodes, or with fewer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpuservice.planner.snapshot import DeviceState, NodeState, PoolState
from gpuservice.simulation.cluster import Cluster
from gpuservice.simulation.faults import InputFault
from gpuservice.simulation.opening import Begun

Changed = tuple[Cluster, list[Begun]]


def with_nodes(cluster: Cluster, begun: Sequence[Begun], pool_id: str, count: int) -> Changed:
    """So many more (or fewer) nodes of a pool; the emptiest go first."""
    pool = next((one for one in cluster.pools() if one.id == pool_id), None)
    if pool is None:
        raise InputFault(f"there is no pool '{pool_id}' with nodes of its own")
    if count >= 0:
        made = [_like_others(cluster, pool, number) for number in range(count)]
        return _kept(replace(cluster, nodes=(*cluster.nodes, *made))), list(begun)
    there = _emptiest(begun, [node for node in cluster.nodes if node.pool_id == pool_id])
    if -count > len(there):
        raise InputFault(f"the pool has {len(there)} nodes, which is less than {-count}")
    return _without(cluster, begun, {node.id for node in there[:-count]})


def with_gpus(cluster: Cluster, begun: Sequence[Begun], gpu_type: str, gpus: int) -> Changed:
    """So many more (or fewer) GPUs of a type: in whole nodes like those of its largest pool, the
    last one with as many as are left; taken away from the emptiest nodes."""
    if gpus < 0:
        return _fewer(cluster, begun, gpu_type, -gpus)
    pools = [pool for pool in cluster.pools() if pool.template.gpu_type == gpu_type]
    pools = [pool for pool in pools if pool.template.gpu_count]
    if not pools:
        raise InputFault(f"no pool has GPUs of the type '{gpu_type}': add nodes to a pool of yours")
    sizes = {pool.id: sum(one.pool_id == pool.id for one in cluster.nodes) for pool in pools}
    pool = max(pools, key=lambda one: (sizes[one.id], one.id))
    made: list[NodeState] = []
    while gpus > 0:
        node = _like_others(cluster, pool, len(made))
        node = replace(node, devices=node.devices[:gpus])
        gpus -= len(node.devices)
        made.append(node)
    return _kept(replace(cluster, nodes=(*cluster.nodes, *made))), list(begun)


def _fewer(cluster: Cluster, begun: Sequence[Begun], gpu_type: str, gpus: int) -> Changed:
    """Whole nodes as long as they are needed, then some GPUs of one more."""
    of_type = [
        node for node in cluster.nodes if node.devices and node.devices[0].gpu_type == gpu_type
    ]
    there = sum(len(node.devices) for node in of_type)
    if gpus > there:
        raise InputFault(
            f"there are {there} GPUs of the type '{gpu_type}', which is less than {gpus}"
        )
    gone: set[str] = set()
    cut: dict[str, int] = {}
    for node in _emptiest(begun, of_type):
        if gpus >= len(node.devices):
            gone.add(node.id)
            gpus -= len(node.devices)
        elif gpus:
            cut[node.id] = gpus
            gpus = 0
    used = {
        device for one in begun for task in one.tasks for device, _ in task.devices
        if task.node_id in cut
    }  # fmt: skip
    nodes, lost = [], set()
    for node in cluster.nodes:
        if node.id in cut:
            order = sorted(node.devices, key=lambda device: device.id in used)
            taken = {device.id for device in order[: cut[node.id]]}
            lost |= taken & used
            left = tuple(device for device in node.devices if device.id not in taken)
            nodes.append(replace(node, devices=left))
        else:
            nodes.append(node)
    stay = [
        one for one in begun
        if not any(device in lost for task in one.tasks for device, _ in task.devices)
    ]  # fmt: skip
    return _without(replace(cluster, nodes=tuple(nodes)), stay, gone)


def _emptiest(begun: Sequence[Begun], nodes: Sequence[NodeState]) -> list[NodeState]:
    """Nodes with the least in use first, the last of them first among equals."""
    used: dict[str, int] = {}
    for one in begun:
        for task in one.tasks:
            held = sum(milli for _, milli in task.devices) + 1
            used[task.node_id] = used.get(task.node_id, 0) + held
    places = {node.id: -place for place, node in enumerate(nodes)}
    return sorted(nodes, key=lambda node: (used.get(node.id, 0), places[node.id]))


def _without(cluster: Cluster, begun: Sequence[Begun], gone: set[str]) -> Changed:
    nodes = tuple(node for node in cluster.nodes if node.id not in gone)
    if not nodes:
        raise InputFault("the change leaves no node")
    stay = [one for one in begun if not any(task.node_id in gone for task in one.tasks)]
    return _kept(replace(cluster, nodes=nodes)), stay


def _kept(cluster: Cluster) -> Cluster:
    """Pools are as large as their nodes say."""
    sizes = {
        pool.id: sum(one.pool_id == pool.id for one in cluster.nodes) for pool in cluster.owned
    }
    return replace(
        cluster,
        owned=tuple(
            replace(pool, size=sizes[pool.id], max_nodes=sizes[pool.id]) for pool in cluster.owned
        ),
    )


def _like_others(cluster: Cluster, pool: PoolState, number: int) -> NodeState:
    """A new node of the pool: new ones stand in a rack of their own, in the zone of the others."""
    template, name = pool.template, f"new-{len(cluster.nodes) + number}"
    zones = [node.zone for node in cluster.nodes if node.pool_id == pool.id]
    devices = tuple(
        DeviceState(f"{name}/{index}", template.gpu_type, template.gpu_memory_mib, link_group="0")
        for index in range(template.gpu_count)
    )
    return NodeState(
        name,
        pool.id,
        template.vcpus,
        template.memory_mib,
        devices,
        isolation_node=pool.isolation_node,
        rack=f"new-{pool.id}",
        zone=zones[0] if zones else None,
    )
