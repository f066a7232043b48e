# SPDX-License-Identifier: Apache-2.0
"""Pools and nodes: what a project wants to have; the conductor makes it so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuservice.domain.context import Caller, cause_of
from gpuservice.domain.errors import Conflict, NotFound
from gpuservice.domain.happenings import happening, status_change
from gpuservice.domain.host_orders import of_host
from gpuservice.domain.inventory import Device, Node, Pool
from gpuservice.domain.isolation import reasons_unproved, unproved
from gpuservice.domain.pools import counted, new_nodes
from gpuservice.domain.ports import Hint
from gpuservice.domain.ports_store import Page, UnitOfWork, Where
from gpuservice.domain.states import (
    NODE,
    NODE_COUNTED,
    POOL,
    POOL_COUNTED,
    NodeStatus,
    PoolStatus,
)
from gpuservice.services.catalogue import usable
from gpuservice.services.deps import Deps
from gpuservice.services.idempotency import Once
from gpuservice.services.pool_rules import check_admin, check_bounds, check_drivers, check_unused
from gpuservice.services.visibility import by_name_or_id, check_generation, owned


class Pools:
    """Pools."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    def page(self, caller: Caller, page: Page, count: bool) -> tuple[list[Pool], int | None]:
        """One page, deleted ones left out."""
        page = Page(
            (*page.where, Where("status", "in", POOL_COUNTED)),
            page.sort,
            page.limit,
            page.marker,
        )

        def work(uow: UnitOfWork) -> tuple[list[Pool], int | None]:
            return uow.pools.page(page), uow.pools.count(*page.where) if count else None

        return self._deps.store.read(work)

    def show(self, caller: Caller, ident: str) -> Pool:
        """One."""
        return self._deps.store.read(lambda uow: _pool(uow, caller, ident))

    def create(self, caller: Caller, body: Mapping[str, Any], once: Once) -> Pool:
        """Make one with its first nodes; quota for all of it is taken here or nothing is."""
        check_admin(caller, body)

        def work(uow: UnitOfWork) -> Pool:
            once.begin(uow)
            flavor = by_name_or_id(
                uow.flavors,
                body["flavor"],
                lambda row: usable(caller, row),
                "/pool/flavor",
                "flavor",
            )
            pool = self._row(uow, caller, body, flavor.id)
            amounts = {"pools": 1, **counted(flavor, pool.size)}
            uow.quotas.take(caller.project_id, amounts)
            uow.pools.add(pool)
            uow.nodes.add_many(new_nodes(pool, flavor, pool.size, self._deps.ids, uow.now()))
            uow.events.add(
                happening(
                    self._deps.ids,
                    uow.now(),
                    cause_of(caller),
                    "pool.create",
                    "pool",
                    pool.id,
                    project_id=pool.project_id,
                    detail={"nodes": pool.size},
                )
            )
            once.keep(uow, pool)
            return pool

        pool = self._deps.store.write(work)
        self._deps.hints.send(Hint("pools", (pool.id,)))
        return pool

    def _row(
        self, uow: UnitOfWork, caller: Caller, body: Mapping[str, Any], flavor_id: str
    ) -> Pool:
        check_drivers(body)
        least = body.get("min_nodes", 1)
        most = body.get("max_nodes", max(least, 1))
        check_bounds(least, most, body.get("target_nodes", least))
        plain = (
            "autoscale",
            "idle_timeout_s",
            "on_shortage",
            "image",
            "key_name",
            "engine",
            "engine_options",
            "isolation",
            "reservation",
        )
        return Pool(
            id=self._deps.ids.new(),
            created_at=uow.now(),
            updated_at=uow.now(),
            project_id=caller.project_id,
            name=body["name"],
            flavor_id=flavor_id,
            min_nodes=least,
            max_nodes=most,
            target_nodes=body.get("target_nodes", least),
            networks=tuple(body.get("networks", ())),
            shared_with=tuple(body.get("shared_with", ())),
            status=PoolStatus.CREATING,
            name_key=f"{caller.project_id}/{body['name']}",
            **{name: body[name] for name in plain if name in body},
        )

    def change(
        self, caller: Caller, ident: str, patch: Mapping[str, Any], generation: int | None
    ) -> Pool:
        """Change sizes, idle time, sharing."""
        check_admin(caller, patch)

        check_drivers(patch)

        def work(uow: UnitOfWork) -> Pool:
            pool = _pool(uow, caller, ident, lock=True)
            check_generation(pool, generation)
            if pool.status == PoolStatus.DELETING:
                raise Conflict("The pool is being deleted.")
            values: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value
                for name, value in patch.items()
            }
            least = values.get("min_nodes", pool.min_nodes)
            most = values.get("max_nodes", pool.max_nodes)
            autoscale = values.get("autoscale", pool.autoscale)
            if "target_nodes" in values and autoscale and least != most:
                raise Conflict(
                    "target_nodes of an autoscaled pool is the scheduler's.",
                    pointer="/pool/target_nodes",
                )
            target = values.get("target_nodes", max(least, min(most, pool.target_nodes)))
            check_bounds(least, most, target)
            values["target_nodes"] = target
            if "name" in values:
                values["name_key"] = f"{pool.project_id}/{values['name']}"
            uow.pools.change(ident, values, edit=True)
            uow.events.add(
                happening(
                    self._deps.ids,
                    uow.now(),
                    cause_of(caller),
                    "pool.change",
                    "pool",
                    ident,
                    project_id=pool.project_id,
                    detail={"fields": sorted(patch)},
                )
            )
            return _pool(uow, caller, ident)

        pool = self._deps.store.write(work)
        self._deps.hints.send(Hint("pools", (ident,)))
        return pool

    def delete(self, caller: Caller, ident: str, generation: int | None) -> Pool:
        """Ask for its end: jobs on its nodes are requeued, then the nodes go.

        :raises Conflict: while a queue names it: its jobs would wait for ever.
        """

        def work(uow: UnitOfWork) -> Pool:
            pool = _pool(uow, caller, ident, lock=True)
            check_generation(pool, generation)
            if pool.status == PoolStatus.DELETING:
                return pool
            check_unused(uow, pool)
            status = POOL.after(pool.status, "delete")
            uow.pools.change(ident, {"status": status})
            uow.events.add(
                status_change(
                    self._deps.ids,
                    uow.now(),
                    cause_of(caller),
                    "pool",
                    "delete",
                    ident,
                    pool.status,
                    status,
                    project_id=pool.project_id,
                )
            )
            return _pool(uow, caller, ident)

        pool = self._deps.store.write(work)
        self._deps.hints.send(Hint("pools", (ident,)))
        return pool

    def explain(self, caller: Caller, ident: str) -> dict[str, Any]:
        """Why it is not what it should be."""

        def work(uow: UnitOfWork) -> dict[str, Any]:
            pool = _pool(uow, caller, ident)
            nodes = uow.nodes.find(
                Where("pool_id", "eq", ident), Where("status", "in", NODE_COUNTED)
            )
            statuses: dict[str, int] = {}
            for node in nodes:
                statuses[node.status] = statuses.get(node.status, 0) + 1
            return {
                "pool_id": pool.id,
                "status": pool.status,
                "wanted_nodes": pool.size,
                "nodes": statuses,
                "waiting": pool.waiting,
                "fault": pool.fault,
                "isolation": _isolation(pool, nodes),
            }

        return self._deps.store.read(work)


def _isolation(pool: Pool, nodes: Sequence[Node]) -> dict[str, Any]:
    """Whether the pool's nodes keep tasks as far apart as it asks. Those that do not are given to
    one project at a time."""
    told = [node for node in nodes if node.capabilities]
    weaker = [node for node in told if unproved(node.capabilities)]
    if pool.isolation != "device":
        weaker = []
    return {
        "wanted": pool.isolation,
        "one_project_at_a_time": [
            {"node_id": node.id, "unproved": list(reasons_unproved(node.capabilities))}
            for node in weaker[:100]
        ],
    }


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node with its devices."""

    node: Node
    devices: tuple[Device, ...]


class Nodes:
    """Nodes of pools."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    def page(self, caller: Caller, page: Page, count: bool) -> tuple[list[NodeView], int | None]:
        """One page, deleted ones left out, with devices (two queries)."""
        page = Page(
            (*page.where, Where("status", "in", NODE_COUNTED)),
            page.sort,
            page.limit,
            page.marker,
        )

        def work(uow: UnitOfWork) -> tuple[list[NodeView], int | None]:
            total = uow.nodes.count(*page.where) if count else None
            return _with_devices(uow, uow.nodes.page(page)), total

        return self._deps.store.read(work)

    def show(self, caller: Caller, ident: str) -> NodeView:
        """One."""
        return self._deps.store.read(lambda uow: _with_devices(uow, [_node(uow, caller, ident)])[0])

    def act(self, caller: Caller, ident: str, action: str, reason: str | None = None) -> NodeView:
        """cordon, uncordon, drain or repair; what already holds is fine, but is from then on
        the caller's wish and no longer the host's."""

        def work(uow: UnitOfWork) -> NodeView:
            node = _node(uow, caller, ident, lock=True)
            if _holds(node, action):
                if reason is not None or of_host(node):
                    uow.nodes.change(ident, {"status_reason": reason}, edit=True)
            else:
                status = NODE.after(node.status, action)
                values: dict[str, Any] = {
                    "status": status,
                    "status_changed_at": uow.now(),
                    "status_reason": reason,
                }
                if action == "uncordon":
                    values["drain_deadline_at"] = None
                uow.nodes.change(ident, values, edit=True)
                uow.events.add(
                    status_change(
                        self._deps.ids,
                        uow.now(),
                        cause_of(caller),
                        "node",
                        action,
                        ident,
                        node.status,
                        status,
                        project_id=node.project_id,
                        detail={} if reason is None else {"message": reason},
                    )
                )
            return _with_devices(uow, [_node(uow, caller, ident)])[0]

        view = self._deps.store.write(work)
        self._deps.hints.send(Hint("pools", (view.node.pool_id,)))
        self._deps.hints.send(Hint("jobs"))
        return view


def _holds(node: Node, action: str) -> bool:
    reached = {
        "cordon": (NodeStatus.CORDONED,),
        "uncordon": (NodeStatus.READY,),
        "drain": (NodeStatus.DRAINING,),
        "repair": (NodeStatus.REPAIRING,),
    }
    return node.status in reached[action]


def _pool(uow: UnitOfWork, caller: Caller, ident: str, *, lock: bool = False) -> Pool:
    pool = owned(uow.pools, caller, ident, "pool", lock=lock)
    if pool.status == PoolStatus.DELETED:
        raise NotFound.of("pool", ident)
    return pool


def _node(uow: UnitOfWork, caller: Caller, ident: str, *, lock: bool = False) -> Node:
    node = owned(uow.nodes, caller, ident, "node", lock=lock)
    if node.status == NodeStatus.DELETED:
        raise NotFound.of("node", ident)
    return node


def _with_devices(uow: UnitOfWork, nodes: list[Node]) -> list[NodeView]:
    if not nodes:
        return []
    by_node: dict[str, list[Device]] = {node.id: [] for node in nodes}
    for device in uow.devices.find(
        Where("node_id", "in", list(by_node)), order=(("ordinal", "asc"),)
    ):
        by_node[str(device.node_id)].append(device)
    return [NodeView(node, tuple(by_node[node.id])) for node in nodes]
