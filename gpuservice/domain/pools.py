# SPDX-License-Identifier: Apache-2.0
"""How a pool gets nodes: the rows, what they count, and which of them go first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

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
        nodes.append(Node(
            id=ident, created_at=now, updated_at=now, pool_id=pool.id,
            project_id=pool.project_id, name=f"{pool.name[:40]}-{ident[:8]}",
            flavor_id=flavor.id, status=NodeStatus.REQUESTED, status_changed_at=now,
            gpu_type=flavor.gpu_type, gpu_count=flavor.gpu_count, vcpus=flavor.vcpus,
            memory_mib=flavor.memory_mib))
    return nodes


def counted(flavor: Flavor, nodes: int) -> dict[str, int]:
    """What nodes of a flavor take of the project's quota."""
    return of_nodes(flavor.gpu_type, flavor.gpu_count, nodes)


def to_remove(nodes: Sequence[Node], surplus: int) -> list[Node]:
    """The nodes that go when a pool has too many: unbuilt and broken first, then idle, then
    the least busy; a node with tasks is never among them."""
    rank = {NodeStatus.ERROR: 0, NodeStatus.REQUESTED: 1, NodeStatus.BUILDING: 2,
            NodeStatus.CONFIGURING: 3, NodeStatus.CHECKING: 4}
    free = [node for node in nodes if node.live_tasks == 0]
    free.sort(key=lambda node: (rank.get(NodeStatus(node.status), 9), node.created_at, node.id))
    return free[:max(surplus, 0)]
