# SPDX-License-Identifier: Apache-2.0
"""Nodes: guarded capacity, leases and fencing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from sqlalchemy import BindParameter, Integer, bindparam, case, or_, select, update

from gpuservice.db.repositories.generic import TableRepository
from gpuservice.db.statements import chunks, grouped, lock_rows
from gpuservice.db.tables import NODES
from gpuservice.domain.inventory import MAX_TASKS_PER_NODE, Node
from gpuservice.domain.ports_store import NodeLoad, Where
from gpuservice.domain.states import NodeStatus

_N = NODES.c
_IDS: BindParameter[str] = bindparam("ids", expanding=True)
_CPUS: BindParameter[int] = bindparam("cpus", type_=Integer)
_MEMORY: BindParameter[int] = bindparam("memory", type_=Integer)
_TASKS: BindParameter[int] = bindparam("tasks", type_=Integer)
_PROJECT: BindParameter[str] = bindparam("project", type_=_N.occupant_project_id.type)
_NOW: BindParameter[datetime] = bindparam("now", type_=_N.idle_since.type)
_TAKE = (
    update(NODES)
    .where(
        _N.id.in_(_IDS),
        _N.status == NodeStatus.READY,
        _N.used_vcpus + _CPUS <= _N.vcpus,
        _N.used_memory_mib + _MEMORY <= _N.memory_mib,
        _N.live_tasks + _TASKS <= MAX_TASKS_PER_NODE,
    )
    .values(
        used_vcpus=_N.used_vcpus + _CPUS,
        used_memory_mib=_N.used_memory_mib + _MEMORY,
        live_tasks=_N.live_tasks + _TASKS,
        occupant_project_id=_PROJECT,
        idle_since=None,
        revision=_N.revision + 1,
    )
)
_TAKE_ALONE = _TAKE.where(or_(_N.occupant_project_id.is_(None), _N.occupant_project_id == _PROJECT))
_EMPTY = _N.live_tasks <= _TASKS
_GIVE_BACK = (
    update(NODES)
    .where(_N.id.in_(_IDS))
    .ordered_values(
        (_N.occupant_project_id, case((_EMPTY, None), else_=_N.occupant_project_id)),
        (_N.idle_since, case((_EMPTY, _NOW), else_=_N.idle_since)),
        (_N.used_vcpus, _N.used_vcpus - _CPUS),
        (_N.used_memory_mib, _N.used_memory_mib - _MEMORY),
        (_N.live_tasks, _N.live_tasks - _TASKS),
        (_N.revision, _N.revision + 1),
    )
)
_EPOCHS = select(_N.id, _N.epoch).where(_N.id.in_(_IDS))
_RENEW = (
    update(NODES)
    .where(_N.id == bindparam("node"), _N.epoch == bindparam("known"))
    .values(last_renewal_at=_NOW, last_seen_at=_NOW, instance=bindparam("process"))
)


def _load(ids: Sequence[str], cpus: int, memory: int, tasks: int) -> dict[str, object]:
    return {"ids": ids, "cpus": cpus, "memory": memory, "tasks": tasks}


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
        statement = _TAKE_ALONE if isolation_node else _TAKE
        for (cpus, memory, tasks), ids in grouped(sums.items()):
            for part in chunks(ids):
                values = {**_load(part, cpus, memory, tasks), "project": project_id}
                if self._c.execute(statement, values).rowcount != len(part):
                    return False
        return True

    def give_back(self, loads: Sequence[NodeLoad]) -> None:
        """Return capacity; a node with nothing left is idle from now on."""
        sums = summed(loads)
        lock_rows(self._c, self.table, sums)
        now = self._stamp()
        for (cpus, memory, tasks), ids in grouped(sums.items()):
            for part in chunks(ids):
                self._c.execute(_GIVE_BACK, {**_load(part, cpus, memory, tasks), "now": now})

    def epochs(self, node_ids: Sequence[str]) -> dict[str, int]:
        """The present epoch of nodes."""
        found: dict[str, int] = {}
        for part in chunks(sorted(set(node_ids))):
            found.update(self._c.execute(_EPOCHS, {"ids": part}).all())
        return found

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
        values = {"node": node_id, "known": epoch, "now": self._stamp(), "process": instance}
        return self._c.execute(_RENEW, values).rowcount == 1

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
