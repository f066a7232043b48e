# SPDX-License-Identifier: Apache-2.0
"""Which of several nodes that hold a task equally well it should have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gpuservice.planner.holds import ALREADY
from gpuservice.planner.ledger import Bools, Floats, Ints


@dataclass(frozen=True, slots=True)
class Ends:
    """When GPUs come free, and when a task would end.

    ``healthy`` (N, D); ``free_at``: tells (N, D) when each device is wholly free, as ``Present``.
    """

    healthy: Bools
    free_at: Callable[[], Floats]
    end: float

    def best(self, rows: Sequence[int] | Ints) -> int:
        """The node that the task keeps from being wholly free for the shortest time: gangs of
        whole nodes wait until the last of a node's tasks has ended. Of nodes that are taken for
        longer than the task runs, the one that is free first; then the first."""
        until = np.where(self.healthy[rows], self.free_at()[rows], ALREADY)
        until = until.max(axis=1, initial=ALREADY)  # there may be no device on any node
        longer = np.flatnonzero(until >= self.end)
        at = longer[until[longer].argmin()] if longer.size else until.argmax()
        return int(rows[int(at)])


@dataclass(frozen=True, slots=True)
class Wish:
    """``spread``: tasks want the emptiest nodes. ``ends`` decides among equal ones; without them it
    is the first: where some may have to go, those that cannot are not scattered over all nodes."""

    spread: bool = False
    ends: Ends | None = None

    def of(self, rows: Sequence[int] | Ints) -> int:
        """One of some nodes that are equally full."""
        if self.ends is None or len(rows) == 1:
            return int(rows[0])
        return self.ends.best(rows)


ANYWHERE = Wish()
