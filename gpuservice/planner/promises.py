# SPDX-License-Identifier: Apache-2.0
"""Promised starts: when a waiting job fits, given the ends of what runs and earlier promises.

For each node the moment is found at which it holds one, two, ... tasks; a gang starts when the
sum over the nodes reaches its count. Devices of an earlier promise count as free when that ends,
so promises are put behind each other and never into holes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from gpuservice.domain.inventory import MAX_TASKS_PER_NODE
from gpuservice.planner.bookings import Booking, Bookings, picks_devices
from gpuservice.planner.capacity import Candidates, share_milli
from gpuservice.planner.device_times import DeviceTimes
from gpuservice.planner.first_moment import first
from gpuservice.planner.guards import Guards, Reserved
from gpuservice.planner.holds import ALREADY, FOREVER, Holdings, Present, holds_by_row
from gpuservice.planner.ledger import NOBODY, Floats, Ints, Ledger
from gpuservice.planner.placement import Tasks
from gpuservice.planner.releases import Releases
from gpuservice.planner.snapshot import PendingJob, Promise, Request, Shares, TaskPlacement


class Future:
    """The time axis of one pass: what runs, what this plan started, what it promised."""

    def __init__(
        self, now: float, ledger: Ledger, holdings: Holdings, reserved: Reserved | None = None
    ) -> None:
        self.now = now
        self.ledger = ledger
        self.holdings = holdings
        self.reserved = reserved
        self.booked = Bookings(ledger.layout)
        self._begun: list[tuple[Tasks, float, int]] = []
        self.present = Present(now, holdings)
        self._behind = DeviceTimes(ledger, self.present.free_at.copy())  # with bookings
        self._releases = Releases(ledger, self.present)
        self.guards = Guards(ledger, self.present, self.booked)

    @property
    def promises(self) -> list[Promise]:
        """The promises that are told, in the order in which they were given."""
        return [one.promise for one in self.booked.of.values() if one.told]

    @property
    def claims(self) -> list[Promise]:
        """What is kept for those for whom others go, and told nobody."""
        return [one.promise for one in self.booked.of.values() if not one.told]

    def free_at(self, tasks: Tasks) -> float:
        """When what runs leaves the devices that these tasks name."""
        cells = self.ledger.layout.device_cell
        named = [cells[device] for task in tasks for device, _ in task.devices if device in cells]
        return max((float(self.present.free_at[cell]) for cell in named), default=self.now)

    def free_at_all(self) -> Floats:
        """(N, D): when each device is wholly free, with all that the plan has started."""
        self._catch_up()
        return self.present.free_at

    def started(self, tasks: Tasks, end: float, project: int) -> None:
        """Something was started now (and taken from the ledger): it holds until ``end``."""
        self._begun.append((tasks, end, project))
        if self.booked.of:
            self._catch_up()

    def _catch_up(self) -> None:
        """Reckon with what was started: not before anybody asks when something is free."""
        begun, self._begun = self._begun, []
        if not begun:
            return
        rows: list[int] = []
        columns: list[int] = []
        ends: list[float] = []
        touched: dict[int, None] = {}
        for tasks, end, project in begun:
            for row, hold in holds_by_row(self.ledger.layout, tasks, end, project):
                self.present.started(row, hold)
                touched[row] = None
                for column, _ in hold.shares:
                    rows.append(row)
                    columns.append(column)
                    ends.append(end)
        np.maximum.at(self.present.free_at, (rows, columns), ends)
        self._behind.hold(rows, columns, ends)
        for row in touched:
            self._releases.forget(row)
        self._changed([row for row in touched if row in self.booked.uses])

    def goes(self, gang_id: str, rows: Sequence[int]) -> None:
        """A running gang goes for others: from the next moment on what it holds is free."""
        self._catch_up()
        self.present.goes(gang_id, rows)
        for row in rows:
            self._releases.forget(row)
        self._changed(rows)

    def _changed(self, rows: Sequence[int]) -> None:
        """Settle anew which devices the bookings of some nodes take: a promise is of a number of
        devices, in the order of their starts."""
        free_at = self.present.free_at
        width = free_at.shape[1]
        for row in rows:
            uses = self.booked.uses.get(row, ())
            if any(use.shares or use.whole_node for use in uses):
                devices = self.guards.devices(row)
                devices.settle(self.booked.by_start(row))
                self._behind.set(row, devices.until)
                continue
            if all(use.gpus >= width for use in uses):  # whole nodes: nothing to choose
                end = max((use.end for use in uses), default=ALREADY)
                self._behind.set(row, np.maximum(free_at[row], end))
                continue
            behind = free_at[row].copy()
            for use in self.booked.by_start(row):
                first = np.argsort(behind, kind="stable")[: use.gpus]
                behind[first] = np.maximum(behind[first], use.end)
            self._behind.set(row, behind)
        self.guards.changed(rows)

    def book(self, promise: Promise, request: Request, told: bool = True) -> None:
        """Keep places for a job from a moment on: lower jobs respect it."""
        self._catch_up()
        self._changed(list(self.booked.add(Booking(promise, request, told))))

    def vacate(self, job_id: str) -> Booking | None:
        """Give up what is booked for a job; to be booked again or not."""
        self._catch_up()
        booking, rows = self.booked.remove(job_id)
        self._changed(rows)
        return booking

    def restore(self, booking: Booking | None) -> None:
        """Book again what was given up for a moment."""
        if booking is not None:
            self._changed(list(self.booked.add(booking)))

    def estimating(self) -> Future:
        """A copy for estimates: what is booked in it binds nobody."""
        self._catch_up()
        other = Future(self.now, self.ledger, self.holdings, self.reserved)
        other.present, other._behind = self.present, self._behind.copy()
        other._releases = self._releases
        other.booked = self.booked.copy()
        other.guards = Guards(self.ledger, self.present, other.booked)
        return other

    def kept(
        self, job: PendingJob, where: Sequence[Candidates], runtime: float
    ) -> tuple[float, Tasks] | None:
        """The moment at which the job fits where it was promised to start, with these places (of
        the devices only the number counts); None where that is later than promised (unless others
        go for it: it starts when they are gone), or nowhere any more."""
        self._catch_up()
        promise = job.promise
        rows = self.ledger.layout.node_row
        if promise is None or any(task.node_id not in rows for task in promise.tasks):
            return None
        counts: dict[int, int] = {}
        for task in promise.tasks:
            row = rows[task.node_id]
            counts[row] = counts.get(row, 0) + 1
        for one in where:
            if not all(one.rows.start <= row < one.rows.stop for row in counts):
                continue
            if not job.request.min_count <= len(promise.tasks) <= min(job.request.count, one.most):
                return None
            return self._kept_in(job, one, counts, runtime, promise)
        return None

    def _kept_in(
        self,
        job: PendingJob,
        where: Candidates,
        counts: dict[int, int],
        runtime: float,
        promise: Promise,
    ) -> tuple[float, Tasks] | None:
        request, most = job.request, max(counts.values())
        group = None
        if request.required and request.within == "link_group" and promise.tasks[0].devices:
            cell = self.ledger.layout.device_cell.get(promise.tasks[0].devices[0][0])
            group = None if cell is None else int(self.ledger.layout.device_group[cell])
        times = self._task_times(request, where, self._soonest(request, where, group), most)
        start = FOREVER
        if times.shape[1] >= most:
            times = np.maximum(times, self.now)
            times = self._clear_of_whole_nodes(request, where, times, runtime)
            times = self._clear_of_reservations(job, where, times, runtime)
            start = max(
                float(times[row - where.rows.start, count - 1]) for row, count in counts.items()
            )
        latest = max(self.free_at(promise.tasks) if job.claimed else promise.start, self.now)
        moments = [latest] if start > latest and latest < FOREVER else []
        if job.claimed and request.shared:  # others may stay on its GPU
            moments = self._ends_until(min(start, latest), counts)
        for moment in moments:
            then = replace(promise, start=moment, end=moment + runtime)
            if self._kept_beside(job, where, counts, runtime, then):
                start = moment
                break
        late = start > latest and not job.claimed
        return None if late or start == FOREVER else (start, promise.tasks)

    def _ends_until(self, latest: float, rows: Iterable[int]) -> list[float]:
        """Now and the ends on some nodes up to a moment, in order."""
        ends = {hold.end for row in rows for hold in self.present.holds(row)}
        return sorted({self.now, *(end for end in ends if self.now < end <= latest)})

    def _kept_beside(
        self,
        job: PendingJob,
        where: Candidates,
        counts: dict[int, int],
        runtime: float,
        promise: Promise,
    ) -> bool:
        """Whether the promise has its devices in time although they are not wholly free by then:
        beside other shares, or where some of a link group are booked."""
        request, start = job.request, promise.start
        if not all(self.ledger.ready.item(row) for row in counts):
            return False
        uses = dict(self.booked.uses_of(Booking(promise, request)))
        if not any(
            use.shares or use.whole_node
            for row, use in uses.items()
            for use in (use, *self.booked.uses.get(row, ()))
        ):
            return False
        times = self._releases.times(request, where, max(counts.values()), self.booked)
        times = self._clear_of_reservations(job, where, np.maximum(times, self.now), runtime)
        for row, use in uses.items():
            others = self.booked.by_start(row)
            devices = self.guards.devices(row)
            if times[row - where.rows.start, counts[row] - 1] > start or (
                devices.lacking(self.booked.by_start(row, use)) > devices.lacking(others)
            ):
                return False
        return True

    def earliest(
        self, job: PendingJob, where: Sequence[Candidates], runtime: float
    ) -> tuple[float, Tasks] | None:
        """The moment after now at which the job's least gang fits for ``runtime`` seconds, with
        places. None: not while what runs without a limit runs."""
        self._catch_up()
        best: tuple[float, Tasks] | None = None
        for one in where:
            if one.most < job.request.min_count or self._behind.nowhere(job.request, one):
                continue
            found = self._in_pool(job, one, runtime)
            if found is not None and (best is None or found[0] < best[0]):
                best = found
        return best

    def _in_pool(
        self, job: PendingJob, where: Candidates, runtime: float
    ) -> tuple[float, Tasks] | None:
        request, count = job.request, job.request.min_count
        most = min(request.count, where.most)
        level = request.within if request.required else None
        groups = self._group_numbers(where) if level == "link_group" else (None,)
        best: tuple[float, list[tuple[int, int]], int | None] | None = None
        for group in groups:
            times = self._task_times(request, where, self._soonest(request, where, group), most)
            times = np.maximum(times, self.now + 1)
            times = self._clear_of_whole_nodes(request, where, times, runtime)
            times = self._clear_of_reservations(job, where, times, runtime)
            found = first(times, count, most, level, self._domains(where, level))
            if found is not None and (best is None or found[0] < best[0]):
                best = (*found, group)
        if best is None:
            return None
        start, pieces, group = best
        return start, self._tasks(request, where, pieces, group)

    def _group_numbers(self, where: Candidates) -> Sequence[int]:
        groups = self.ledger.layout.device_group[where.rows]
        return range(int(groups.max(initial=NOBODY)) + 1)

    def _soonest(self, request: Request, where: Candidates, group: int | None) -> Floats:
        """(n, D): when devices of the right kind are wholly free, those of each node in order."""
        if group is None:
            return self._behind.soonest(request, where)
        here = self.ledger.layout.device_group[where.rows] == group
        times = self._behind.of_kind(request, where.rows)
        return np.sort(np.where(here, times, FOREVER), axis=1)

    def _domains(self, where: Candidates, level: str | None) -> Ints | None:
        if level in (None, "node", "link_group"):
            return None
        return self.ledger.layout.domains[str(level)][where.rows]

    def _task_times(
        self, request: Request, where: Candidates, soonest: Floats, count: int
    ) -> Floats:
        """(n, J): when each node holds 1, 2, ... J tasks, J at most ``count``."""
        nodes, width = soonest.shape
        if request.whole:
            most = min(count, width // request.whole)
            times = soonest[:, request.whole - 1 :: request.whole][:, :most]
        elif request.shared:
            each = 1
            if request.gpu_memory_mib is None:
                each = min(count, 1000 // request.gpu_milli)
            times = np.repeat(soonest[:, :count], each, axis=1)[:, :count]
        else:
            times = np.full((nodes, min(count, MAX_TASKS_PER_NODE)), ALREADY)
            times[~self.ledger.ready[where.rows]] = FOREVER
        return np.maximum(times, self._releases.times(request, where, times.shape[1], self.booked))

    def _clear_of_whole_nodes(
        self, request: Request, where: Candidates, times: Floats, runtime: float
    ) -> Floats:
        """Who needs particular devices, and others, are not on one node at one time."""
        picky = picks_devices(request)
        if not (picky or self.booked.picky):
            return times
        for row, uses in self.booked.uses.items():
            if where.rows.start <= row < where.rows.stop:
                at = row - where.rows.start
                for use in sorted(uses, key=lambda use: use.start):
                    if picky or use.whole_node:
                        meets = times[at] + runtime > use.start
                        times[at] = np.where(meets, np.maximum(times[at], use.end), times[at])
        return times

    def _clear_of_reservations(
        self, job: PendingJob, where: Candidates, times: Floats, runtime: float
    ) -> Floats:
        if not self.reserved:
            return times
        kept = sorted(
            self.reserved.others(job.queue_id, job.project_id), key=lambda one: one[0].starts_at
        )
        for one, rows in kept:
            here = rows[(rows >= where.rows.start) & (rows < where.rows.stop)] - where.rows.start
            late = times[here] + runtime > one.starts_at
            times[here] = np.where(late, np.maximum(times[here], one.ends_at), times[here])
        return times

    def _tasks(
        self,
        request: Request,
        where: Candidates,
        pieces: list[tuple[int, int]],
        group: int | None,
    ) -> Tasks:
        """The tasks on the devices that are free first."""
        layout = self.ledger.layout
        rows = where.rows.start + np.array([at for at, _ in pieces], dtype=np.int64)
        milli = share_milli(self.ledger, request, rows) if request.shared else None
        free_at = self._behind.of_kind(request, rows)
        tasks: list[TaskPlacement] = []
        for at, (row, (_, count)) in enumerate(zip(rows.tolist(), pieces, strict=True)):
            times = free_at[at]
            if group is not None:
                times = np.where(layout.device_group[row] == group, times, FOREVER)
            order = np.argsort(times, kind="stable").tolist()
            devices, used = layout.nodes[row].devices, 0
            for number in range(count):
                shares: Shares = ()
                if request.whole:
                    chosen = order[used : used + request.whole]
                    shares = tuple((devices[column].id, 1000) for column in chosen)
                    used += request.whole
                elif milli is not None:
                    column = order[0]
                    each = int(milli[at, column])
                    column = order[number // max(1000 // max(each, 1), 1)]
                    shares = ((devices[column].id, int(milli[at, column])),)
                tasks.append(
                    TaskPlacement(
                        len(tasks), layout.nodes[row].id, shares, request.vcpus, request.memory_mib
                    )
                )
        return tuple(tasks)
