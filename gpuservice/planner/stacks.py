# SPDX-License-Identifier: Apache-2.0
"""The nodes of a pool by how many of their devices are wholly free."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence


class Stacks:
    """Rows by number of free devices, ascending in each stack: the node that a task fills most
    tightly is found from its own stack on, without looking at the others."""

    def __init__(self, start: int, free: Iterable[int], most: int) -> None:
        self._start = start
        self._free = list(free)
        self._rows: list[list[int]] = [[] for _ in range(most + 1)]
        for at, count in enumerate(self._free):
            self._rows[count].append(start + at)

    def move(self, row: int, free: int) -> None:
        """A node has another number of free devices."""
        at = row - self._start
        before = self._free[at]
        if before != free:
            old = self._rows[before]
            del old[bisect_left(old, row)]
            insort(self._rows[free], row)
            self._free[at] = free

    def from_tightest(self, least: int) -> Iterator[tuple[Sequence[int], bool]]:
        """The stacks with at least so many, the fewest first; whether nothing of it is taken."""
        last = len(self._rows) - 1
        for number in range(least, last + 1):
            rows = self._rows[number]
            if rows:
                yield rows, number == last
