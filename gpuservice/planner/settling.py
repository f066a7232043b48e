# SPDX-License-Identifier: Apache-2.0
"""Which devices of one node the bookings on it get, one after another in the order of their starts.

Whole GPUs are alike, so for them counting is enough (:mod:`gpuservice.planner.guards`). A share may
sit beside other shares of its project, and a gang within one link group cannot take any devices:
where these meet bookings the devices are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gpuservice.planner.bookings import Use
from gpuservice.planner.holds import Hold
from gpuservice.planner.ledger import NOBODY, Floats, Layout

#: Milli-GPUs of a device.
WHOLE = 1000


class Devices:
    """The devices of one node over time: who has what of each until when."""

    __slots__ = ("_groups", "_held", "_works", "until")

    def __init__(self, layout: Layout, row: int, free_at: Floats, holds: Iterable[Hold]) -> None:
        #: When each is wholly free.
        self.until: list[float] = free_at.tolist()
        self._groups = layout.groups[row]
        self._works: list[bool] = layout.healthy[row].tolist()
        #: By device: (end, milli-GPUs, project).
        self._held: list[list[tuple[float, int, int]]] = [[] for _ in self.until]
        for hold in holds:
            for column, milli in hold.shares:
                self._held[column].append((hold.end, milli, hold.project))

    def copy(self) -> Devices:
        """Devices to try things with."""
        other = Devices.__new__(Devices)
        other.until, other._groups, other._works = list(self.until), self._groups, self._works
        other._held = [list(held) for held in self._held]
        return other

    def hold(self, column: int, end: float, milli: int, project: int) -> None:
        """Something more has part of a device until ``end``."""
        self._held[column].append((end, milli, project))
        if self.until[column] < end:
            self.until[column] = end

    def lacking(self, uses: Sequence[Use]) -> int:
        """How many of the uses (by start) do not get their devices in time."""
        return self.copy().settle(uses) if uses else 0

    def settle(self, uses: Sequence[Use]) -> int:
        """Give each of the uses (by start) its devices; how many got some that are not free by
        then. Each keeps those that it names, or, where that leaves fewer late, takes any."""
        found = []
        for by_name in (True, False):
            trial = self.copy()
            late = sum(
                not (trial._together if use.whole_node else trial._anywhere)(use, by_name)
                for use in uses
            )
            found.append((late, not by_name, trial))
            if not late:
                break
        late, _, best = min(found, key=lambda one: one[:2])
        self.until, self._held = best.until, best._held
        return late

    def _anywhere(self, use: Use, by_name: bool) -> bool:
        return self._give(use, range(len(self.until)), by_name)

    def _together(self, use: Use, by_name: bool) -> bool:
        """All of a use within one link group, its own if that will do."""
        numbers = sorted(
            set(self._groups) - {NOBODY},
            key=lambda group: (all(self._groups[one] != group for one in use.columns), group),
        )
        for group in numbers:
            trial = self.copy()
            if trial._give(use, self._of(group), by_name):
                self.until, self._held = trial.until, trial._held
                return True
        if numbers:
            self._give(use, self._of(numbers[0]), by_name)
        return False

    def _of(self, group: int) -> Sequence[int]:
        return [column for column, of in enumerate(self._groups) if of == group]

    def _give(self, use: Use, columns: Sequence[int], by_name: bool) -> bool:
        """Give a use some of these devices; whether in time."""
        if not columns:
            return not use.gpus
        if use.shares:
            got = [self._give_share(use, milli, columns, by_name) for milli in use.shares]
            return all(got)
        until, start = self.until, use.start
        order = sorted(
            columns,
            key=lambda one: (
                until[one] > start, by_name and one not in use.columns, until[one], one,
            ),
        )  # fmt: skip
        chosen = order[: use.gpus]
        in_time = len(chosen) == use.gpus and all(until[one] <= start for one in chosen)
        for column in chosen:
            self.hold(column, use.end, WHOLE, use.project)
        return in_time

    def _give_share(self, use: Use, milli: int, columns: Sequence[int], by_name: bool) -> bool:
        """One share: on the fullest device that has room beside others of the project, else on
        one that is wholly free."""
        loads = {column: self._load(column, use, milli) for column in columns}
        fits = [column for column in columns if loads[column] is not None]
        if by_name:
            fits = [column for column in fits if column in use.columns] or fits
        if fits:
            column = max(fits, key=lambda one: (loads[one] or 0, -self.until[one], -one))
        else:
            column = min(columns, key=lambda one: (self.until[one], one))
        self.hold(column, use.end, milli, use.project)
        return bool(fits)

    def _load(self, column: int, use: Use, milli: int) -> int | None:
        """What a device holds when a use of the same project starts there; None: no room."""
        if self.until[column] <= use.start:
            return 0
        there = [held for held in self._held[column] if held[0] > use.start]
        if not there or not self._works[column] or any(held[2] != use.project for held in there):
            return None
        load = sum(held[1] for held in there)
        return load if load + milli <= WHOLE else None

    # -- what is left for something that starts now ---------------------------------------------
    def room(
        self,
        uses: Sequence[Use],
        slots: Sequence[int],
        milli: Sequence[int],
        most: int,
        project: int,
        end: float,
        together: bool,
    ) -> list[int]:
        """How many of its ``slots`` each device gives to something that ends at ``end`` so that no
        use goes without that does not anyway; ``most`` in all.

        :param milli: what one slot of each device takes.
        :param together: all within one link group, the one with the most room.
        """
        named = {column for use in uses for column in use.columns}
        load = [sum(held[1] for held in self._held[column]) for column in range(len(slots))]
        order = sorted(
            (column for column, room in enumerate(slots) if room > 0),
            key=lambda one: (-min(slots[one], most), one in named, -load[one], one),
        )
        lacking = self.lacking(uses)

        def may(trial: Devices) -> bool:
            return trial.lacking(uses) <= lacking

        if not together:
            return self._room_on(order, slots, milli, most, project, end, may)
        found = [
            self._room_on(
                [column for column in order if self._groups[column] == group],
                slots, milli, most, project, end, may,
            )
            for group in sorted(set(self._groups) - {NOBODY})
        ]  # fmt: skip
        return max(found, key=sum, default=[0] * len(slots))

    def _room_on(
        self,
        order: Iterable[int],
        slots: Sequence[int],
        milli: Sequence[int],
        most: int,
        project: int,
        end: float,
        may: Callable[[Devices], bool],
    ) -> list[int]:
        taken = [0] * len(slots)
        devices = self
        for column in order:
            for _ in range(min(slots[column], most - sum(taken))):
                trial = devices.copy()
                trial.hold(column, end, milli[column], project)
                if not may(trial):
                    break
                devices = trial
                taken[column] += 1
        return taken
