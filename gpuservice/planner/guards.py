# SPDX-License-Identifier: Apache-2.0
"""What promises and reservations keep from what might start now.

Something lower may start on a promised node only if it ends before the first promised start
there, or if what is left at every promised start is enough for it as well: the EASY rule (Lifka
1995) for one promise, conservative backfill for all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gpuservice.planner.capacity import PLENTY
from gpuservice.planner.holds import FOREVER, Hold, Holdings, holds_by_row
from gpuservice.planner.ledger import CLOSED, NOBODY, Floats, Ints, Ledger
from gpuservice.planner.plan_types import Promise
from gpuservice.planner.snapshot import Request, Reservation


@dataclass(frozen=True, slots=True)
class _Use:
    """What one promise takes of one node, from start to end."""

    start: float
    end: float
    gpus: int
    vcpus: int
    memory_mib: int


class Guards:
    """Promises of one pass by node.

    :param base: (N, D) when each device is wholly free, by what runs and what was started.
    :param extra: what this very plan started, by row.
    """

    def __init__(
        self, ledger: Ledger, holdings: Holdings, base: Floats, extra: dict[int, list[Hold]]
    ) -> None:
        self._ledger = ledger
        self._holdings = holdings
        self._base = base
        self._extra = extra
        self._uses: dict[int, list[_Use]] = {}
        count = len(ledger.layout.nodes)
        self.first: Floats = np.full(count, FOREVER)
        self._spare: Ints = np.zeros((count, 3), dtype=np.int64)  # GPUs, CPUs, memory
        self._project: Ints = np.full(count, NOBODY, dtype=np.int64)
        self._pools: dict[str, float] = {}
        self.whole_nodes: set[str] = set()  # jobs whose promises keep whole nodes

    def add(self, promise: Promise, whole_nodes: bool = False) -> None:
        """Keep the places of a promise from its start on (all devices of its nodes)."""
        if whole_nodes:
            self.whole_nodes.add(promise.job_id)
        layout = self._ledger.layout
        project = layout.projects.of(promise.project_id)
        for row, hold in holds_by_row(layout, promise.tasks, promise.end):
            self._uses.setdefault(row, []).append(
                _Use(
                    promise.start,
                    promise.end,
                    self._ledger.layout.most_gpus
                    if whole_nodes
                    else len({column for column, _ in hold.shares}),
                    hold.vcpus,
                    hold.memory_mib,
                )
            )
            pool = layout.pool[row]
            self._pools[pool] = min(self._pools.get(pool, FOREVER), promise.start)
            self._project[row] = project if self._project[row] in (NOBODY, project) else CLOSED
            self._recount(row)

    def started(self, rows: Iterable[int]) -> None:
        """Something was started on these rows."""
        for row in rows:
            if row in self._uses:
                self._recount(row)

    def within(self, pool: str, rows: slice, slots: Ints, request: Request, project: int,
               end: float) -> Ints:  # fmt: skip
        """(n,): the slots that something ending at ``end`` may use."""
        if end <= self._pools.get(pool, FOREVER):
            return slots
        late = np.flatnonzero((self.first[rows] < end) & (slots > 0))
        if not late.size:
            return slots
        kept = slots.copy()
        at = late + rows.start
        room = np.full(late.shape, PLENTY, dtype=np.int64)
        for column, each in enumerate((request.whole or int(request.shared), request.vcpus,
                                       request.memory_mib)):  # fmt: skip
            if each:
                room = np.minimum(room, np.maximum(self._spare[at, column], 0) // each)
        alone = self._ledger.layout.isolation_node[at] & (self._project[at] != project)
        kept[late] = np.minimum(slots[late], np.where(alone, 0, room))
        return kept

    def _recount(self, row: int) -> None:
        """The first promised start of a node, and the least that is left at any of them."""
        uses = self._uses[row]
        holds = [*self._holdings.rows[row].values(), *self._extra.get(row, ())]
        free_at = self._base[row]
        least = [PLENTY, PLENTY, PLENTY]
        for moment in {use.start for use in uses}:
            ended = [hold for hold in holds if hold.end <= moment]
            left = (
                int(np.count_nonzero(free_at <= moment)),
                int(self._ledger.cpus[row]) + sum(hold.vcpus for hold in ended),
                int(self._ledger.memory[row]) + sum(hold.memory_mib for hold in ended),
            )
            taken = [use for use in uses if use.start <= moment < use.end]
            used = (
                sum(use.gpus for use in taken),
                sum(use.vcpus for use in taken),
                sum(use.memory_mib for use in taken),
            )
            least = [min(old, a - b) for old, a, b in zip(least, left, used, strict=True)]
        self._spare[row] = least
        self.first[row] = min(use.start for use in uses)


class Reserved:
    """The reservations that have not ended, by row."""

    def __init__(self, ledger: Ledger, reservations: Iterable[Reservation], now: float) -> None:
        rows = ledger.layout.node_row
        self._all = [
            (one, np.array(sorted(rows[name] for name in one.node_ids if name in rows), np.int64))
            for one in reservations
            if one.ends_at > now
        ]

    def __bool__(self) -> bool:
        return bool(self._all)

    def others(self, queue_id: str, project_id: str) -> Iterable[tuple[Reservation, Ints]]:
        """The reservations that keep a queue's jobs of a project out."""
        for one, rows in self._all:
            if one.queue_id not in (None, queue_id) or one.project_id not in (None, project_id):
                yield one, rows

    def within(self, rows: slice, slots: Ints, queue_id: str, project_id: str, end: float) -> Ints:
        """(n,): the slots that no reservation of others keeps until ``end``."""
        for one, reserved in self.others(queue_id, project_id):
            if end <= one.starts_at:
                continue
            here = reserved[(reserved >= rows.start) & (reserved < rows.stop)] - rows.start
            if here.size:
                slots = slots.copy()
                slots[here] = 0
        return slots
