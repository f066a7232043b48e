# SPDX-License-Identifier: Apache-2.0
"""Who holds what until when: the running gangs by node, and when each device is wholly free."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from gpuservice.planner.ledger import Floats, Layout
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
    for task in tasks:
        row = layout.node_row.get(task.node_id)
        if row is not None:
            by_row.setdefault(row, []).append(task)
    return [
        (
            row,
            Hold(
                end,
                sum(task.vcpus for task in here),
                sum(task.memory_mib for task in here),
                len(here),
                tuple(
                    (layout.device_cell[device][1], milli)
                    for task in here
                    for device, milli in task.devices
                    if device in layout.device_cell
                ),
                project,
            ),
        )
        for row, here in by_row.items()
    ]


def end_of(gang: RunningGang) -> float:
    """When a gang has to be gone; ``FOREVER`` without a limit."""
    return FOREVER if gang.promised_end is None else gang.promised_end


def gone_at(end: float, now: float) -> float:
    """When something is gone: at its end, or, late with that, the next moment for all one knows."""
    return end if end > now else now + 1


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

    def add(self, gang_id: str, tasks: Iterable[TaskPlacement], end: float, project: int) -> None:
        """A gang of a project holds its places until ``end``."""
        for row, hold in holds_by_row(self._layout, tasks, end, project):
            self.rows[row][gang_id] = hold
            for column, _ in hold.shares:
                if self.free_at[row, column] < end:
                    self.free_at[row, column] = end

    def remove(self, gang_id: str, tasks: Iterable[TaskPlacement]) -> None:
        """A gang is gone."""
        for row in {self._layout.node_row.get(task.node_id) for task in tasks} - {None}:
            assert row is not None
            self.rows[row].pop(gang_id, None)
            self._recount(row)

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

    def started(self, row: int, hold: Hold) -> None:
        """Something was started on a row."""
        self._started.setdefault(row, []).append(hold)
        self._until(row, hold)

    def goes(self, gang_id: str, rows: Iterable[int]) -> None:
        """A running gang goes for others: it is gone the next moment."""
        self._going.add(gang_id)
        for row in rows:
            self.free_at[row] = np.where(self._holdings.healthy[row], ALREADY, FOREVER)
            for hold in self.holds(row):
                self._until(row, hold)

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
