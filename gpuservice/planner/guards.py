# SPDX-License-Identifier: Apache-2.0
"""What promises and reservations keep from what might start now.

Something lower may start on a promised node only if it ends before the first promised start
there, or if what is left at every promised start is enough for it as well: the EASY rule (Lifka
1995) for one promise, conservative backfill for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from gpuservice.planner.bookings import Bookings, Use, picks_devices
from gpuservice.planner.capacity import PLENTY, Candidates, device_slots, share_milli
from gpuservice.planner.holds import FOREVER, Present, holds_by_row
from gpuservice.planner.ledger import Bools, Floats, Ints, Ledger
from gpuservice.planner.settling import WHOLE, Devices
from gpuservice.planner.snapshot import Request, Reservation, TaskPlacement


class Guards:
    """What the bookings of one pass leave, by node.

    :param present: what runs and what was started.
    """

    def __init__(self, ledger: Ledger, present: Present, booked: Bookings) -> None:
        self._ledger = ledger
        self._present = present
        self._booked = booked
        count = len(ledger.layout.nodes)
        self.first: Floats = np.full(count, FOREVER)
        self._spare: Ints = np.zeros((count, 3), dtype=np.int64)  # GPUs, CPUs, memory
        #: By row: (booked start, GPUs, CPUs and memory left then), soonest first.
        self._moments: dict[int, list[tuple[float, tuple[int, int, int]]]] = {}
        self._pools: dict[str, float] = {}
        self._stale: set[int] = set()
        self._mixed: set[int] = set()  # rows where not all that is booked is of whole GPUs alike

    def changed(self, rows: Iterable[int]) -> None:
        """Something was booked, given up or started on these rows: what is left there is counted
        when somebody wants to start there."""
        pools = self._ledger.layout.pool
        for row in rows:
            uses = self._booked.uses.get(row)
            self._mixed.discard(row)
            if not uses:
                self.first[row] = FOREVER
                continue
            if any(use.shares or use.whole_node for use in uses):
                self._mixed.add(row)
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

    def binds(self, pool: str, end: float) -> bool:
        """Whether anything of a pool is booked before ``end``."""
        return end > self._pools.get(pool, FOREVER)

    def within(
        self, pool: str, rows: slice, slots: Ints, request: Request, project: int, end: float
    ) -> Ints:
        """(n,): the slots that something ending at ``end`` may use on any devices, reckoned with
        a device for each share."""
        gpus = request.whole or int(request.shared)
        return self._within(pool, rows, slots, (gpus, request), project, end)

    def _within(
        self,
        pool: str,
        rows: slice,
        slots: Ints,
        each: tuple[int, Request],
        project: int,
        end: float,
    ) -> Ints:
        if end <= self._pools.get(pool, FOREVER):
            return slots
        late = self._late(rows, slots, end)
        if not late.size:
            return slots
        kept = slots.copy()
        at = late + rows.start
        if self._stale:
            self._settle(at.tolist())
        needs = (each[0], each[1].vcpus, each[1].memory_mib)
        room = np.full(late.shape, PLENTY, dtype=np.int64)
        for column, need in enumerate(needs):
            if need:
                room = np.minimum(room, np.maximum(self._spare[at, column], 0) // need)
        self._what_ends_between(at, slots[late], room, needs, end)
        if self._ledger.layout.alone[pool]:
            room[self._for_another(at, project, end)] = 0
        kept[late] = np.minimum(slots[late], room)
        return kept

    def latest_ends(self, row: int, needs: Ints) -> Floats:
        """(n,): by when something that starts on a row has to end so that all that is booked there
        finds its room; ``FOREVER`` where that is at any time, or not said by counting.

        :param needs: (n, 5) whole GPUs, milli of a GPU, GPUs as they are counted, CPUs, memory.
        """
        ends = np.full(len(needs), FOREVER)
        if self.first[row] == FOREVER or row in self._mixed:
            return ends
        self._settle((row,))
        counted = needs[:, 2:]
        for moment, spare in reversed(self._moments[row]):  # of several the first
            lacks = (counted > 0) & (counted > np.maximum(spare, 0))
            ends[lacks.any(axis=1)] = moment
        one = np.array([row], dtype=np.int64)
        for shared, least in ((True, 1), (False, WHOLE)):
            if self._uncounted(one, least)[0]:
                ends[(needs[:, 1] > 0) == shared] = FOREVER
        return ends

    def _late(self, rows: slice, slots: Ints, end: float) -> Ints:
        """Which nodes with slots have something booked before ``end``."""
        late: Ints = np.flatnonzero((self.first[rows] < end) & (slots > 0))
        return late

    def by_device(
        self, where: Candidates, slots: Ints, request: Request, end: float
    ) -> tuple[Ints, dict[int, list[int]]] | None:
        """The same device by device where that may find more: (slots, row -> slots of each of its
        devices); None where counting says all there is to say."""
        if not (request.whole or request.shared) or end <= self._pools.get(where.pool, FOREVER):
            return None
        late = self._late(where.rows, slots, end)
        if not late.size:
            return None
        picky = picks_devices(request)
        uncounted = self._uncounted(late + where.rows.start, 1 if request.shared else WHOLE)
        if not (request.shared or picky or self._mixed or True in uncounted):
            return None
        found = self.within(where.pool, where.rows, slots, request, where.project, end)
        host = self._within(where.pool, where.rows, slots, (0, request), where.project, end)
        looked: dict[int, list[int]] = {}
        for at, longer in zip(late.tolist(), uncounted, strict=True):
            row = where.rows.start + at
            more = picky or longer or row in self._mixed or (request.shared and found[at])
            if host[at] <= found[at] or not more:
                continue
            looked[row] = self._by_device(row, request, where.project, end, picky)
            room = sum(looked[row]) // (request.whole or 1)
            if found is slots:
                found = slots.copy()
            found[at] = min(int(host[at]), room)
        return (found, looked) if looked else None

    def _uncounted(self, rows: Ints, least: int) -> list[bool]:
        """(n,): on which nodes a device has so much room (milli-GPUs) that not everything booked
        there counts on: one that is shared for longer, or was given back in a trial of who might
        go."""
        longer = self._present.free_at[rows] > self.first[rows, None]
        uncounted: Bools = longer & (self._ledger.free[rows] >= least)
        return [True in devices for devices in uncounted.tolist()]

    def _by_device(
        self, row: int, request: Request, project: int, end: float, picky: bool
    ) -> list[int]:
        one = np.array([row], dtype=np.int64)
        slots = device_slots(self._ledger, request, one, project)[0].tolist()
        milli = [WHOLE] * len(slots)
        if request.shared:
            milli = share_milli(self._ledger, request, one)[0].tolist()
        most = request.count * (request.whole or 1)
        uses = self._booked.by_start(row)
        return self.devices(row).room(uses, slots, milli, most, project, end, picky)

    def devices(self, row: int) -> Devices:
        """The devices of a node without what is booked."""
        present = self._present
        return Devices(self._ledger.layout, row, present.free_at[row], present.holds(row))

    def _for_another(self, at: Ints, project: int, end: float) -> list[int]:
        """Which of the nodes another project has to itself before ``end``."""
        alone = self._ledger.layout.isolation_node
        return [
            number
            for number, row in enumerate(at.tolist())
            if alone[row]
            and any(use.project != project and use.start < end for use in self._booked.uses[row])
        ]

    def allows(self, tasks: Iterable[TaskPlacement], project: int, end: float) -> bool:
        """Whether what is booked finds its devices beside these tasks as well as without."""
        for row, hold in holds_by_row(self._ledger.layout, tasks, end, project):
            uses = self._booked.by_start(row)
            devices = self.devices(row)
            lacking = devices.lacking(uses)
            for column, milli in hold.shares:
                devices.hold(column, end, milli, project)
            if devices.lacking(uses) > lacking:
                return False
        return True

    def _what_ends_between(
        self, at: Ints, slots: Ints, room: Ints, each: tuple[int, int, int], end: float
    ) -> None:
        """Where something is booked at several moments, only those before ``end`` count."""
        for number in np.flatnonzero(room < slots).tolist():
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
        holds = self._present.holds(row)
        free_at = self._present.free_at[row]
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
