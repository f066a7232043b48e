# SPDX-License-Identifier: Apache-2.0
"""Guarded status changes of nodes and pools, each with its event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuservice.conductor.deps import CAUSE, Deps
from gpuservice.domain.happenings import status_change
from gpuservice.domain.inventory import Node, Pool
from gpuservice.domain.ports_store import UnitOfWork, Where
from gpuservice.domain.states import NODE, POOL


class Marks:
    """Moves nodes and pools along their tables; False when another process was faster."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    def node(
        self,
        uow: UnitOfWork,
        node: Node,
        event: str,
        values: Mapping[str, Any] | None = None,
        reason: str | None = None,
        message: str | None = None,
    ) -> bool:
        """Apply an event to a node that is still as it was read (status and epoch)."""
        status = NODE.after(node.status, event)
        done = uow.nodes.change(
            node.id,
            {"status": status, "status_changed_at": uow.now(), **(values or {})},
            Where("status", "eq", node.status),
            Where("epoch", "eq", node.epoch),
        )
        if done:
            uow.events.add(
                status_change(
                    self._deps.ids,
                    uow.now(),
                    CAUSE,
                    "node",
                    event,
                    node.id,
                    node.status,
                    status,
                    project_id=node.project_id,
                    reason=reason,
                    detail={} if message is None else {"message": message},
                )
            )
        return done

    def pool(
        self,
        uow: UnitOfWork,
        pool: Pool,
        event: str,
        values: Mapping[str, Any] | None = None,
        reason: str | None = None,
    ) -> bool:
        """Apply an event to a pool that is still in the status it was read in."""
        status = POOL.after(pool.status, event)
        done = uow.pools.change(
            pool.id, {"status": status, **(values or {})}, Where("status", "eq", pool.status)
        )
        if done:
            uow.events.add(
                status_change(
                    self._deps.ids,
                    uow.now(),
                    CAUSE,
                    "pool",
                    event,
                    pool.id,
                    pool.status,
                    status,
                    project_id=pool.project_id,
                    reason=reason,
                )
            )
        return done
