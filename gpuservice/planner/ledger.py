# SPDX-License-Identifier: Apache-2.0
"""The planner's working state: free capacity as arrays, taken and undone step by step.

``N`` nodes with at most ``D`` devices each. Absent and unhealthy devices have no free milli.
``occupant`` arrays hold project numbers, ``NOBODY`` for none, ``CLOSED`` for "no one may".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuservice.planner.snapshot import NodeState, Snapshot, TaskPlacement

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

#: Live tasks of a node that never gets full of them.
_FAR_FROM_FULL = -(1 << 30)

NOBODY = -1
CLOSED = -2


class Numbering:
    """Strings as numbers, given in order of first sight (None stays ``NOBODY``)."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def of(self, name: str | None) -> int:
        """The number of a name."""
        if name is None:
            return NOBODY
        return self._numbers.setdefault(name, len(self._numbers))


@dataclass(slots=True)
class Layout:
    """What does not change during a pass: who is where, and what each device is."""

    nodes: tuple[NodeState, ...]
    node_row: dict[str, int]
    device_cell: dict[str, tuple[int, int]]
    projects: Numbering
    types: Numbering
    device_type: Ints  # (N, D)
    device_memory: Ints  # (N, D)
    device_group: Ints  # (N, D), numbered per node
    pool: list[str]  # by node
    pool_nodes: dict[str, Bools]  # pool -> (N,) which nodes are its
    domains: dict[str, Ints]  # level -> (N,) number of the node's domain, NOBODY for none
    isolation_node: Bools  # (N,)


@dataclass(frozen=True, slots=True)
class Held:
    """What gangs hold and until when, as columns: one entry a task, one a share of a device."""

    task_row: Ints
    task_cpus: Ints
    task_memory: Ints
    task_end: Floats
    share_row: Ints
    share_column: Ints
    share_milli: Ints
    share_end: Floats

    @classmethod
    def of(cls, layout: Layout, gangs: Iterable[tuple[float, Iterable[TaskPlacement]]]) -> Held:
        """The columns of (end, tasks); tasks on nodes that are not there hold nothing here."""
        tasks: list[tuple[int, int, int, float]] = []
        shares: list[tuple[int, int, int, float]] = []
        for end, placed in gangs:
            for task in placed:
                row = layout.node_row.get(task.node_id)
                if row is None:
                    continue
                tasks.append((row, task.vcpus, task.memory_mib, end))
                for device_id, milli in task.devices:
                    cell = layout.device_cell.get(device_id)
                    if cell is not None:
                        shares.append((*cell, milli, end))
        return cls(*_columns(tasks), *_columns(shares))


def _columns(rows: list[tuple[int, int, int, float]]) -> tuple[Ints, Ints, Ints, Floats]:
    one, two, three, ends = zip(*rows, strict=True) if rows else ((), (), (), ())
    return (
        np.array(one, dtype=np.int64),
        np.array(two, dtype=np.int64),
        np.array(three, dtype=np.int64),
        np.array(ends, dtype=np.float64),
    )


@dataclass(slots=True)
class Ledger:
    """Free capacity now, or at some later moment."""

    layout: Layout
    free: Ints  # (N, D) milli
    cpus: Ints  # (N,)
    memory: Ints  # (N,)
    ready: Bools  # (N,)
    occupant: Ints  # (N,) project number
    tasks: Ints  # (N,) live tasks
    device_occupant: Ints  # (N, D)

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
        )

    def boundless(self) -> Ledger:
        """The same with room for any number of tasks on each node, as far as their number goes."""
        other = self.copy()
        other.tasks = np.full_like(self.tasks, _FAR_FROM_FULL)
        return other

    def checkpoint(self) -> Ledger:
        """What :meth:`rollback` goes back to."""
        return self.copy()

    def rollback(self, to: Ledger) -> None:
        """Undo everything since a checkpoint."""
        self.free, self.cpus, self.memory = to.free, to.cpus, to.memory
        self.occupant, self.tasks = to.occupant, to.tasks
        self.device_occupant = to.device_occupant

    def take(self, tasks: Iterable[TaskPlacement], project: int) -> None:
        """Take what a gang takes. It must fit: placement makes sure."""
        for task in tasks:
            row = self.layout.node_row[task.node_id]
            self.cpus[row] -= task.vcpus
            self.memory[row] -= task.memory_mib
            self.tasks[row] += 1
            self.occupant[row] = project
            for device_id, milli in task.devices:
                cell = self.layout.device_cell[device_id]
                self.free[cell] -= milli
                self.device_occupant[cell] = project

    def release(self, held: Held, until: float, healthy: Bools) -> None:
        """Give back what is held no longer than ``until``; unhealthy devices stay unusable."""
        tasks = held.task_end <= until
        rows = held.task_row[tasks]
        np.add.at(self.cpus, rows, held.task_cpus[tasks])
        np.add.at(self.memory, rows, held.task_memory[tasks])
        np.subtract.at(self.tasks, rows, 1)
        self.occupant[rows[self.tasks[rows] <= 0]] = NOBODY
        shares = (held.share_end <= until) & healthy[held.share_row, held.share_column]
        cells = held.share_row[shares], held.share_column[shares]
        np.add.at(self.free, cells, held.share_milli[shares])
        whole = self.free[cells] >= 1000
        self.device_occupant[cells[0][whole], cells[1][whole]] = NOBODY

    def least(self, other: Ledger) -> Ledger:
        """What is free in both: places that hold at two moments."""
        return Ledger(
            self.layout,
            np.minimum(self.free, other.free),
            np.minimum(self.cpus, other.cpus),
            np.minimum(self.memory, other.memory),
            self.ready & other.ready,
            _both(self.occupant, other.occupant),
            np.maximum(self.tasks, other.tasks),
            _both(self.device_occupant, other.device_occupant),
        )


def _both(one: Ints, other: Ints) -> Ints:
    merged = np.where(one == NOBODY, other, one)
    clash = (one != NOBODY) & (other != NOBODY) & (one != other)
    merged[clash] = CLOSED
    return merged


def healthy_cells(snapshot: Snapshot, layout: Layout) -> Bools:
    """(N, D): which devices exist and are healthy."""
    cells = np.zeros(layout.device_type.shape, dtype=np.bool_)
    for row, node in enumerate(snapshot.nodes):
        for column, device in enumerate(node.devices):
            cells[row, column] = device.healthy
    return cells


def _pool_nodes(nodes: Sequence[NodeState]) -> dict[str, Bools]:
    members: dict[str, Bools] = {}
    for row, node in enumerate(nodes):
        if node.pool_id not in members:
            members[node.pool_id] = np.zeros(len(nodes), dtype=np.bool_)
        members[node.pool_id][row] = True
    return members


def _grid(rows: int, width: int, fill: int = 0) -> Ints:
    return np.full((rows, width), fill, dtype=np.int64)


def _levels(nodes: Sequence[NodeState]) -> dict[str, Ints]:
    domains: dict[str, Ints] = {"node": np.arange(len(nodes), dtype=np.int64)}
    for level in ("link_domain", "rack", "zone"):
        numbers = Numbering()
        domains[level] = np.array(
            [numbers.of(getattr(node, level)) for node in nodes], dtype=np.int64
        )
    return domains


def build(snapshot: Snapshot) -> Ledger:
    """The ledger of a snapshot's moment."""
    nodes = snapshot.nodes
    rows, width = len(nodes), max((len(node.devices) for node in nodes), default=0)
    projects, types = Numbering(), Numbering()
    layout = Layout(
        nodes=nodes,
        node_row={node.id: row for row, node in enumerate(nodes)},
        device_cell={},
        projects=projects,
        types=types,
        device_type=_grid(rows, width, NOBODY),
        device_memory=_grid(rows, width),
        device_group=_grid(rows, width, NOBODY),
        pool=[node.pool_id for node in nodes],
        pool_nodes=_pool_nodes(nodes),
        domains=_levels(nodes),
        isolation_node=np.array([node.isolation_node for node in nodes], dtype=np.bool_),
    )
    free, occupants = _grid(rows, width), _grid(rows, width, NOBODY)
    for row, node in enumerate(nodes):
        groups = Numbering()
        for column, device in enumerate(node.devices):
            cell = (row, column)
            layout.device_cell[device.id] = cell
            layout.device_type[cell] = types.of(device.gpu_type)
            layout.device_memory[cell] = device.memory_mib
            layout.device_group[cell] = groups.of(device.link_group)
            free[cell] = 1000 - device.used_milli if device.healthy else 0
            occupants[cell] = projects.of(device.occupant)
    return Ledger(
        layout,
        free,
        np.array([node.vcpus - node.used_vcpus for node in nodes], dtype=np.int64),
        np.array([node.memory_mib - node.used_memory_mib for node in nodes], dtype=np.int64),
        np.array([node.ready for node in nodes], dtype=np.bool_),
        np.array([projects.of(node.occupant) for node in nodes], dtype=np.int64),
        np.array([node.live_tasks for node in nodes], dtype=np.int64),
        occupants,
    )
