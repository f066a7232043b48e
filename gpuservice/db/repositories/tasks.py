# SPDX-License-Identifier: Apache-2.0
"""Tasks and allocations: what ends frees what it held, in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import BindParameter, Connection, bindparam, select, update

from gpuservice.db.repositories.generic import TableRepository
from gpuservice.db.statements import chunks
from gpuservice.db.tables import (
    ALLOCATION_ROWS,
    ALLOCATIONS,
    ATTEMPTS,
    TASK_ROWS,
    TASKS,
)
from gpuservice.domain.ports_store import NodeLoad, Share, TaskEnd, Where
from gpuservice.domain.states import TaskStatus
from gpuservice.domain.work import Allocation, Task

if TYPE_CHECKING:
    from gpuservice.db.repositories.devices import Devices
    from gpuservice.db.repositories.nodes import Nodes
    from gpuservice.db.repositories.quotas import Quotas

#: Named one by one, so that the index on (node, status) leaves a node's history untouched.
TASK_LIVE = tuple(status for status in TaskStatus if status != TaskStatus.GONE)

_END_FIELDS = tuple(one.name for one in fields(TaskEnd) if one.name != "task_id")

_IDS: BindParameter[str] = bindparam("ids", expanding=True)
_LIVE = (
    TASK_ROWS.selection.select_from(ATTEMPTS.join(TASKS, TASKS.c.attempt_id == ATTEMPTS.c.id))
    .where(TASKS.c.id.in_(_IDS), TASKS.c.status.in_(TASK_LIVE))
    .order_by(ATTEMPTS.c.id, TASKS.c.id)
    .with_for_update(of=[ATTEMPTS, TASKS])
)
_HELD = select(ALLOCATIONS.c.device_id, ALLOCATIONS.c.milli).where(
    ALLOCATIONS.c.task_id.in_(_IDS), ALLOCATIONS.c.held == 1
)
_NOTICE = update(ATTEMPTS).where(ATTEMPTS.c.id.in_(_IDS)).values(attention=True)
_RELEASE = (
    update(ALLOCATIONS)
    .where(ALLOCATIONS.c.task_id.in_(_IDS), ALLOCATIONS.c.held == 1)
    .values(released_at=bindparam("now"), held=None)
)


class Allocations(TableRepository[Allocation]):
    """Shares of devices held by tasks. ``held`` (1 or null) marks those not released."""

    def __init__(self, connection: Connection, stamp: Any) -> None:
        super().__init__(connection, ALLOCATION_ROWS, stamp)

    def _dump(self, item: Allocation) -> dict[str, Any]:
        return {**super()._dump(item), "held": 1 if item.released_at is None else None}

    def held(self) -> list[Allocation]:
        """All that are not released."""
        return self._load(self._select().where(ALLOCATIONS.c.held == 1))


class Tasks(TableRepository[Task]):
    """The tasks."""

    def __init__(
        self, connection: Connection, stamp: Any, devices: Devices, nodes: Nodes, quotas: Quotas
    ) -> None:
        super().__init__(connection, TASK_ROWS, stamp)
        self._devices = devices
        self._nodes = nodes
        self._quotas = quotas

    def of_node(self, node_id: str) -> list[Task]:
        """All tasks of a node that are not gone."""
        return self.find(
            Where("node_id", "eq", node_id),
            Where("status", "in", TASK_LIVE),
            order=(("id", "asc"),),
        )

    def of_attempts(self, attempt_ids: Sequence[str]) -> list[Task]:
        """Every task of these attempts."""
        found: list[Task] = []
        for part in chunks(sorted(set(attempt_ids))):
            found.extend(
                self.find(
                    Where("attempt_id", "in", part), order=(("attempt_id", "asc"), ("rank", "asc"))
                )
            )
        return found

    def gone(self, ends: Sequence[TaskEnd], now: datetime) -> int:
        """Mark tasks gone and free what they held.

        Attempts and tasks are locked before it is known which tasks are still there: whoever
        comes second for a task finds it gone and frees nothing.
        """
        by_id = {end.task_id: end for end in ends}
        tasks = self._lock_live(by_id)
        if not tasks:
            return 0
        ids = [task.id for task in tasks]
        self._free(tasks)
        for part in chunks(sorted({task.attempt_id for task in tasks})):
            self._c.execute(_NOTICE, {"ids": part})
        self.change_each([(task.id, _ended(task, by_id[task.id], now)) for task in tasks])
        for part in chunks(ids):
            self._c.execute(_RELEASE, {"ids": part, "now": now})
        return len(ids)

    def _lock_live(self, task_ids: Iterable[str]) -> list[Task]:
        """Those of the tasks that are not gone, locked after their attempts."""
        found: list[Task] = []
        for part in chunks(sorted(set(task_ids))):
            rows = self._c.execute(_LIVE, {"ids": part})
            found.extend(self.mapper.load(row) for row in rows)
        return found

    def _held_by(self, task_ids: Sequence[str]) -> list[Share]:
        shares: list[Share] = []
        for part in chunks(task_ids):
            rows = self._c.execute(_HELD, {"ids": part})
            shares.extend(Share(device_id, milli) for device_id, milli in rows)
        return shares

    def _free(self, tasks: Sequence[Task]) -> None:
        for project_id, amounts in _counted(tasks):
            self._quotas.give_back(project_id, amounts)
        shares = self._held_by([task.id for task in tasks])
        if shares:
            self._devices.give_back(shares)
        self._nodes.give_back(
            [NodeLoad(task.node_id, task.vcpus, task.memory_mib) for task in tasks]
        )


def _counted(tasks: Sequence[Task]) -> list[tuple[str, dict[str, int]]]:
    """What the tasks count of their projects' quota, by project."""
    counted: dict[str, dict[str, int]] = {}
    for task in tasks:
        amounts = counted.setdefault(task.project_id, {})
        for name, amount in task.counted_gpus.items():
            amounts[name] = amounts.get(name, 0) + amount
    return sorted((project, amounts) for project, amounts in counted.items() if amounts)


def _ended(task: Task, end: TaskEnd, now: datetime) -> Mapping[str, Any]:
    """The columns of a task that went; a time claimed before stands if none is claimed now."""
    told = {name: getattr(end, name) for name in _END_FIELDS}
    told["claimed_started_at"] = end.claimed_started_at or task.claimed_started_at
    told["claimed_ended_at"] = end.claimed_ended_at or task.claimed_ended_at
    return {**told, "status": TaskStatus.GONE, "gone_at": now}
