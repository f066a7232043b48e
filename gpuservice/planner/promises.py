# SPDX-License-Identifier: Apache-2.0
"""Promised starts: when a waiting job fits, given the ends of what runs and earlier promises.

For each node the moment is found at which it holds one, two, ... tasks; a gang starts when the
sum over the nodes reaches its count. Devices of an earlier promise count as free when that ends,
so promises are put behind each other and never into holes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gpuservice.domain.inventory import MAX_TASKS_PER_NODE
from gpuservice.planner.capacity import Candidates, right_kind, share_milli
from gpuservice.planner.guards import Guards, Reserved
from gpuservice.planner.holds import ALREADY, FOREVER, Hold, Holdings, holds_by_row
from gpuservice.planner.ledger import NOBODY, Floats, Ints, Ledger
from gpuservice.planner.placement import Tasks
from gpuservice.planner.plan_types import Promise
from gpuservice.planner.snapshot import PendingJob, Request, Shares, TaskPlacement


class _Released(NamedTuple):
    """What comes free on the nodes of a pool, (n, H): sorted ends, what is free after each."""

    ends: Floats  # (n, H)
    cpus: Ints  # (n, H + 1)
    memory: Ints
    tasks: Ints
    last: Floats  # (n,) when nothing runs any more


class Future:
    """The time axis of one pass: what runs, what this plan started, what it promised."""

    def __init__(
        self, now: float, ledger: Ledger, holdings: Holdings, reserved: Reserved | None = None
    ) -> None:
        self.now = now
        self.ledger = ledger
        self.holdings = holdings
        self.reserved = reserved
        self.promises: list[Promise] = []
        self._held: list[Promise] = []
        self._begun: list[tuple[Tasks, float]] = []
        self._base: Floats = holdings.free_at.copy()
        self._behind: Floats = self._base.copy()  # with promises
        self._extra: dict[int, list[Hold]] = {}
        self._occupied: dict[int, list[tuple[int, float]]] = {}  # row -> (devices, end)
        self._promised_to: dict[int, list[tuple[int, float]]] = {}  # row -> (project, end)
        self._taken: Ints = np.zeros((len(ledger.layout.nodes), 2), dtype=np.int64)
        self._released: dict[str, _Released] = {}
        self.guards = Guards(ledger, holdings, self._base, self._extra)

    def started(self, tasks: Tasks, end: float) -> None:
        """Something was started now (and taken from the ledger): it holds until ``end``."""
        self._begun.append((tasks, end))
        if self.promises or self._held:
            self._catch_up()

    def _catch_up(self) -> None:
        """Reckon with what was started: not before anybody asks when something is free."""
        begun, self._begun = self._begun, []
        for tasks, end in begun:
            touched = holds_by_row(self.ledger.layout, tasks, end)
            for row, hold in touched:
                self._extra.setdefault(row, []).append(hold)
                self._released.pop(self.ledger.layout.pool[row], None)
                for column, _ in hold.shares:
                    self._base[row, column] = max(self._base[row, column], end)
                    self._behind[row, column] = max(self._behind[row, column], end)
            for row, _ in touched:
                if row in self._occupied:
                    self._reassign(row)
            self.guards.started(row for row, _ in touched)

    def _reassign(self, row: int) -> None:
        """A promise is of a number of devices: which ones is settled anew when some are taken."""
        behind = self._base[row].copy()
        for count, end in self._occupied[row]:
            first = np.argsort(behind, kind="stable")[:count]
            behind[first] = np.maximum(behind[first], end)
        self._behind[row] = behind

    def promise(self, promise: Promise, request: Request) -> None:
        """Give a promise: lower jobs respect it from now on."""
        self.promises.append(promise)
        self._keep(promise, request)

    def _keep(self, promise: Promise, request: Request) -> None:
        self.occupy(promise)
        self.guards.add(promise, these_devices(request))

    def hold(self, promise: Promise, request: Request) -> None:
        """Keep places for a job that others go for; nobody is told a time."""
        self._keep(promise, request)
        self._held.append(promise)

    def occupy(self, promise: Promise) -> None:
        """Put later promises and estimates behind this one."""
        self._catch_up()
        project = self.ledger.layout.projects.of(promise.project_id)
        for row, hold in holds_by_row(self.ledger.layout, promise.tasks, promise.end):
            self._promised_to.setdefault(row, []).append((project, promise.end))
            columns = {column for column, _ in hold.shares}
            self._occupied.setdefault(row, []).append((len(columns), promise.end))
            self._taken[row] += (hold.vcpus, hold.memory_mib)
            for column, _ in hold.shares:
                self._behind[row, column] = max(self._behind[row, column], promise.end)

    def estimating(self) -> Future:
        """A copy for estimates: what it is told to occupy binds nobody."""
        self._catch_up()
        other = Future(self.now, self.ledger, self.holdings, self.reserved)
        other._base, other._behind = self._base, self._behind.copy()
        other._extra, other._taken = self._extra, self._taken.copy()
        other._occupied = {row: list(ends) for row, ends in self._occupied.items()}
        other._promised_to = {row: list(ends) for row, ends in self._promised_to.items()}
        return other

    def guards_without(self, job_id: str) -> Guards:
        """What promises keep, but for those of one job."""
        self._catch_up()
        guards = Guards(self.ledger, self.holdings, self._base, self._extra)
        for promise in (*self.promises, *self._held):
            if promise.job_id != job_id:
                guards.add(promise, promise.job_id in self.guards.whole_nodes)
        return guards

    def earliest(
        self, job: PendingJob, where: Sequence[Candidates], runtime: float
    ) -> tuple[float, Tasks] | None:
        """The moment after now at which the job's least gang fits for ``runtime`` seconds, with
        places. None: not while what runs without a limit runs."""
        self._catch_up()
        best: tuple[float, Tasks] | None = None
        for one in where:
            if one.most < job.request.min_count:
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
        free_at = self._device_times(request, where)
        groups = self._group_numbers(where) if level == "link_group" else (None,)
        best: tuple[float, list[tuple[int, int]], int | None] | None = None
        for group in groups:
            times = self._task_times(request, where, self._of_group(free_at, where, group), most)
            times = self._clear_of_reservations(job, where, times, runtime)
            found = _first(times, count, most, level, self._domains(where, level))
            if found is not None and (best is None or found[0] < best[0]):
                best = (*found, group)
        if best is None:
            return None
        start, pieces, group = best
        return start, self._tasks(request, where, free_at, pieces, group)

    def _device_times(self, request: Request, where: Candidates) -> Floats:
        """(n, D): when each device of the right kind is wholly free."""
        rows = where.rows
        fit = right_kind(self.ledger, request, rows)
        if request.gpu_memory_mib is not None:
            fit = fit & (share_milli(self.ledger, request, rows) <= 1000)
        times = np.where(fit, np.maximum(self._behind[rows], self.now + 1), FOREVER)
        times[~self.ledger.ready[rows]] = FOREVER
        return times

    def _group_numbers(self, where: Candidates) -> Sequence[int]:
        groups = self.ledger.layout.device_group[where.rows]
        return range(int(groups.max(initial=NOBODY)) + 1)

    def _of_group(self, times: Floats, where: Candidates, group: int | None) -> Floats:
        if group is None:
            return times
        return np.where(self.ledger.layout.device_group[where.rows] == group, times, FOREVER)

    def _domains(self, where: Candidates, level: str | None) -> Ints | None:
        if level in (None, "node", "link_group"):
            return None
        return self.ledger.layout.domains[str(level)][where.rows]

    def _task_times(
        self, request: Request, where: Candidates, free_at: Floats, count: int
    ) -> Floats:
        """(n, J): when each node holds 1, 2, ... J tasks, J at most ``count``."""
        nodes, width = free_at.shape
        if request.whole:
            most = min(count, width // request.whole)
            times = np.sort(free_at, axis=1)[:, request.whole - 1 :: request.whole][:, :most]
        elif request.shared:
            each = 1
            if request.gpu_memory_mib is None:
                each = min(count, 1000 // request.gpu_milli)
            times = np.sort(np.repeat(free_at, each, axis=1), axis=1)[:, :count]
        else:
            times = np.full((nodes, min(count, MAX_TASKS_PER_NODE)), self.now + 1)
            times[~self.ledger.ready[where.rows]] = FOREVER
        return np.maximum(times, self._host_times(request, where, times.shape[1]))

    def _host_times(self, request: Request, where: Candidates, most: int) -> Floats:
        """(n, J): when CPUs, memory, task slots and neighbours of each node allow 1..J tasks."""
        released = self._released_in(where)
        rows = where.rows
        times = np.full((rows.stop - rows.start, most), ALREADY)
        taken = self._taken[rows]
        for number in range(1, most + 1):
            for need, free in (
                (request.vcpus * number, released.cpus - taken[:, :1]),
                (request.memory_mib * number, released.memory - taken[:, 1:]),
                (number, released.tasks),
            ):
                if need and int(free[:, 0].min(initial=need)) < need:
                    column = times[:, number - 1]
                    times[:, number - 1] = np.maximum(column, _when(free >= need, released.ends))
        alone = self.ledger.layout.isolation_node[rows]
        if alone.any():
            occupant = self.ledger.occupant[rows]
            others = alone & (occupant != NOBODY) & (occupant != where.project)
            times[others] = np.maximum(times[others], released.last[others][:, None])
            for row, promised in self._promised_to.items():
                if rows.start <= row < rows.stop and alone[row - rows.start]:
                    until = [end for project, end in promised if project != where.project]
                    at = row - rows.start
                    times[at] = np.maximum(times[at], max(until, default=ALREADY))
        return times

    def _released_in(self, where: Candidates) -> _Released:
        if where.pool not in self._released:
            self._released[where.pool] = self._release(where.rows)
        return self._released[where.pool]

    def _release(self, rows: slice) -> _Released:
        holds = [
            sorted(
                (*self.holdings.rows[row].values(), *self._extra.get(row, ())),
                key=lambda hold: hold.end,
            )
            for row in range(rows.start, rows.stop)
        ]
        width = max((len(here) for here in holds), default=0)
        ends = np.full((len(holds), width), FOREVER)
        freed = np.zeros((3, len(holds), width + 1), dtype=np.int64)
        for at, here in enumerate(holds):
            for number, hold in enumerate(here):
                ends[at, number] = hold.end
                freed[:, at, number + 1] = (hold.vcpus, hold.memory_mib, hold.tasks)
        sums = np.cumsum(freed, axis=2)
        ledger = self.ledger
        return _Released(
            ends,
            ledger.cpus[rows][:, None] + sums[0],
            ledger.memory[rows][:, None] + sums[1],
            MAX_TASKS_PER_NODE - ledger.tasks[rows][:, None] + sums[2],
            np.where(ends < FOREVER, ends, ALREADY).max(axis=1, initial=ALREADY)
            if not np.isinf(ends).any()
            else _last(holds),
        )

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
        free_at: Floats,
        pieces: list[tuple[int, int]],
        group: int | None,
    ) -> Tasks:
        """The tasks on the devices that are free first."""
        layout = self.ledger.layout
        milli = share_milli(self.ledger, request, where.rows) if request.shared else None
        tasks: list[TaskPlacement] = []
        for at, count in pieces:
            row = where.rows.start + at
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


def these_devices(request: Request) -> bool:
    """Whether not any devices of a node will do for the request: then all of the node are kept."""
    return request.required and request.within == "link_group"


def _last(holds: list[list[Hold]]) -> Floats:
    return np.array([here[-1].end if here else ALREADY for here in holds])


def _when(enough: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], ends: Floats) -> Floats:
    """(n,): the end after which there is enough for the first time (``enough`` only grows)."""
    short = (~enough).sum(axis=1)
    padded = np.concatenate(
        [np.full((len(ends), 1), ALREADY), ends, np.full((len(ends), 1), FOREVER)], axis=1
    )
    when: Floats = padded[np.arange(len(ends)), short]
    return when


def _first(
    times: Floats, count: int, most: int, level: str | None, domains: Ints | None
) -> tuple[float, list[tuple[int, int]]] | None:
    """(the first moment at which ``count`` tasks fit, [(node, tasks there)]): as many tasks as
    fit at that moment where ``most`` are wanted."""
    nodes, width = times.shape
    if not nodes or not width:
        return None
    if level in ("node", "link_group") or most == 1:
        return _on_one_node(times, count, most)
    flat = times.reshape(-1)
    inside = np.arange(flat.size)
    single: tuple[float, list[tuple[int, int]]] | None = None
    if domains is not None:
        # One node is within one of everything, labelled or not.
        single = _on_one_node(times, count, most)
        found = _best_domain(flat, np.repeat(domains, width), count)
        if found is None or (single is not None and single[0] <= float(flat[found[count - 1]])):
            return single
        inside = found
    elif flat.size < count:
        return None
    order = inside[np.argsort(flat[inside], kind="stable")]
    start = float(flat[order[count - 1]])
    if start == FOREVER:
        return None
    chosen = order[: int(np.searchsorted(flat[order[:most]], start, side="right"))]
    rows, counts = np.unique(chosen // width, return_counts=True)
    return start, [(int(row), int(number)) for row, number in zip(rows, counts, strict=True)]


def _on_one_node(
    times: Floats, count: int, most: int
) -> tuple[float, list[tuple[int, int]]] | None:
    """The same where one node has to hold all tasks."""
    if times.shape[1] < count:
        return None
    at = int(times[:, count - 1].argmin())
    start = float(times[at, count - 1])
    if start == FOREVER:
        return None
    return start, [(at, int(np.searchsorted(times[at, :most], start, side="right")))]


def _best_domain(flat: Floats, of: Ints, count: int) -> Ints | None:
    """The places of the domain in which ``count`` tasks fit first, the soonest first."""
    order = np.lexsort((flat, of))
    order = order[of[order] != NOBODY]
    grouped = of[order]
    if not grouped.size:
        return None
    starts = np.flatnonzero(np.r_[True, grouped[1:] != grouped[:-1]])
    ends = np.r_[starts[1:], len(grouped)]
    enough = np.flatnonzero(ends - starts >= count)
    if not enough.size:
        return None
    best = enough[int(flat[order[starts[enough] + count - 1]].argmin())]
    places: Ints = order[starts[best] : ends[best]]
    return places
