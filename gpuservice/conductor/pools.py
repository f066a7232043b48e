# SPDX-License-Identifier: Apache-2.0
"""Pools: as many nodes as wanted, broken ones replaced, idle ones released, deleted ones gone."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from gpuservice.conductor.deps import Deps
from gpuservice.conductor.node_marks import Marks
from gpuservice.domain.errors import Busy, QuotaExceeded
from gpuservice.domain.host_orders import HEARS, order_of
from gpuservice.domain.inventory import Flavor, Node, Pool
from gpuservice.domain.pools import IN_SIZE, counted, new_nodes, surplus
from gpuservice.domain.ports import Hint
from gpuservice.domain.ports_store import UnitOfWork, Where
from gpuservice.domain.quota import room
from gpuservice.domain.states import NODE, NODE_COUNTED, NodeStatus, PoolStatus

LOG = logging.getLogger(__name__)

#: How long the nodes of a deleted pool wait for their tasks, whatever grace those want.
_LONGEST_FAREWELL = timedelta(minutes=10)

_LIVE = (
    PoolStatus.CREATING,
    PoolStatus.ACTIVE,
    PoolStatus.RESIZING,
    PoolStatus.ERROR,
    PoolStatus.DELETING,
)


class Pools:
    """The pools' pipeline: database only, one transaction a pool."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._marks = Marks(deps)

    def step(self) -> int:
        """One look at every pool; how many changed. One pool's trouble is its own."""
        pools = self._deps.store.read(
            lambda uow: uow.pools.find(Where("status", "in", _LIVE), order=(("id", "asc"),))
        )
        moved = 0
        for pool in pools:
            try:
                moved += self._one(pool.id)
            except Busy:
                raise
            except QuotaExceeded:
                LOG.info("Quota for pool %s went meanwhile; it is looked at again", pool.id)
            except Exception:
                LOG.exception("Pool %s could not go on; it is tried again", pool.id)
        if moved:
            self._deps.hints.send(Hint("jobs"))
        return moved

    def _one(self, pool_id: str) -> bool:
        def work(uow: UnitOfWork) -> bool:
            pool = uow.pools.get(pool_id, lock=True)
            if pool is None or pool.status == PoolStatus.DELETED:
                return False
            nodes = uow.nodes.find(
                Where("pool_id", "eq", pool_id), Where("status", "in", NODE_COUNTED)
            )
            if pool.status == PoolStatus.DELETING:
                return self._delete(uow, pool, nodes)
            moved = self._host_orders(uow, nodes)
            moved = self._drained(uow, nodes) or moved
            moved = self._resize(uow, pool, nodes) or moved
            return self._settle(uow, pool) or moved

        return self._deps.store.write(work)

    def _host_orders(self, uow: UnitOfWork, nodes: list[Node]) -> bool:
        """A host that is to be emptied cordons or drains the nodes on it, one that is back
        lets them serve again; for those that came to be after the request."""
        hosts = {
            host.id: host
            for host in uow.hosts.get_many({node.host_id for node in nodes if node.host_id})
        }
        moved = False
        for node in nodes:
            host = hosts.get(str(node.host_id))
            order = order_of(host, node) if node.status in HEARS else None
            if order is None:
                continue
            if order.event is None:
                uow.nodes.change(node.id, order.values, Where("status", "eq", node.status))
                continue
            reason = order.values.get("status_reason")
            moved = self._marks.node(uow, node, order.event, order.values, reason) or moved
        return moved

    def _drained(self, uow: UnitOfWork, nodes: list[Node]) -> bool:
        """A draining node without tasks is cordoned: empty and kept out of the line."""
        moved = False
        for node in nodes:
            if node.status == NodeStatus.DRAINING and node.live_tasks == 0:
                values = {"drain_deadline_at": None}
                moved = self._marks.node(uow, node, "cordon", values, "drained") or moved
        return moved

    # -- size ------------------------------------------------------------------------------
    def _resize(self, uow: UnitOfWork, pool: Pool, nodes: list[Node]) -> bool:
        flavor = uow.flavors.get(pool.flavor_id)
        if flavor is None:
            return False
        counted_in = [node for node in nodes if node.status in IN_SIZE]
        if len(counted_in) < pool.size:
            return self._grow(uow, pool, flavor, pool.size - len(counted_in))
        self._wait_for(uow, pool, self._unplaced(counted_in))
        leaving = surplus(pool, counted_in, self._deps.clock.now())
        moved = self._shrink(uow, pool, counted_in, leaving) if leaving else False
        return self._replace(uow, pool, counted_in) or moved

    def _grow(self, uow: UnitOfWork, pool: Pool, flavor: Flavor, missing: int) -> bool:
        """As many of the missing nodes as the project's quota allows."""
        each = counted(flavor, 1)
        fit, limit = room(uow.quotas.states(pool.project_id), each)
        count = missing if fit is None else min(fit, missing)
        self._wait_for(
            uow,
            pool,
            None
            if count == missing
            else {
                "code": "project_quota",
                "limit": limit,
                "summary": f"The limit {limit!r} has no room for {missing - count} of its nodes.",
            },
        )
        if count <= 0:
            return False
        # Fails as a whole when the room was taken meanwhile: the next pass looks again.
        uow.quotas.take(pool.project_id, counted(flavor, count))
        uow.nodes.add_many(new_nodes(pool, flavor, count, self._deps.ids, uow.now()))
        if pool.status in (PoolStatus.ACTIVE, PoolStatus.ERROR):
            self._marks.pool(uow, pool, "resize")
        return True

    @staticmethod
    def _wait_for(uow: UnitOfWork, pool: Pool, waiting: dict[str, Any] | None) -> None:
        """What the pool waits for, written when it is something else than before."""
        if pool.waiting != waiting:
            uow.pools.change(pool.id, {"waiting": waiting})

    @staticmethod
    def _unplaced(nodes: list[Node]) -> dict[str, Any] | None:
        """Nodes that no host has room for."""
        waiting = [
            node
            for node in nodes
            if node.status == NodeStatus.REQUESTED and node.status_reason is not None
        ]
        if not waiting:
            return None
        return {
            "code": "insufficient_gpus",
            "nodes": len(waiting),
            "summary": f"No host has room for {len(waiting)} of its nodes.",
        }

    def _shrink(self, uow: UnitOfWork, pool: Pool, nodes: list[Node], leaving: list[Node]) -> bool:
        """Delete nodes without tasks; each only if it is still without."""
        gone = 0
        for node in leaving:
            fresh = uow.nodes.get(node.id, lock=True)
            if fresh is None or fresh.live_tasks or not NODE.allows(fresh.status, "delete"):
                continue
            gone += self._marks.node(uow, fresh, "delete", reason="surplus")
        if not gone:
            return False
        if pool.autoscale and len(nodes) - gone < pool.size:
            uow.pools.change(pool.id, {"wanted_nodes": len(nodes) - gone})
        if pool.status == PoolStatus.ACTIVE:
            self._marks.pool(uow, pool, "resize")
        return True

    def _replace(self, uow: UnitOfWork, pool: Pool, nodes: list[Node]) -> bool:
        """A node that was lost while it served is repaired; one that never built stays in error
        with its fault, for people to see."""
        moved = False
        for node in nodes:
            if node.status != NodeStatus.ERROR:
                continue
            if (node.fault or {}).get("class") == "node_failure":
                moved = self._marks.node(uow, node, "repair") or moved
        return moved

    # -- status ----------------------------------------------------------------------------
    def _settle(self, uow: UnitOfWork, pool: Pool) -> bool:
        """The pool's status from that of its nodes."""
        fresh = uow.pools.get(pool.id)
        if fresh is None:
            return False
        nodes = uow.nodes.find(Where("pool_id", "eq", pool.id), Where("status", "in", IN_SIZE))
        serving = sum(
            node.status in (NodeStatus.READY, NodeStatus.CORDONED, NodeStatus.DRAINING)
            for node in nodes
        )
        broken = [node for node in nodes if node.status == NodeStatus.ERROR]
        enough = min(fresh.size, max(len(nodes), fresh.min_nodes))
        if fresh.status == PoolStatus.CREATING:
            enough = fresh.min_nodes if fresh.autoscale else fresh.size
        settled = serving >= enough and not broken
        if broken and fresh.status in (PoolStatus.CREATING, PoolStatus.ACTIVE, PoolStatus.RESIZING):
            if len(broken) + serving >= len(nodes):
                return self._marks.pool(uow, fresh, "fault", {"fault": broken[0].fault})
        elif settled and fresh.status in (
            PoolStatus.CREATING,
            PoolStatus.RESIZING,
            PoolStatus.ERROR,
        ):
            return self._marks.pool(uow, fresh, "settle", {"fault": None})
        return False

    def _delete(self, uow: UnitOfWork, pool: Pool, nodes: list[Node]) -> bool:
        """First the nodes, then the pool itself with its quota and its name."""
        if not nodes:
            done = self._marks.pool(uow, pool, "deleted", {"name_key": None})
            if done:
                uow.quotas.give_back(pool.project_id, {"pools": 1})
            return done
        moved = False
        for node in nodes:
            if not NODE.allows(node.status, "delete"):
                continue
            if self._is_emptied(uow, node):
                continue
            # What runs there ends with its server; until then it is not counted as ended.
            moved = self._marks.node(uow, node, "delete", reason="pool_deleted") or moved
        return moved

    def _is_emptied(self, uow: UnitOfWork, node: Node) -> bool:
        """Whether a node that is to go still waits for its tasks: they are stopped with their
        grace and put in line again, which does not count as an attempt."""
        if not node.live_tasks or node.status not in HEARS:
            return False
        now = uow.now()
        if node.status != NodeStatus.DRAINING:
            values = {"drain_deadline_at": now, "status_reason": "pool_deleted"}
            return self._marks.node(uow, node, "drain", values, "pool_deleted")
        if node.status_reason != "pool_deleted":
            uow.nodes.change(
                node.id,
                {
                    "drain_deadline_at": now,
                    "status_reason": "pool_deleted",
                    "status_changed_at": now,
                },
                Where("status", "eq", node.status),
            )
            return True
        return now - node.status_changed_at < _LONGEST_FAREWELL
