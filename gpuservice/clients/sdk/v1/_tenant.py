# SPDX-License-Identifier: Apache-2.0
"""The tenant's side of the proxy: pools, nodes, queues, events."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from openstack import proxy

from gpuservice.clients.sdk.v1.event import Event
from gpuservice.clients.sdk.v1.node import Node
from gpuservice.clients.sdk.v1.pool import Pool
from gpuservice.clients.sdk.v1.queue import Queue


class TenantMixin(proxy.Proxy):
    """What a project has. ``find_*`` take a name or an id."""

    def pools(self, **query: Any) -> Generator[Pool, None, None]:
        """Generate the project's pools."""
        return self._list(Pool, **query)

    def find_pool(self, name_or_id: str, ignore_missing: bool = True) -> Pool | None:
        """The pool with a name or an id, or None."""
        return Pool.find(self, name_or_id, ignore_missing)

    def get_pool(self, pool: str | Pool) -> Pool:
        """One pool by its id."""
        return self._get(Pool, pool)

    def create_pool(self, **attrs: Any) -> Pool:
        """Create a pool; its nodes are built from then on."""
        return self._create(Pool, **attrs)

    def update_pool(self, pool: str | Pool, **attrs: Any) -> Pool:
        """Change a pool's size, idle time or sharing."""
        return self._update(Pool, pool, **attrs)

    def delete_pool(
        self, pool: str | Pool, ignore_missing: bool = True, if_match: str | None = None
    ) -> None:
        """Delete a pool with its nodes."""
        match: dict[str, Any] = {} if if_match is None else {"if_match": if_match}
        self._delete(Pool, pool, ignore_missing, **match)

    def explain_pool(self, pool: str | Pool) -> dict[str, Any]:
        """Why a pool is not (yet) what it should be."""
        found = self._get_resource(Pool, pool)
        return dict(found.subresource(self, "explain")["explanation"])

    def nodes(self, **query: Any) -> Generator[Node, None, None]:
        """Generate the nodes of the project's pools."""
        return self._list(Node, **query)

    def find_node(self, name_or_id: str, ignore_missing: bool = True) -> Node | None:
        """The node with a name or an id, or None."""
        return Node.find(self, name_or_id, ignore_missing)

    def get_node(self, node: str | Node) -> Node:
        """One node by its id."""
        return self._get(Node, node)

    def act_on_node(self, node: str | Node, action: str, **details: Any) -> Node:
        """cordon, drain, uncordon or repair a node."""
        return self._get_resource(Node, node).act(self, action, details)

    def queues(self, **query: Any) -> Generator[Queue, None, None]:
        """Generate the queues that the caller may use."""
        return self._list(Queue, **query)

    def find_queue(self, name_or_id: str, ignore_missing: bool = True) -> Queue | None:
        """The queue with a name (the project's own first) or an id, or None."""
        return Queue.find(self, name_or_id, ignore_missing)

    def get_queue(self, queue: str | Queue) -> Queue:
        """One queue by its id."""
        return self._get(Queue, queue)

    def create_queue(self, **attrs: Any) -> Queue:
        """Create a queue."""
        return self._create(Queue, **attrs)

    def update_queue(self, queue: str | Queue, **attrs: Any) -> Queue:
        """Change a queue."""
        return self._update(Queue, queue, **attrs)

    def delete_queue(
        self, queue: str | Queue, ignore_missing: bool = True, if_match: str | None = None
    ) -> None:
        """Delete a queue that has no live jobs."""
        match: dict[str, Any] = {} if if_match is None else {"if_match": if_match}
        self._delete(Queue, queue, ignore_missing, **match)

    def events(self, **query: Any) -> Generator[Event, None, None]:
        """Generate events in the order in which they were written."""
        return self._list(Event, **query)
