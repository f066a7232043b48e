# SPDX-License-Identifier: Apache-2.0
"""Which requests come: counts of their shapes, from a whole list or arrival by arrival."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

#: A whole GPU in milli-GPU.
WHOLE = 1000


class Shape(NamedTuple):
    """What one task asks of one node."""

    #: Host CPU in milli-cores.
    cores_milli: int
    #: Number of GPUs; 0 for a task that needs none.
    devices: int
    #: Of each GPU, in milli-GPU: 1000 is a whole one.
    milli: int
    #: Indices of the GPU models it may run on, sorted; empty when any will do.
    models: tuple[int, ...] = ()

    @property
    def total_milli(self) -> int:
        """All it asks of GPUs, in milli-GPU."""
        return self.devices * self.milli


class Mix:
    """Counts of the shapes seen so far, and when to learn from them anew.

    Learning costs some milliseconds and its result changes ever less, so it is due when the count
    has grown by ``growth`` since the last time, and not before ``first`` arrivals.
    """

    def __init__(
        self, shapes: Iterable[Shape] = (), *, first: int = 20, growth: float = 1.5
    ) -> None:
        if first < 1 or growth <= 1.0:
            raise ValueError("a mix is learned from 1 arrival or more, at growing intervals")
        self.counts: dict[Shape, int] = {}
        self.total = 0
        self._growth = growth
        self._due_at = first
        for shape in shapes:
            self.add(shape)

    def add(self, shape: Shape, times: int = 1) -> None:
        """Count ``times`` more requests of this shape."""
        self.counts[shape] = self.counts.get(shape, 0) + times
        self.total += times

    def due(self) -> bool:
        """Whether it is time to learn; once it said so, the next time is set further off."""
        if self.total < self._due_at:
            return False
        self._due_at = max(self.total + 1, int(self.total * self._growth))
        return True

    def typical(self, share: float = 1.0) -> list[tuple[Shape, int]]:
        """The most frequent shapes that make up ``share`` of all requests, most frequent first.

        Equal counts are in the order of the shapes, so that equal mixes give equal lists.
        """
        chosen: list[tuple[Shape, int]] = []
        covered = 0
        for shape, count in sorted(self.counts.items(), key=lambda item: (-item[1], item[0])):
            if covered >= share * self.total:
                break
            chosen.append((shape, count))
            covered += count
        return chosen
