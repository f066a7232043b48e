# SPDX-License-Identifier: Apache-2.0
"""What the status of a host means for the nodes on it: pure decisions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpuservice.domain.inventory import Host, Node
from gpuservice.domain.states import NodeStatus

#: Status of a host -> what happens to nodes that serve there.
_EVENTS = {"cordoned": "cordon", "draining": "drain", "maintenance": "drain"}
#: ``status_reason`` of nodes that are out of service for their host's sake alone: they serve
#: again when the host does. What a person did to a node stays.
_FOR_ITS_HOST = frozenset(f"host_{status}" for status in _EVENTS)
#: Statuses in which a node hears of its host's.
HEARS = (NodeStatus.READY, NodeStatus.CORDONED, NodeStatus.DRAINING)


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """``event`` of the node's table (None: its status stays), ``values`` of its row."""

    event: str | None
    values: dict[str, Any] = field(default_factory=dict)


def of_host(node: Node) -> bool:
    """Whether a node is out of service for its host's sake alone."""
    return node.status_reason in _FOR_ITS_HOST


def order_of(host: Host | None, node: Node) -> NodeOrder | None:
    """What a node has to do for its host; None when all is as it should be."""
    status = "enabled" if host is None else host.status
    reason = f"host_{status}"
    deadline = host.drain_deadline_at if host is not None and status == "draining" else None
    event = _event(status, node)
    if event is None:
        if node.status == NodeStatus.DRAINING and node.drain_deadline_at != deadline:
            return NodeOrder(None, {"drain_deadline_at": deadline})
        return None
    values: dict[str, Any] = {"drain_deadline_at": deadline}
    if event == "uncordon":
        values["status_reason"] = None
    elif node.status == NodeStatus.READY or of_host(node):
        values["status_reason"] = reason
    return NodeOrder(event, values)


def _event(status: str, node: Node) -> str | None:
    wanted = _EVENTS.get(status)
    ours = of_host(node)
    if node.status == NodeStatus.READY:
        return wanted
    if wanted is None:
        return "uncordon" if ours and node.status in HEARS else None
    if wanted == "cordon":
        return "cordon" if ours and node.status == NodeStatus.DRAINING else None
    # Cordoned and empty is what was wanted.
    return "drain" if node.status == NodeStatus.CORDONED and node.live_tasks else None
