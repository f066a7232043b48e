# SPDX-License-Identifier: Apache-2.0
"""What promises and reservations keep from what might start now.

Something lower may start on a promised node only if it ends before the first promised start
there, or if what is left at every promised start is enough for it as well: the EASY rule (Lifka
1995) for one promise, conservative backfill for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from gpuservice.planner.bookings import Bookings, Use
from gpuservice.planner.capacity import PLENTY
from gpuservice.planner.holds import FOREVER, Hold, Holdings
from gpuservice.planner.ledger import Floats, Ints, Ledger
from gpuservice.planner.snapshot import Request, Reservation, TaskPlacement


class Guards:
    """What the bookings of one pass leave, by node.

    :param base: (N, D) when each device is wholly free, by what runs and what was started.
    :param extra: what this very plan started, by row.
    """

    def __init__(
        self,
        ledger: Ledger,
        holdings: Holdings,
        base: Floats,
        extra: dict[int, list[Hold]],
        booked: Bookings,
    ) -> None:
        self._ledger = ledger
        self._holdings = holdings
        self._base = base
        self._extra = extra
        self._booked = booked
        count = len(ledger.layout.nodes)
        self.first: Floats = np.full(count, FOREVER)
        self._spare: Ints = np.zeros((count, 3), dtype=np.int64)  # GPUs, CPUs, memory
        #: By row: (booked start, GPUs, CPUs and memory left then), soonest first.
        self._moments: dict[int, list[tuple[float, tuple[int, int, int]]]] = {}
        self._pools: dict[str, float] = {}
        self._stale: set[int] = set()

    def changed(self, rows: Iterable[int]) -> None:
        """Something was booked, given up or started on these rows: what is left there is counted
        when somebody wants to start there."""
        pools = self._ledger.layout.pool
        for row in rows:
            uses = self._booked.uses.get(row)
            if not uses:
                self.first[row] = FOREVER
                continue
            first = min(use.start for use in uses)
            self.first[row] = first
            if first < self._pools.get(pools[row], FOREVER):
                self._pools[pools[row]] = first
            self._stale.add(row)

    def _settle(self, rows: Iterable[int]) -> None:
        """Count what is left on rows where something is booked."""
        for row in self._stale.intersection(rows):
            self._stale.discard(row)
            self._recount(row, self._booked.uses[row])

    def within(
        self,
        pool: str,
        rows: slice,
        slots: Ints,
        request: Request,
        project: int,
        end: float,
        a_device_each: bool = True,
    ) -> Ints:
        """(n,): the slots that something ending at ``end`` may use.

        :param a_device_each: reckon with a device for each share; without, :meth:`allows` has to
            be asked of what comes of it.
        """
        if end <= self._pools.get(pool, FOREVER):
            return slots
        late = np.flatnonzero((self.first[rows] < end) & (slots > 0))
        if not late.size:
            return slots
        kept = slots.copy()
        at = late + rows.start
        if self._stale:
            self._settle(at.tolist())
        each = (request.whole or int(request.shared), request.vcpus, request.memory_mib)
        room = np.full(late.shape, PLENTY, dtype=np.int64)
        for column, need in enumerate(each):
            if need:
                left = np.maximum(self._spare[at, column], 0) // need
                if column == 0 and request.shared and not a_device_each:
                    left = left * PLENTY
                room = np.minimum(room, left)
        self._what_ends_between(at, room, each, end)
        if self._ledger.layout.alone[pool]:
            room[self._for_another(at, project, end)] = 0
        kept[late] = np.minimum(slots[late], room)
        return kept

    def _for_another(self, at: Ints, project: int, end: float) -> list[int]:
        """Which of the nodes another project has to itself before ``end``."""
        alone = self._ledger.layout.isolation_node
        return [
            number
            for number, row in enumerate(at.tolist())
            if alone[row]
            and any(use.project != project and use.start < end for use in self._booked.uses[row])
        ]

    def allows(self, tasks: Iterable[TaskPlacement], end: float) -> bool:
        """Whether the devices of these shares leave what is booked before ``end``."""
        devices: dict[int, set[int]] = {}
        layout = self._ledger.layout
        for task in tasks:
            for device, _ in task.devices:
                row, column = layout.device_cell[device]
                devices.setdefault(row, set()).add(column)
        self._settle(row for row in devices if row in self._booked.uses)
        for row, columns in devices.items():
            for moment, spare in self._moments.get(row, ()) if row in self._booked.uses else ():
                free = sum(bool(self._base[row, column] <= moment) for column in columns)
                if moment < end and free > spare[0]:
                    return False
        return True

    def _what_ends_between(
        self, at: Ints, room: Ints, each: tuple[int, int, int], end: float
    ) -> None:
        """Where something is booked at several moments, only those before ``end`` count."""
        for number in np.flatnonzero(room == 0).tolist():
            moments = self._moments[int(at[number])]
            if len(moments) < 2 or moments[-1][0] < end:
                continue
            least = PLENTY
            for moment, spare in moments:
                if moment < end:
                    least = min(
                        least,
                        *(max(left, 0) // need for left, need in zip(spare, each, strict=True)
                          if need),
                    )  # fmt: skip
            room[number] = least

    def _recount(self, row: int, uses: Sequence[Use]) -> None:
        """The first booked start of a node, and the least that is left at any of them."""
        holds = [*self._holdings.rows[row].values(), *self._extra.get(row, ())]
        free_at = self._base[row]
        cpus, memory = int(self._ledger.cpus[row]), int(self._ledger.memory[row])
        least = [PLENTY, PLENTY, PLENTY]
        moments: list[tuple[float, tuple[int, int, int]]] = []
        for moment in sorted({use.start for use in uses}):
            ended = [hold for hold in holds if hold.end <= moment]
            left = (
                int(np.count_nonzero(free_at <= moment)),
                cpus + sum(hold.vcpus for hold in ended),
                memory + sum(hold.memory_mib for hold in ended),
            )
            taken = [use for use in uses if use.start <= moment < use.end]
            used = (
                PLENTY if any(use.whole_node for use in taken) else sum(use.gpus for use in taken),
                sum(use.vcpus for use in taken),
                sum(use.memory_mib for use in taken),
            )
            spare = (left[0] - used[0], left[1] - used[1], left[2] - used[2])
            moments.append((moment, spare))
            least = [min(old, new) for old, new in zip(least, spare, strict=True)]
        self._moments[row] = moments
        self._spare[row] = least


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
