# SPDX-License-Identifier: Apache-2.0
"""Servers that nothing wants: of deleted nodes, and second ones of nodes that serve.

A call to create a server may take effect long after it was given up. Nothing of ours may stay in
the cloud that way: of each node at most one server remains, of a deleted one none.
"""

from __future__ import annotations

from gpuservice.conductor.deps import Deps
from gpuservice.domain.ports import CloudNode
from gpuservice.domain.states import NodeStatus


class Leftovers:
    """Compares the cloud's servers with the nodes. Servers of ids we never knew are not ours."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    def step(self) -> int:
        """Delete what is left over; how many servers."""
        servers = self._deps.cloud.find_nodes()
        nodes = {
            node.id: node
            for node in self._deps.store.read(
                lambda uow: uow.nodes.get_many({server.node_id for server in servers})
            )
        }
        kept: dict[str, str] = {}
        surplus: list[CloudNode] = []
        for server in servers:  # oldest first
            node = nodes.get(server.node_id)
            if node is None:
                continue
            if node.status == NodeStatus.DELETED:
                surplus.append(server)
            elif node.id not in kept and server.server_id == (node.server_id or server.server_id):
                kept[node.id] = server.server_id
            elif node.server_id is not None:
                surplus.append(server)
        for server in surplus:
            self._deps.cloud.delete_node(server.server_id)
        return len(surplus)
