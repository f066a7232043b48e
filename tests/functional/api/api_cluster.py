# SPDX-License-Identifier: Apache-2.0
"""A small cluster as rows: one GPU type, hosts with devices, a flavor, a pool, a queue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpuservice.domain.inventory import Device, Flavor, GpuType, Host, Node, Pool
from gpuservice.domain.ports_store import UnitOfWork
from gpuservice.domain.quota import of_nodes
from gpuservice.domain.work import Queue

OPERATORS_PROJECT = "operators"
GPU_TYPE = "a100-80gb"
GPU_MEMORY_MIB = 81920
#: Of each host, and of the one node that it carries.
SIZE = {"vcpus": 32, "memory_mib": 262144}

#: Makes what every row has: an id of its own and the times.
Row = Callable[..., dict[str, Any]]


@dataclass(frozen=True)
class Cluster:
    """What ``small_cluster`` made."""

    flavor: Flavor
    pool: Pool
    hosts: tuple[Host, ...]
    nodes: tuple[Node, ...]
    devices: tuple[Device, ...]
    queue: Queue


def small_cluster(
    uow: UnitOfWork, new_id: Callable[[], str], count: int, gpus: int, project: str, name: str
) -> Cluster:
    """Add a pool of ``count`` ready nodes that serves the cloud-wide queue ``default``."""
    now = uow.now()

    def row(**values: Any) -> dict[str, Any]:
        return {"id": new_id(), "created_at": now, "updated_at": now, **values}

    gpu_type = GpuType(**row(name=GPU_TYPE, vendor="nvidia", memory_mib=GPU_MEMORY_MIB))
    flavor = Flavor(**row(name=f"a100.{gpus}", gpu_type=GPU_TYPE, gpu_count=gpus, **SIZE))
    pool = _pool(row, project, name, flavor, count)
    queue = _queue(row, pool)
    hosts = [Host(**row(name=f"host-{n}", rack=f"r{n % 2}", **SIZE)) for n in range(count)]
    nodes = [_node(row, pool, host, n, gpus) for n, host in enumerate(hosts)]
    devices = [_device(row, node, ordinal) for node in nodes for ordinal in range(gpus)]
    uow.quotas.take(project, {"pools": 1, **of_nodes(GPU_TYPE, gpus, count)})
    uow.gpu_types.add(gpu_type)
    uow.flavors.add(flavor)
    uow.pools.add(pool)
    uow.queues.add(queue)
    uow.hosts.add_many(hosts)
    uow.nodes.add_many(nodes)
    uow.devices.add_many(devices)
    return Cluster(flavor, pool, tuple(hosts), tuple(nodes), tuple(devices), queue)


def _pool(row: Row, project: str, name: str, flavor: Flavor, count: int) -> Pool:
    return Pool(
        **row(
            project_id=project,
            name=name,
            flavor_id=flavor.id,
            min_nodes=count,
            max_nodes=count,
            target_nodes=count,
            status="active",
            shared_with=("*",),
            name_key=f"{project}/{name}",
        )
    )


def _queue(row: Row, pool: Pool) -> Queue:
    return Queue(
        **row(
            project_id=None,
            name="default",
            projects=("*",),
            pool_ids=(pool.id,),
            name_key="*/default",
        )
    )


def _node(row: Row, pool: Pool, host: Host, number: int, gpus: int) -> Node:
    return Node(
        **row(
            pool_id=pool.id,
            project_id=pool.project_id,
            name=f"{pool.name}-{number}",
            flavor_id=pool.flavor_id,
            host_id=host.id,
            address=f"127.1.0.{number + 1}",
            status="ready",
            status_changed_at=host.created_at,
            gpu_type=GPU_TYPE,
            gpu_count=gpus,
            secret_hash=None,
            **SIZE,
        )
    )


def _device(row: Row, node: Node, ordinal: int) -> Device:
    return Device(
        **row(
            host_id=node.host_id,
            address=f"0000:{ordinal:02x}:00.0",
            gpu_type=GPU_TYPE,
            memory_mib=GPU_MEMORY_MIB,
            ordinal=ordinal,
            health="healthy",
            node_id=node.id,
        )
    )
