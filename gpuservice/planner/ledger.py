# SPDX-License-Identifier: Apache-2.0
"""The planner's working state: free capacity as arrays, taken and undone step by step.

``N`` nodes with at most ``D`` devices each, the nodes of a pool one after another. Absent and
unhealthy devices have no free milli. ``occupant`` arrays hold project numbers, ``NOBODY`` for
none, ``CLOSED`` for "no one may".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuservice.planner.snapshot import NodeState, TaskPlacement
from gpuservice.planner.stacks import Stacks

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

#: Live tasks of a node that never gets full of them.
_FAR_FROM_FULL = -(1 << 30)

NOBODY = -1
CLOSED = -2

#: Changes remembered; whoever is further behind counts everything anew.
_JOURNAL = 4096

#: Nodes that are looked at one by one before all are compared at once.
FEW = 8

#: A row with its devices of which anything is free: (column, free milli, occupant).
FreeOn = tuple[int, list[tuple[int, int, int]]]


class Numbering:
    """Strings as numbers, given in order of first sight (None stays ``NOBODY``)."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def of(self, name: str | None) -> int:
        """The number of a name."""
        if name is None:
            return NOBODY
        return self._numbers.setdefault(name, len(self._numbers))

    def __len__(self) -> int:
        return len(self._numbers)


@dataclass(slots=True)
class Layout:
    """What does not change during a pass: who is where, and what each device is."""

    nodes: tuple[NodeState, ...]  # by row
    node_row: dict[str, int]
    device_cell: dict[str, tuple[int, int]]
    projects: Numbering
    types: Numbering
    device_type: Ints  # (N, D)
    device_memory: Ints  # (N, D)
    device_group: Ints  # (N, D), numbered per node
    healthy: Bools  # (N, D)
    pool: list[str]  # by row
    pool_rows: dict[str, slice]
    domains: dict[str, Ints]  # level -> (N,) number of the node's domain, NOBODY for none
    labelled: dict[tuple[str, str], bool]  # (pool, level) -> whether any of its nodes has one
    isolation_node: Bools  # (N,)
    alone: dict[str, bool]  # pool -> whether any of its nodes holds one project at a time
    most_gpus: int  # of one node
    # The same for single nodes, which are looked at one by one.
    devices: list[list[str]]
    groups: list[list[int]]
    kinds: list[list[tuple[int, int]]]  # (type, memory) of each device
    wholes: list[list[tuple[str, int]]]  # each device as the whole of it is taken
    one_group: list[bool]  # whether all devices are in one link group (or none in any)
    #: What bookings remember of promises: id of the tasks -> (tasks, holds).
    promised: dict[int, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Journal:
    """Rows that changed, by pool: readers remember how far they read."""

    rows: list[int] = field(default_factory=list)
    base: int = 0

    def add(self, row: int) -> None:
        """A row changed."""
        self.rows.append(row)
        if len(self.rows) > 2 * _JOURNAL:
            del self.rows[:_JOURNAL]
            self.base += _JOURNAL

    @property
    def end(self) -> int:
        """The position behind the last change."""
        return self.base + len(self.rows)

    def since(self, position: int) -> list[int] | None:
        """The rows changed since a position; None: too long ago."""
        return None if position < self.base else self.rows[position - self.base :]


@dataclass(slots=True)
class _Before:
    """A row as it was."""

    row: int
    free: Ints
    cpus: int
    memory: int
    occupant: int
    tasks: int
    device_occupant: Ints


@dataclass(slots=True)
class Ledger:
    """Free capacity of one moment."""

    layout: Layout
    free: Ints  # (N, D) milli
    cpus: Ints  # (N,)
    memory: Ints  # (N,)
    ready: Bools  # (N,)
    occupant: Ints  # (N,) project number
    tasks: Ints  # (N,) live tasks
    device_occupant: Ints  # (N, D)
    whole: Ints  # (N,) devices that are wholly free
    journals: dict[str, Journal]
    most: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    _with_free: dict[str, tuple[int, list[FreeOn] | None]] = field(default_factory=dict)
    _most_beside: dict[str, tuple[int, Ints]] = field(default_factory=dict)
    _stacks: dict[str, Stacks] = field(default_factory=dict)
    undo_log: list[_Before] | None = None

    def copy(self) -> Ledger:
        """A ledger to try things on."""
        return Ledger(
            self.layout,
            self.free.copy(),
            self.cpus.copy(),
            self.memory.copy(),
            self.ready,
            self.occupant.copy(),
            self.tasks.copy(),
            self.device_occupant.copy(),
            self.whole.copy(),
            {pool: Journal() for pool in self.layout.pool_rows},
        )

    def boundless(self) -> Ledger:
        """The same with room for any number of tasks on each node, as far as their number goes."""
        other = self.copy()
        other.tasks = np.full_like(self.tasks, _FAR_FROM_FULL)
        return other

    def most_free(self, pool: str) -> tuple[int, int]:
        """(the most wholly free devices of a node of the pool, the most free milli of a device):
        what is larger fits nowhere, without looking at nodes."""
        end = self.journals[pool].end
        known = self.most.get(pool)
        if known is None or known[0] != end:
            rows = self.layout.pool_rows[pool]
            known = self.most[pool] = (
                end, int(self.whole[rows].max(initial=0)), int(self.free[rows].max(initial=0)),
            )  # fmt: skip
        return known[1:]

    def with_free(self, pool: str) -> list[FreeOn] | None:
        """The pool's nodes on which any of a device is free, and what is free there of which;
        None where these are too many to be looked at one by one."""
        end = self.journals[pool].end
        known = self._with_free.get(pool)
        if known is None or known[0] != end:
            rows = self.layout.pool_rows[pool]
            found = np.flatnonzero(self.free[rows].max(axis=1, initial=0) > 0) + rows.start
            there = [self._free_on(row) for row in found.tolist()] if len(found) <= FEW else None
            known = self._with_free[pool] = (end, there)
        return known[1]

    def most_beside(self, pool: str) -> Ints:
        """(projects + 1,): the most free milli of a device that the tasks of each project are on,
        by number and one (the first: nobody's)."""
        end = self.journals[pool].end
        known = self._most_beside.get(pool)
        if known is None or known[0] != end:
            rows = self.layout.pool_rows[pool]
            free, occupant = self.free[rows], self.device_occupant[rows]
            there = (free > 0) & (occupant != CLOSED)
            most = np.zeros(len(self.layout.projects) + 1, dtype=np.int64)
            np.maximum.at(most, occupant[there] + 1, free[there])
            known = self._most_beside[pool] = (end, most)
        return known[1]

    def _free_on(self, row: int) -> FreeOn:
        both = zip(self.free[row].tolist(), self.device_occupant[row].tolist(), strict=True)
        cells = [(column, *cell) for column, cell in enumerate(both) if cell[0] > 0]
        return row, cells

    def most_known(self, pool: str) -> tuple[int, int] | None:
        """The same where nothing has changed since it was last asked for."""
        known = self.most.get(pool)
        return known[1:] if known is not None and known[0] == self.journals[pool].end else None

    def stacks(self, pool: str) -> Stacks:
        """The nodes of a pool by how many of their devices are wholly free."""
        if pool not in self._stacks:
            rows, width = self.layout.pool_rows[pool], self.layout.most_gpus
            self._stacks[pool] = Stacks(rows.start, self.whole[rows].tolist(), width)
        return self._stacks[pool]

    def begin(self) -> None:
        """From now on changes can be undone."""
        self.undo_log = []

    def undo(self) -> None:
        """Undo every change since :meth:`begin`, and go on without remembering."""
        log, self.undo_log = self.undo_log or [], None
        # Of what changed several times, the first state is the one to go back to.
        for row, was in {was.row: was for was in reversed(log)}.items():
            self.free[row], self.device_occupant[row] = was.free, was.device_occupant
            self.cpus[row], self.memory[row] = was.cpus, was.memory
            self.occupant[row], self.tasks[row] = was.occupant, was.tasks
            self._changed(row)

    def undo_to(self, mark: int) -> None:
        """Undo back to ``mark`` (:attr:`mark`), and go on remembering."""
        log = self.undo_log
        assert log is not None
        self.undo_log = log[mark:]
        self.undo()
        self.undo_log = log[:mark]

    @property
    def mark(self) -> int:
        """Where :meth:`undo_to` may go back to."""
        return len(self.undo_log or ())

    def take(self, tasks: Iterable[TaskPlacement], project: int) -> None:
        """Take what a gang takes. It must fit: placement makes sure."""
        layout = self.layout
        for task in tasks:
            row = layout.node_row[task.node_id]
            self._remember(row)
            self.cpus[row] -= task.vcpus
            self.memory[row] -= task.memory_mib
            self.tasks[row] += 1
            self.occupant[row] = project
            whole = self.whole.item(row)
            for device_id, milli in task.devices:
                cell = layout.device_cell[device_id]
                free = self.free.item(cell)
                whole -= free >= 1000 > free - milli
                self.free[cell] = free - milli
                self.device_occupant[cell] = project
            self._now_free(row, whole)

    def give(self, tasks: Iterable[TaskPlacement]) -> None:
        """Give back what a gang took; unhealthy devices stay unusable."""
        layout = self.layout
        for task in tasks:
            row = layout.node_row.get(task.node_id)
            if row is None:
                continue
            self._remember(row)
            self.cpus[row] += task.vcpus
            self.memory[row] += task.memory_mib
            self.tasks[row] -= 1
            if self.tasks[row] <= 0:
                self.occupant[row] = NOBODY
            for device_id, milli in task.devices:
                cell = layout.device_cell.get(device_id)
                if cell is None or not layout.healthy[cell]:
                    continue
                self.free[cell] += milli
                if self.free[cell] >= 1000:
                    self.device_occupant[cell] = NOBODY
            self._changed(row)

    def set_row(self, row: int, node: NodeState) -> None:
        """A node is as it says now."""
        projects = self.layout.projects
        for column, device in enumerate(node.devices):
            self.free[row, column] = 1000 - device.used_milli if device.healthy else 0
            self.device_occupant[row, column] = projects.of(device.occupant)
        self.cpus[row] = node.vcpus - node.used_vcpus
        self.memory[row] = node.memory_mib - node.used_memory_mib
        self.tasks[row] = node.live_tasks
        self.occupant[row] = projects.of(node.occupant)
        self.ready[row] = node.ready
        self._changed(row)

    def set_ready(self, row: int, ready: bool) -> None:
        """A node went away or came back."""
        self.ready[row] = ready
        self._changed(row)

    def _remember(self, row: int) -> None:
        if self.undo_log is not None:
            self.undo_log.append(
                _Before(
                    row,
                    self.free[row].copy(),
                    self.cpus.item(row),
                    self.memory.item(row),
                    self.occupant.item(row),
                    self.tasks.item(row),
                    self.device_occupant[row].copy(),
                )
            )

    def _changed(self, row: int) -> None:
        self._now_free(row, int(np.count_nonzero(self.free[row] >= 1000)))

    def _now_free(self, row: int, whole: int) -> None:
        """So many devices of a row are wholly free now."""
        pool = self.layout.pool[row]
        self.whole[row] = whole
        self.journals[pool].add(row)
        if pool in self._stacks:
            self._stacks[pool].move(row, whole)
