# SPDX-License-Identifier: Apache-2.0
"""How a pool gets nodes: the rows, what they count, and which of them go first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from gpuservice.domain.inventory import Flavor, Node, Pool
from gpuservice.domain.ports import Ids
from gpuservice.domain.quota import of_nodes
from gpuservice.domain.states import NodeStatus

#: Statuses in which a node counts towards its pool's size.
IN_SIZE = frozenset(set(NodeStatus) - {NodeStatus.DELETING, NodeStatus.DELETED})


def new_nodes(pool: Pool, flavor: Flavor, count: int, ids: Ids, now: datetime) -> list[Node]:
    """``count`` requested nodes of a pool."""
    nodes: list[Node] = []
    for _ in range(count):
        ident = ids.new()
        nodes.append(
            Node(
                id=ident,
                created_at=now,
                updated_at=now,
                pool_id=pool.id,
                project_id=pool.project_id,
                name=f"{pool.name[:40]}-{ident[:8]}",
                flavor_id=flavor.id,
                status=NodeStatus.REQUESTED,
                status_changed_at=now,
                gpu_type=flavor.gpu_type,
                gpu_count=flavor.gpu_count,
                vcpus=flavor.vcpus,
                memory_mib=flavor.memory_mib,
            )
        )
    return nodes


def counted(flavor: Flavor, nodes: int) -> dict[str, int]:
    """What nodes of a flavor take of the project's quota."""
    return of_nodes(flavor.gpu_type, flavor.gpu_count, nodes)


def surplus(pool: Pool, nodes: Sequence[Node], now: datetime) -> list[Node]:
    """The nodes of a pool that should go now (``nodes``: those that count towards its size).

    A fixed pool goes down to its size at once. An autoscaled one keeps what it has until a node
    was idle for ``idle_timeout_s``, and never goes below ``min_nodes``.
    """
    if not pool.autoscale:
        return to_remove(nodes, len(nodes) - pool.size)
    cutoff = now - timedelta(seconds=pool.idle_timeout_s)
    idle = [
        node
        for node in nodes
        if node.status == NodeStatus.READY
        and not node.live_tasks
        and node.idle_since is not None
        and node.idle_since <= cutoff
    ]
    useless = [node for node in nodes if node.status == NodeStatus.ERROR and len(nodes) > pool.size]
    return to_remove([*useless, *idle], min(len(idle) + len(useless), len(nodes) - pool.min_nodes))


def to_remove(nodes: Sequence[Node], surplus: int) -> list[Node]:
    """The nodes that go when a pool has too many: unbuilt and broken first, then idle, then
    the least busy; a node with tasks is never among them."""
    rank = {
        NodeStatus.ERROR: 0,
        NodeStatus.REQUESTED: 1,
        NodeStatus.BUILDING: 2,
        NodeStatus.CONFIGURING: 3,
        NodeStatus.CHECKING: 4,
    }
    free = [node for node in nodes if node.live_tasks == 0]
    free.sort(key=lambda node: (rank.get(NodeStatus(node.status), 9), node.created_at, node.id))
    return free[: max(surplus, 0)]


def serves(pool: Pool, project_id: str | None) -> bool:
    """Whether a queue of a project (None: a cloud-wide one) may have the pool."""
    return (
        project_id is None
        or pool.project_id == project_id
        or "*" in pool.shared_with
        or project_id in pool.shared_with
    )
