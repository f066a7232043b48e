# SPDX-License-Identifier: Apache-2.0
"""Pools: as many nodes as wanted, broken ones replaced, idle ones released, deleted ones gone."""

from __future__ import annotations

from datetime import timedelta

from gpuservice.conductor.deps import Deps
from gpuservice.conductor.node_marks import Marks
from gpuservice.domain.errors import QuotaExceeded
from gpuservice.domain.inventory import Flavor, Node, Pool
from gpuservice.domain.pools import IN_SIZE, counted, new_nodes, to_remove
from gpuservice.domain.ports import Hint, TaskEnd, UnitOfWork, Where
from gpuservice.domain.states import NODE, NodeStatus, PoolStatus

_LIVE = (PoolStatus.CREATING, PoolStatus.ACTIVE, PoolStatus.RESIZING, PoolStatus.ERROR,
         PoolStatus.DELETING)


class Pools:
    """The pools' pipeline: database only, one transaction a pool."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._marks = Marks(deps)

    def step(self) -> int:
        """One look at every pool; how many changed."""
        pools = self._deps.store.read(lambda uow: uow.pools.find(Where("status", "in", _LIVE)))
        moved = sum(self._one(pool.id) for pool in pools)
        if moved:
            self._deps.hints.send(Hint("jobs"))
        return moved

    def _one(self, pool_id: str) -> bool:
        def work(uow: UnitOfWork) -> bool:
            pool = uow.pools.get(pool_id, lock=True)
            if pool is None or pool.status == PoolStatus.DELETED:
                return False
            nodes = uow.nodes.find(Where("pool_id", "eq", pool_id),
                                   Where("status", "ne", NodeStatus.DELETED))
            if pool.status == PoolStatus.DELETING:
                return self._delete(uow, pool, nodes)
            moved = self._host_orders(uow, nodes)
            moved = self._drained(uow, nodes) or moved
            moved = self._resize(uow, pool, nodes) or moved
            return self._settle(uow, pool) or moved

        return self._deps.store.write(work)

    def _host_orders(self, uow: UnitOfWork, nodes: list[Node]) -> bool:
        """A host that is to be emptied cordons or drains the nodes on it."""
        hosts = {host.id: host.status for host in uow.hosts.get_many(
            {node.host_id for node in nodes if node.host_id})}
        moved = False
        for node in nodes:
            status = hosts.get(str(node.host_id), "enabled")
            event = {"cordoned": "cordon", "draining": "drain", "maintenance": "drain"}.get(status)
            if event == "cordon" and node.status != NodeStatus.READY:
                continue
            if event is not None and NODE.allows(node.status, event):
                moved = self._marks.node(uow, node, event, reason=f"host_{status}") or moved
        return moved

    def _drained(self, uow: UnitOfWork, nodes: list[Node]) -> bool:
        """A draining node without tasks is cordoned: empty and kept out of the line."""
        moved = False
        for node in nodes:
            if node.status == NodeStatus.DRAINING and node.live_tasks == 0:
                moved = self._marks.node(uow, node, "cordon", reason="drained") or moved
        return moved

    # -- size ------------------------------------------------------------------------------
    def _resize(self, uow: UnitOfWork, pool: Pool, nodes: list[Node]) -> bool:
        flavor = uow.flavors.get(pool.flavor_id)
        if flavor is None:
            return False
        counted_in = [node for node in nodes if node.status in IN_SIZE]
        size = self._idle_size(pool, counted_in)
        if len(counted_in) < size:
            return self._grow(uow, pool, flavor, size - len(counted_in))
        if pool.waiting is not None:
            uow.pools.change(pool.id, {"waiting": None})
        surplus = len(counted_in) - size
        if surplus <= 0:
            return self._replace(uow, pool, counted_in)
        return self._shrink(uow, pool, counted_in, surplus)

    def _idle_size(self, pool: Pool, nodes: list[Node]) -> int:
        """The wanted size, less nodes of an autoscaled pool that were idle for long enough."""
        size = pool.size
        if not pool.autoscale:
            return size
        cutoff = self._deps.clock.now() - timedelta(seconds=pool.idle_timeout_s)
        idle = [node for node in nodes if node.status == NodeStatus.READY
                and node.live_tasks == 0 and node.idle_since is not None
                and node.idle_since < cutoff]
        busy = len(nodes) - len(idle)
        return max(pool.min_nodes, min(max(size, busy), len(nodes) if not idle else busy))

    def _grow(self, uow: UnitOfWork, pool: Pool, flavor: Flavor, missing: int) -> bool:
        """As many of the missing nodes as the project's quota allows."""
        for count in range(missing, 0, -1):
            try:
                uow.quotas.take(pool.project_id, counted(flavor, count))
            except QuotaExceeded as error:
                last = error
                continue
            nodes = new_nodes(pool, flavor, count, self._deps.ids, uow.now())
            uow.nodes.add_many(nodes)
            if pool.status == PoolStatus.ACTIVE:
                self._marks.pool(uow, pool, "resize")
            return True
        waiting = {"code": "project_quota", "summary": last.detail, **last.meta}
        if pool.waiting != waiting:
            uow.pools.change(pool.id, {"waiting": waiting})
        return False

    def _shrink(self, uow: UnitOfWork, pool: Pool, nodes: list[Node], surplus: int) -> bool:
        """Delete nodes without tasks; each only if it is still without."""
        moved = False
        for node in to_remove(nodes, surplus):
            fresh = uow.nodes.get(node.id, lock=True)
            if fresh is None or fresh.live_tasks or not NODE.allows(fresh.status, "delete"):
                continue
            moved = self._marks.node(uow, fresh, "delete", reason="surplus") or moved
        if moved and pool.autoscale:
            uow.pools.change(pool.id, {"wanted_nodes": len(nodes) - surplus})
        if moved and pool.status == PoolStatus.ACTIVE:
            self._marks.pool(uow, pool, "resize")
        return moved

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
        nodes = [node for node in uow.nodes.find(Where("pool_id", "eq", pool.id))
                 if node.status in IN_SIZE]
        serving = sum(node.status in (NodeStatus.READY, NodeStatus.CORDONED, NodeStatus.DRAINING)
                      for node in nodes)
        broken = [node for node in nodes if node.status == NodeStatus.ERROR]
        settled = serving >= min(fresh.size, max(len(nodes), fresh.min_nodes)) and not broken
        if broken and fresh.status in (PoolStatus.CREATING, PoolStatus.ACTIVE,
                                       PoolStatus.RESIZING):
            if len(broken) + serving >= len(nodes):
                return self._marks.pool(uow, fresh, "fault", {"fault": broken[0].fault})
        elif settled and fresh.status in (PoolStatus.CREATING, PoolStatus.RESIZING,
                                          PoolStatus.ERROR):
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
            tasks = uow.tasks.of_node(node.id)
            uow.tasks.gone([TaskEnd(task.id, failure_class="node_failure",
                                    failure_evidence="its pool was deleted")
                            for task in tasks], uow.now())
            moved = self._marks.node(uow, node, "delete", reason="pool_deleted") or moved
        return moved
