# SPDX-License-Identifier: Apache-2.0
"""Who holds what until when: the running gangs by node, and when each device is wholly free."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from gpuservice.planner.ledger import Floats, Ints, Layout
from gpuservice.planner.snapshot import RunningGang, TaskPlacement

FOREVER = float("inf")
#: When a device is free that is free already.
ALREADY = float("-inf")


@dataclass(frozen=True, slots=True)
class Hold:
    """What one gang holds of one node."""

    end: float
    vcpus: int
    memory_mib: int
    tasks: int
    shares: tuple[tuple[int, int], ...]  # (device column, milli)
    project: int


def holds_by_row(
    layout: Layout, tasks: Iterable[TaskPlacement], end: float, project: int
) -> list[tuple[int, Hold]]:
    """What a gang's tasks hold, by row; tasks on nodes that are not there hold nothing here."""
    by_row: dict[int, list[TaskPlacement]] = {}
    cells = layout.device_cell
    if isinstance(tasks, tuple) and len(tasks) == 1:  # as most are
        one = tasks[0]
        row = layout.node_row.get(one.node_id)
        if row is None:
            return []
        held = tuple([(cells[name][1], milli) for name, milli in one.devices if name in cells])
        return [(row, Hold(end, one.vcpus, one.memory_mib, 1, held, project))]
    for task in tasks:
        row = layout.node_row.get(task.node_id)
        if row is not None:
            by_row.setdefault(row, []).append(task)
    found: list[tuple[int, Hold]] = []
    for row, here in by_row.items():
        vcpus = memory_mib = 0
        shares: list[tuple[int, int]] = []
        for task in here:
            vcpus += task.vcpus
            memory_mib += task.memory_mib
            for device, milli in task.devices:
                cell = cells.get(device)
                if cell is not None:
                    shares.append((cell[1], milli))
        found.append((row, Hold(end, vcpus, memory_mib, len(here), tuple(shares), project)))
    return found


def end_of(gang: RunningGang) -> float:
    """When a gang has to be gone; ``FOREVER`` without a limit."""
    return FOREVER if gang.promised_end is None else gang.promised_end


def gone_at(end: float, now: float) -> float:
    """When something is gone: at its end, or, late with that, the next moment for all one knows."""
    return end if end > now else now + 1


class Profile:
    """What comes free on some nodes as what runs there ends, by node: ``ends`` (n, H) ascending,
    ``freed`` (3, n, H) CPUs, memory and tasks at each of them; ``count`` (n,) how many there are.
    """

    def __init__(self, rows: int) -> None:
        self.ends: Floats = np.full((rows, 0), FOREVER)
        self.freed: Ints = np.zeros((3, rows, 0), dtype=np.int64)
        self.count: Ints = np.zeros(rows, dtype=np.int64)

    def of(self, rows: slice) -> Profile:
        """A copy of some rows, to be changed."""
        other = Profile(0)
        other.ends = self.ends[rows].copy()
        other.freed = self.freed[:, rows].copy()
        other.count = self.count[rows].copy()
        return other

    def set(self, at: int, holds: Iterable[Hold]) -> None:
        """These hold something of a node."""
        ordered = sorted(holds, key=lambda hold: hold.end)
        more = len(ordered) - self.ends.shape[1]
        if more > 0:
            rows = len(self.ends)
            self.ends = np.concatenate([self.ends, np.full((rows, more), FOREVER)], axis=1)
            zeros = np.zeros((3, rows, more), dtype=np.int64)
            self.freed = np.concatenate([self.freed, zeros], axis=2)
        self.ends[at], self.freed[:, at] = FOREVER, 0
        for number, hold in enumerate(ordered):
            self.ends[at, number] = hold.end
            self.freed[:, at, number] = (hold.vcpus, hold.memory_mib, hold.tasks)
        self.count[at] = len(ordered)

    def last(self) -> Floats:
        """(n,): when nothing runs any more."""
        if not self.ends.shape[1]:
            return np.full(len(self.count), ALREADY)
        ends = self.ends[np.arange(len(self.count)), np.maximum(self.count - 1, 0)]
        last: Floats = np.where(self.count > 0, ends, ALREADY)
        return last


class Holdings:
    """Holds of every row, kept as gangs come and go.

    ``free_at`` (N, D): when each device is wholly free; ``ALREADY``, or ``FOREVER`` (also for
    absent and unhealthy ones).
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.healthy = layout.healthy
        self.rows: list[dict[str, Hold]] = [{} for _ in layout.nodes]
        self.free_at: Floats = np.where(layout.healthy, ALREADY, FOREVER)
        self._profile = Profile(len(layout.nodes))
        self._stale: set[int] = set()

    def add(self, gang_id: str, tasks: Iterable[TaskPlacement], end: float, project: int) -> None:
        """A gang of a project holds its places until ``end``."""
        for row, hold in holds_by_row(self._layout, tasks, end, project):
            self.rows[row][gang_id] = hold
            self._stale.add(row)
            for column, _ in hold.shares:
                if self.free_at[row, column] < end:
                    self.free_at[row, column] = end

    def remove(self, gang_id: str, tasks: Iterable[TaskPlacement]) -> None:
        """A gang is gone."""
        for row in {self._layout.node_row.get(task.node_id) for task in tasks} - {None}:
            assert row is not None
            self.rows[row].pop(gang_id, None)
            self._stale.add(row)
            self._recount(row)

    def profile(self, rows: slice) -> Profile:
        """What comes free on some rows; the caller may change it."""
        for row in self._stale:
            self._profile.set(row, self.rows[row].values())
        self._stale.clear()
        return self._profile.of(rows)

    def _recount(self, row: int) -> None:
        at = np.where(self._layout.healthy[row], ALREADY, FOREVER)
        for hold in self.rows[row].values():
            for column, _ in hold.shares:
                if at[column] < hold.end:
                    at[column] = hold.end
        self.free_at[row] = at


class Present:
    """Who holds what in one pass: what runs, without those that go for others from the next moment
    on, and what the plan itself has started.

    ``free_at`` (N, D): when each device is wholly free.
    """

    def __init__(self, now: float, holdings: Holdings) -> None:
        self.now = now
        self._holdings = holdings
        late = (holdings.free_at > ALREADY) & (holdings.free_at <= now)
        self.free_at: Floats = np.where(late, now + 1, holdings.free_at)
        self._started: dict[int, list[Hold]] = {}
        self._going: set[str] = set()
        self._left: set[int] = set()  # rows that some of those go from

    def started(self, row: int, hold: Hold) -> None:
        """Something was started on a row; the caller brings ``free_at`` up to date."""
        self._started.setdefault(row, []).append(hold)

    def goes(self, gang_id: str, rows: Iterable[int]) -> None:
        """A running gang goes for others: it is gone the next moment."""
        self._going.add(gang_id)
        for row in rows:
            self._left.add(row)
            self.free_at[row] = np.where(self._holdings.healthy[row], ALREADY, FOREVER)
            for hold in self.holds(row):
                self._until(row, hold)

    def profile(self, rows: slice) -> Profile:
        """What comes free on some rows: as it is kept, but where more was started, or somebody
        goes or is late."""
        profile = self._holdings.profile(rows)
        late = np.flatnonzero((profile.ends <= self.now).any(axis=1)) + rows.start
        for row in {*self._started, *self._left, *late.tolist()}:
            if rows.start <= row < rows.stop:
                profile.set(row - rows.start, self.holds(row))
        return profile

    def holds(self, row: int) -> list[Hold]:
        """What is held of a row, each until it is gone."""
        found: list[Hold] = []
        for gang_id, hold in self._holdings.rows[row].items():
            end = gone_at(hold.end, self.now)
            if gang_id in self._going:
                end = min(end, self.now + 1)
            found.append(hold if end == hold.end else replace(hold, end=end))
        found.extend(self._started.get(row, ()))
        return found

    def _until(self, row: int, hold: Hold) -> None:
        for column, _ in hold.shares:
            if self.free_at[row, column] < hold.end:
                self.free_at[row, column] = hold.end
