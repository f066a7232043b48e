# SPDX-License-Identifier: Apache-2.0
"""How many tasks of a request fit where: counted per shape and kept, not per job.

Every count takes ``rows``: a slice of the nodes (a whole pool) or an array of them (those that
changed since the last count).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gpuservice.domain.inventory import MAX_TASKS_PER_NODE
from gpuservice.planner.ledger import FEW, NOBODY, Bools, Ints, Ledger
from gpuservice.planner.snapshot import Request
from gpuservice.planner.wish import ANYWHERE, Wish

#: More tasks than any gang has: what bounds nothing.
PLENTY = 1 << 30

#: What a node is worth on which nothing fits.
NOWHERE = PLENTY * 1024

Rows = slice | Ints

#: No row: there are more to look at than that.
MANY = -1


@dataclass(frozen=True, slots=True)
class Candidates:
    """Where a job may look: one pool and the rows of its nodes, the number of the job's project,
    and how many tasks its quotas let it have there. A gang stays within one pool."""

    pool: str
    rows: slice
    project: int
    most: int = PLENTY


def candidates(ledger: Ledger, pool_ids: Iterable[str], project_id: str) -> tuple[Candidates, ...]:
    """The pools that have nodes, in the order given, whatever the project's quota says."""
    layout = ledger.layout
    project = layout.projects.of(project_id)
    return tuple(
        Candidates(pool, layout.pool_rows[pool], project)
        for pool in pool_ids
        if pool in layout.pool_rows
    )


def usable(ledger: Ledger, rows: Rows, project: int) -> Bools:
    """(n,): nodes that are ready and, where one project is alone, not another's."""
    may: Bools = ledger.ready[rows]
    alone = ledger.layout.isolation_node[rows]
    if alone.any():
        occupant = ledger.occupant[rows]
        may = may & (~alone | (occupant == NOBODY) | (occupant == project))
    return may


def right_kind(ledger: Ledger, request: Request, rows: Rows) -> Bools:
    """(n, D): devices of a type and memory that the request takes."""
    layout = ledger.layout
    kind = layout.device_type[rows]
    fit: Bools = kind != NOBODY
    if request.gpu_types:
        wanted = [kind == layout.types.of(name) for name in request.gpu_types]
        fit = fit & (wanted[0] if len(wanted) == 1 else np.logical_or.reduce(wanted))
    if request.min_gpu_memory_mib:
        fit = fit & (layout.device_memory[rows] >= request.min_gpu_memory_mib)
    return fit


def fitting_devices(ledger: Ledger, request: Request, rows: Rows, project: int) -> Bools:
    """(n, D): devices of the right kind on which the project may have something."""
    occupant = ledger.device_occupant[rows]
    free: Bools = (occupant == NOBODY) | (occupant == project)
    return right_kind(ledger, request, rows) & free


def share_milli(ledger: Ledger, request: Request, rows: Rows) -> Ints:
    """(n, D): milli of each device that a task of a sharing request takes."""
    memory = ledger.layout.device_memory[rows]
    if request.gpu_memory_mib is None:
        return np.full(memory.shape, request.gpu_milli, dtype=np.int64)
    return -(-1000 * request.gpu_memory_mib // np.maximum(memory, 1))


def device_slots(ledger: Ledger, request: Request, rows: Rows, project: int) -> Ints:
    """(n, D): tasks of a sharing request, or 1 for each whole free device."""
    if request.shared:
        fit = fitting_devices(ledger, request, rows, project)
        milli = share_milli(ledger, request, rows)
        room = np.maximum(ledger.free[rows], 0) // np.maximum(milli, 1)
        return np.where(fit & (milli <= 1000), room, 0)
    fit = right_kind(ledger, request, rows)
    return (fit & (ledger.free[rows] >= 1000)).astype(np.int64)


def device_slots_of(ledger: Ledger, request: Request, row: int, project: int) -> list[int]:
    """The same of one node; of one, plain numbers are quicker than arrays."""
    layout = ledger.layout
    free: list[int] = ledger.free[row].tolist()
    if not (request.shared or request.gpu_types or request.min_gpu_memory_mib):
        return [int(idle >= 1000) for idle in free]  # what is not there is not free
    wanted = {layout.types.of(name) for name in request.gpu_types}
    fits = [
        (not wanted or kind in wanted) and size >= request.min_gpu_memory_mib
        for kind, size in layout.kinds[row]
    ]
    if not request.shared:
        return [int(fit and idle >= 1000) for fit, idle in zip(fits, free, strict=True)]
    mine = (NOBODY, project)
    slots: list[int] = []
    for fit, idle, (_, size), occupant in zip(
        fits, free, layout.kinds[row], ledger.device_occupant[row].tolist(), strict=True
    ):
        milli = request.gpu_milli
        if request.gpu_memory_mib is not None:
            milli = -(-1000 * request.gpu_memory_mib // max(size, 1))
        fit = fit and occupant in mine and milli <= 1000
        slots.append(max(idle, 0) // max(milli, 1) if fit else 0)
    return slots


def host_slots(ledger: Ledger, request: Request, rows: Rows) -> Ints:
    """(n,): tasks by CPU, memory and the number of tasks that a node may have."""
    slots: Ints = np.maximum(MAX_TASKS_PER_NODE - ledger.tasks[rows], 0)
    if request.vcpus:
        slots = np.minimum(slots, np.maximum(ledger.cpus[rows], 0) // request.vcpus)
    if request.memory_mib:
        slots = np.minimum(slots, np.maximum(ledger.memory[rows], 0) // request.memory_mib)
    return slots


def task_slots(ledger: Ledger, request: Request, rows: Rows, project: int) -> Ints:
    """(n,): how many tasks of the request each node takes now."""
    slots = host_slots(ledger, request, rows)
    if request.shared or request.whole:
        gpus = device_slots(ledger, request, rows, project).sum(axis=1)
        slots = np.minimum(slots, gpus if request.shared else gpus // request.whole)
    return np.where(usable(ledger, rows, project), slots, 0)


def group_slots(ledger: Ledger, request: Request, rows: Rows, project: int) -> Ints:
    """(n, G): how many tasks each link group of each node takes (devices without a group are
    not in one)."""
    groups = ledger.layout.device_group[rows]
    count = int(groups.max(initial=NOBODY)) + 1
    per_device = device_slots(ledger, request, rows, project)
    slots = np.zeros((groups.shape[0], max(count, 1)), dtype=np.int64)
    for group in range(count):
        gpus = np.where(groups == group, per_device, 0).sum(axis=1)
        slots[:, group] = gpus if request.shared or not request.whole else gpus // request.whole
    slots = np.minimum(slots, host_slots(ledger, request, rows)[:, None])
    return np.where(usable(ledger, rows, project)[:, None], slots, 0)


def may_fit(request: Request, most: tuple[int, int]) -> bool:
    """Whether a task may be anywhere where that much is free at most (``Ledger.most_free``)."""
    if request.whole:
        return request.whole <= most[0]
    if request.gpu_memory_mib is not None:
        return most[1] > 0
    return request.gpu_milli <= most[1]


@lru_cache
def _none(count: int) -> Ints:
    """No slots on so many nodes."""
    slots = np.zeros(count, dtype=np.int64)
    slots.setflags(write=False)
    return slots


class View:
    """The slots of one request on one pool, brought up to date by what changed. Of a single task
    it counts one at most."""

    __slots__ = (
        "_alone", "_devices", "_everywhere", "_kind", "_nowhere", "_quick", "_request", "_seen",
        "_types", "_uniform", "possible", "project", "rows", "slots",
    )  # fmt: skip

    def __init__(self, ledger: Ledger, request: Request, rows: slice, project: int) -> None:
        self._request = request
        self._types = frozenset(ledger.layout.types.of(name) for name in request.gpu_types)
        self._seen = -1
        self.rows = rows
        self.project = project
        self.slots: Ints = np.zeros(0, dtype=np.int64)
        # Where each node has devices of one kind only, whole GPUs are counted by node.
        kind = right_kind(ledger, request, rows)
        there: Bools = ledger.layout.device_type[rows] != NOBODY
        self._kind: Bools = np.asarray(kind.any(axis=1))
        self._devices: Bools = kind
        lacks: Bools = there & ~kind
        mixed = bool((self._kind & lacks.any(axis=1)).any())
        self._uniform = bool(request.whole) and not mixed
        self._everywhere = bool(self._kind.all())
        some = bool(self._kind.any())
        self._nowhere = bool(request.gpu_milli or request.shared) and not some
        #: Whether any node of the pool has GPUs that the request takes, or it takes none.
        self.possible = some or not (request.whole or request.shared)
        self._alone = bool(ledger.layout.isolation_node[rows].any())
        self._quick = self._uniform and request.count == 1

    def fresh(self, ledger: Ledger, pool: str) -> Ints:
        """(n,): the slots of the pool's nodes now. Not to be changed by the caller."""
        journal = ledger.journals[pool]
        if self._seen == journal.end:
            return self.slots
        if self._nowhere:
            return _none(self.rows.stop - self.rows.start)
        # To compare all nodes costs no more than to find out what is free at most.
        known = ledger.most_known(pool) if self._quick else ledger.most_free(pool)
        if known is not None and not may_fit(self._request, known):
            return _none(self.rows.stop - self.rows.start)
        # Counting a few rows by number costs as much as counting many one after another.
        many = 1024 if self._quick else 8
        few = self._seen >= 0 and journal.end - self._seen <= len(self.slots) // many
        changed = journal.since(self._seen) if few else None
        self._seen = journal.end
        if changed is None:
            self.slots = self._count(ledger, self.rows)
        else:
            rows = np.array(changed, dtype=np.int64)
            self.slots[rows - self.rows.start] = self._count(ledger, rows)
        return self.slots

    @property
    def interchangeable(self) -> bool:
        """Whether every node of the pool has devices for it, counted in whole ones, for whoever
        asks."""
        return self._quick and self._everywhere and not self._alone

    def anywhere(self, ledger: Ledger, pool: str) -> bool | None:
        """Whether the least gang fits, wherever in the pool, where that is quickly said."""
        if self.interchangeable:
            row = self.tightest(ledger, pool)
            return None if row == MANY else row is not None
        if not self._request.shared or self._alone:
            return None
        there = ledger.with_free(pool)
        if there is None:
            return None
        lacking = self._request.min_count
        for row, cells in there:
            if self._host_has_room(ledger, row):
                lacking -= self._shares_on(ledger, row, cells)
            if lacking <= 0:
                return True
        return False

    def _shares_on(self, ledger: Ledger, row: int, cells: list[tuple[int, int, int]]) -> int:
        """How many shares fit on the devices of a node with room for one of which something is
        free."""
        request, kinds = self._request, ledger.layout.kinds[row]
        milli, memory_mib = request.gpu_milli, request.gpu_memory_mib
        found = 0
        for column, idle, occupant in cells:
            if occupant not in (NOBODY, self.project):
                continue
            kind, size = kinds[column]
            if memory_mib is not None:
                milli = -(-1000 * memory_mib // max(size, 1))
            if (
                milli <= 1000
                and size >= request.min_gpu_memory_mib
                and (not self._types or kind in self._types)
            ):
                found += idle // max(milli, 1)
        if found > 1 and request.min_count > 1:
            one = np.array([row], dtype=np.int64)
            found = min(found, int(host_slots(ledger, request, one)[0]))
        return found

    def tightest_share(self, ledger: Ledger, spread: bool) -> int | None:
        """The row with the device that a single share fills most tightly, then with the fewest
        free ones; with ``spread`` the other way round. None where there is no such."""
        request, rows = self._request, self.rows
        milli = share_milli(ledger, request, rows)
        free, occupant = ledger.free[rows], ledger.device_occupant[rows]
        mine = (occupant == NOBODY) | (occupant == self.project)
        fits = self._devices & mine & (free >= np.maximum(milli, 1)) & (milli <= 1000)
        left = np.where(fits, free - milli, PLENTY).min(axis=1, initial=PLENTY)
        may = (left < PLENTY) & (host_slots(ledger, request, rows) > 0)
        if not may.any():
            return None
        may &= usable(ledger, rows, self.project)
        left = left * 64 + ledger.whole[rows]
        wanted = np.where(may, -left if spread else left, NOWHERE)
        at = int(wanted.argmin())
        return None if wanted[at] == NOWHERE else rows.start + at

    def _host_has_room(self, ledger: Ledger, row: int) -> bool:
        """Whether a node is there and has CPUs and memory for a task, and may have one more."""
        vcpus, memory_mib = self._request.vcpus, self._request.memory_mib
        return (
            ledger.ready.item(row)
            and (not vcpus or ledger.cpus.item(row) >= vcpus)
            and (not memory_mib or ledger.memory.item(row) >= memory_mib)
            and ledger.tasks.item(row) < MAX_TASKS_PER_NODE
        )

    def tightest(self, ledger: Ledger, pool: str, wish: Wish = ANYWHERE) -> int | None:
        """Of interchangeable nodes the row that a task fills most tightly; None where there is
        none, ``MANY`` where looking at them one by one takes too long."""
        looks = FEW + 1
        for rows, idle in ledger.stacks(pool).from_tightest(self._request.whole):
            any_will_do = idle or wish.ends is None
            found: list[int] = []
            for row in rows:
                if not looks:
                    return MANY
                looks -= 1
                if self._host_has_room(ledger, row):
                    found.append(row)
                    if any_will_do:
                        break
            if found:
                return wish.of(found)
        return None

    def _count(self, ledger: Ledger, rows: Rows) -> Ints:
        if not self._uniform:
            return task_slots(ledger, self._request, rows, self.project)
        request = self._request
        may = usable(ledger, rows, self.project) if self._alone else ledger.ready[rows]
        if not self._everywhere:
            may = may & (
                self._kind if isinstance(rows, slice) else self._kind[rows - self.rows.start]
            )
        if request.count == 1:  # one task or none: comparing is quicker than counting
            may = may & (ledger.whole[rows] >= request.whole)
            may &= ledger.tasks[rows] < MAX_TASKS_PER_NODE
            if request.vcpus:
                may &= ledger.cpus[rows] >= request.vcpus
            if request.memory_mib:
                may &= ledger.memory[rows] >= request.memory_mib
            return may.astype(np.int64)
        slots = np.minimum(host_slots(ledger, request, rows), ledger.whole[rows] // request.whole)
        return np.where(may, slots, 0)


class Views:
    """Views by request and pool; the project counts only where it makes a difference."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._views: dict[tuple[Request, str, int], View] = {}
        self._alone = ledger.layout.alone

    def tag(self, request: Request, pool: str, project: int) -> int:
        """The project, where the count depends on it."""
        return project if request.shared or self._alone[pool] else NOBODY

    def of(self, request: Request, pool: str, project: int) -> View:
        """The view of a request on a pool for a project."""
        tag = self.tag(request, pool, project)
        key = (request, pool, tag)
        view = self._views.get(key)
        if view is None:
            rows = self._ledger.layout.pool_rows[pool]
            view = View(self._ledger, request, rows, tag)
            self._views[key] = view
        return view
