# SPDX-License-Identifier: Apache-2.0
"""Nodes: guarded capacity, leases and fencing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from sqlalchemy import case, or_, update

from gpuservice.db.repositories.generic import TableRepository
from gpuservice.db.statements import chunks, grouped, lock_rows
from gpuservice.domain.inventory import Node
from gpuservice.domain.ports_store import NodeLoad, Where
from gpuservice.domain.states import NodeStatus


def summed(loads: Iterable[NodeLoad]) -> dict[str, tuple[int, int, int]]:
    """(vcpus, memory, tasks) by node."""
    sums: dict[str, tuple[int, int, int]] = {}
    for load in loads:
        cpus, memory, tasks = sums.get(load.node_id, (0, 0, 0))
        sums[load.node_id] = (cpus + load.vcpus, memory + load.memory_mib, tasks + load.tasks)
    return sums


class Nodes(TableRepository[Node]):
    """The nodes. ``stamp`` is the database's time: leases are measured by it alone."""

    _stamp: Callable[[], datetime]

    def take(self, loads: Sequence[NodeLoad], project_id: str, *, isolation_node: bool) -> bool:
        """Take capacity of ready nodes; False leaves the caller to roll back."""
        sums = summed(loads)
        lock_rows(self._c, self.table, sums)
        node = self.table.c
        for (cpus, memory, tasks), ids in grouped(sums.items()):
            for part in chunks(ids):
                statement = update(self.table).where(
                    node.id.in_(part),
                    node.status == NodeStatus.READY,
                    node.used_vcpus + cpus <= node.vcpus,
                    node.used_memory_mib + memory <= node.memory_mib,
                )
                free = or_(
                    node.occupant_project_id.is_(None), node.occupant_project_id == project_id
                )
                if isolation_node:
                    statement = statement.where(free)
                taken = self._c.execute(
                    statement.values(
                        used_vcpus=node.used_vcpus + cpus,
                        used_memory_mib=node.used_memory_mib + memory,
                        live_tasks=node.live_tasks + tasks,
                        occupant_project_id=project_id,
                        idle_since=None,
                        revision=node.revision + 1,
                    )
                ).rowcount
                if taken != len(part):
                    return False
        return True

    def give_back(self, loads: Sequence[NodeLoad]) -> None:
        """Return capacity; a node with nothing left is idle from now on."""
        sums = summed(loads)
        lock_rows(self._c, self.table, sums)
        node = self.table.c
        now = self._stamp()
        for (cpus, memory, tasks), ids in grouped(sums.items()):
            empty = node.live_tasks <= tasks
            for part in chunks(ids):
                self._c.execute(
                    update(self.table)
                    .where(node.id.in_(part))
                    .ordered_values(
                        (
                            node.occupant_project_id,
                            case((empty, None), else_=node.occupant_project_id),
                        ),
                        (node.idle_since, case((empty, now), else_=node.idle_since)),
                        (node.used_vcpus, node.used_vcpus - cpus),
                        (node.used_memory_mib, node.used_memory_mib - memory),
                        (node.live_tasks, node.live_tasks - tasks),
                        (node.revision, node.revision + 1),
                    )
                )

    def bump_revision(self, node_ids: Sequence[str]) -> None:
        """Make the next sync of these nodes send their task list again."""
        for part in chunks(sorted(set(node_ids))):
            self._c.execute(
                update(self.table)
                .where(self.table.c.id.in_(part))
                .values(revision=self.table.c.revision + 1)
            )

    def by_secret(self, secret_hash: str) -> Node | None:
        """The node of an agent's bearer secret: one indexed read."""
        found = self.find(Where("secret_hash", "eq", secret_hash))
        return found[0] if found else None

    def renew(self, node_id: str, epoch: int, instance: str) -> bool:
        """Write the lease's renewal."""
        node = self.table.c
        now = self._stamp()
        return (
            self._c.execute(
                update(self.table)
                .where(node.id == node_id, node.epoch == epoch)
                .values(last_renewal_at=now, last_seen_at=now, instance=instance)
            ).rowcount
            == 1
        )

    def fence(self, node_id: str, epoch: int, cutoff: datetime) -> bool:
        """Raise the epoch of a node that was not heard of since ``cutoff``."""
        node = self.table.c
        return (
            self._c.execute(
                update(self.table)
                .where(node.id == node_id, node.epoch == epoch, node.last_renewal_at < cutoff)
                .values(epoch=node.epoch + 1, revision=node.revision + 1, instance=None)
            ).rowcount
            == 1
        )
