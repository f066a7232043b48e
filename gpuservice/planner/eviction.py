# SPDX-License-Identifier: Apache-2.0
"""The cheapest running gangs that have to go so that a request fits.

A greedy search by nodes: on each node the cheapest gangs go until it holds one task more, and the
node where that costs least is taken next. What turns out not to be needed is put back by the
caller, who tries each victim with the planner's own placement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

import numpy as np

from gpuservice.domain.inventory import MAX_TASKS_PER_NODE
from gpuservice.planner.capacity import Candidates, right_kind, share_milli
from gpuservice.planner.ledger import NOBODY, Ints, Ledger
from gpuservice.planner.placement import Tasks
from gpuservice.planner.running import Gang
from gpuservice.planner.snapshot import LEVELS, Request
from gpuservice.planner.world import World

#: Domains of a required topology that are looked at, those with the most room first.
_DOMAINS = 16


@dataclass(slots=True)
class _Node:
    """One node as it would be, in plain numbers: it is counted many times."""

    free: list[int]
    milli: list[int]  # that a task takes of each device, 0 where it may have none
    groups: list[int]
    occupied: list[bool]  # by another project's share
    cpus: int
    memory: int
    tasks: int
    others: bool  # another project is alone here
    usable: bool

    def slots(self, request: Request, by_group: bool) -> int:
        """Tasks of the request that it holds (in its best link group)."""
        if not self.usable or (self.others and self.tasks > 0):
            return 0
        most = MAX_TASKS_PER_NODE - self.tasks
        if request.vcpus:
            most = min(most, max(self.cpus, 0) // request.vcpus)
        if request.memory_mib:
            most = min(most, max(self.memory, 0) // request.memory_mib)
        if not (request.shared or request.whole):
            return max(most, 0)
        if by_group:
            numbers = set(self.groups) - {NOBODY}
            gpus = max((self._gpus(request, group) for group in numbers), default=0)
        else:
            gpus = self._gpus(request, None)
        return max(min(most, gpus), 0)

    def _gpus(self, request: Request, group: int | None) -> int:
        count = 0
        for free, milli, of, other in zip(
            self.free, self.milli, self.groups, self.occupied, strict=True
        ):
            if not milli or (group is not None and of != group):
                continue
            if request.whole:
                count += free >= 1000
            elif not other or free >= 1000:
                count += max(free, 0) // milli
        return count // request.whole if request.whole else count


#: (queue, GPU type) -> milli-GPUs that those who go give back.
Returned = Callable[[tuple[str, str]], int]


@dataclass(slots=True)
class Search:
    """One search in one pool.

    :param cost: what a gang's going costs; the less, the sooner.
    :param may_go: whether a gang may go after those that were chosen give back what they do.
    """

    world: World
    request: Request
    where: Candidates
    eligible: Sequence[Gang]
    cost: Callable[[Gang], float]
    may_go: Callable[[Gang, Returned], bool]
    kept: Ints  # (n,) slots that promises leave
    _nodes: dict[int, _Node] = field(default_factory=dict)
    _on: dict[int, list[Gang]] = field(default_factory=dict)
    chosen: list[Gang] = field(default_factory=list)
    _names: set[str] = field(default_factory=set)  # of the chosen
    _returned: dict[tuple[str, str], int] = field(default_factory=dict)

    def find(self) -> list[Gang] | None:
        """The gangs, or None. They may be more than needed."""
        rows = self.where.rows
        for gang in sorted(self.eligible, key=lambda one: (self.cost(one), one.gang.gang_id)):
            for row in gang.rows:
                if rows.start <= row < rows.stop:
                    self._on.setdefault(row, []).append(gang)
        self._prepare(self._on)
        request = self.request
        if request.required and request.within in ("node", "link_group"):
            return self._on_one_node()
        if request.required and request.within in LEVELS:
            return self._in_one_domain(str(request.within))
        return self._anywhere(None)

    # -- the three ways ----------------------------------------------------------------------
    def _on_one_node(self) -> list[Gang] | None:
        best: tuple[float, int, list[Gang]] | None = None
        by_group = self.request.within == "link_group"
        for row in sorted(self._on):
            found = self._until(row, self.request.min_count, by_group)
            if found is not None and (best is None or (found[0], row) < best[:2]):
                best = (found[0], row, found[1])
        return None if best is None else best[2]

    def _in_one_domain(self, level: str) -> list[Gang] | None:
        domains = self.world.layout.domains[level][self.where.rows]
        room = np.bincount(domains[domains != NOBODY], minlength=1)
        best: tuple[float, list[Gang]] | None = None
        for domain in np.argsort(-room, kind="stable")[:_DOMAINS].tolist():
            self.chosen, self._names, self._returned = [], set(), {}
            self._prepare(self._on)
            found = self._anywhere(np.flatnonzero(domains == domain) + self.where.rows.start)
            if found is not None:
                total = sum(self.cost(one) for one in found)
                if best is None or total < best[0]:
                    best = (total, found)
        return None if best is None else best[1]

    def _anywhere(self, rows: Ints | None) -> list[Gang] | None:
        """The cheapest nodes one after another until there are tasks enough."""
        start = self.where.rows.start
        inside = self.kept if rows is None else self.kept[rows - start]
        total = int(np.minimum(inside, self.request.min_count).sum())
        here = set(self._on) if rows is None else set(self._on) & set(rows.tolist())
        heap: list[tuple[float, int]] = []
        for row in here:
            found = self._until(row, self._slots(row) + 1)
            if found is not None:
                heap.append((found[0], row))
        heapify(heap)
        while total < self.request.min_count and heap:
            cost, row = heappop(heap)
            found = self._until(row, self._slots(row) + 1)
            if found is None:
                continue
            if found[0] > cost:
                heappush(heap, (found[0], row))
                continue
            before = {one: self._slots(one) for gang in found[1] for one in gang.rows}
            for gang in found[1]:
                self._choose(gang)
            total += sum(
                self._slots(one) - old for one, old in before.items() if rows is None or one in here
            )
            again = self._until(row, self._slots(row) + 1)
            if again is not None:
                heappush(heap, (again[0], row))
        return self.chosen if total >= self.request.min_count else None

    # -- nodes -------------------------------------------------------------------------------
    def _slots(self, row: int) -> int:
        node = self._nodes.get(row)
        return 0 if node is None else node.slots(self.request, False)

    def _until(
        self, row: int, wanted: int, by_group: bool = False
    ) -> tuple[float, list[Gang]] | None:
        """(cost, gangs of one node that have to go besides the chosen, the cheapest first, until
        it holds ``wanted`` tasks)."""
        node = self._nodes[row]
        trial = _Node(
            list(node.free), node.milli, node.groups, list(node.occupied), node.cpus, node.memory,
            node.tasks, node.others, node.usable,
        )  # fmt: skip
        here: dict[tuple[str, str], int] = {}

        def returned(key: tuple[str, str]) -> int:
            return self._returned.get(key, 0) + here.get(key, 0)

        found: list[Gang] = []
        cost = 0.0
        for gang in self._on[row]:
            if trial.slots(self.request, by_group) >= wanted:
                break
            if gang.gang.gang_id in self._names or not self.may_go(gang, returned):
                continue
            self._give(trial, row, gang)
            _add(here, gang)
            found.append(gang)
            cost += self.cost(gang)
        return (cost, found) if trial.slots(self.request, by_group) >= wanted else None

    def _choose(self, gang: Gang) -> None:
        self._release(gang)
        self.chosen.append(gang)
        self._names.add(gang.gang.gang_id)
        _add(self._returned, gang)

    def _release(self, gang: Gang) -> None:
        for row in gang.rows:
            node = self._nodes.get(row)
            if node is not None:
                self._give(node, row, gang)

    def _give(self, node: _Node, row: int, gang: Gang) -> None:
        hold = self.world.holdings.rows[row].get(gang.gang.gang_id)
        if hold is None:
            return
        healthy = self.world.layout.healthy[row]
        for column, milli in hold.shares:
            if healthy[column]:
                node.free[column] += milli
        node.cpus += hold.vcpus
        node.memory += hold.memory_mib
        node.tasks -= hold.tasks

    def _prepare(self, rows: Iterable[int]) -> None:
        ledger, layout, project = self.world.ledger, self.world.layout, self.where.project
        for row in rows:
            one = np.array([row])
            kind = right_kind(ledger, self.request, one)[0]
            milli = self._milli(ledger, one)
            occupant = ledger.device_occupant[row]
            self._nodes[row] = _Node(
                ledger.free[row].tolist(),
                np.where(kind & (milli <= 1000), milli, 0).tolist(),
                layout.device_group[row].tolist(),
                ((occupant != NOBODY) & (occupant != project)).tolist(),
                int(ledger.cpus[row]),
                int(ledger.memory[row]),
                int(ledger.tasks[row]),
                bool(layout.isolation_node[row])
                and int(ledger.occupant[row]) not in (NOBODY, project),
                bool(ledger.ready[row]),
            )

    def _milli(self, ledger: Ledger, rows: Ints) -> Ints:
        if self.request.shared:
            milli: Ints = share_milli(ledger, self.request, rows)[0]
            return milli
        return np.full(ledger.free.shape[1], 1000, dtype=np.int64)


def _add(returned: dict[tuple[str, str], int], gang: Gang) -> None:
    for kind, milli in gang.by_type.items():
        key = (gang.gang.queue_id, kind)
        returned[key] = returned.get(key, 0) + milli


def spare_rows(world: World, gone: Sequence[Gang], tasks: Tasks) -> bool:
    """Whether any node of the victims has room left once the job is there: only then may one of
    many whole-GPU victims be more than is needed."""
    used: dict[int, int] = {}
    for task in tasks:
        row = world.layout.node_row[task.node_id]
        used[row] = used.get(row, 0) + len(task.devices)
    rows = {row for gang in gone for row in gang.rows}
    return any(int(world.ledger.whole[row]) > used.get(row, 0) for row in rows)
