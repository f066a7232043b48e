# SPDX-License-Identifier: Apache-2.0
"""When each device is wholly free, behind what runs and all that is booked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from gpuservice.planner.capacity import Candidates, Rows, right_kind, share_milli
from gpuservice.planner.holds import FOREVER
from gpuservice.planner.ledger import NOBODY, Floats, Ledger
from gpuservice.planner.snapshot import Request


class DeviceTimes:
    """``times`` (N, D): of each device; ``FOREVER`` for absent ones.

    Each row is kept in order as well, since what asks when so many devices are free asks for
    nothing else: rows that changed are put in order again when somebody asks.
    """

    def __init__(self, ledger: Ledger, times: Floats) -> None:
        self._ledger = ledger
        self.times = times
        self._ordered: Floats | None = None
        self._stale: set[int] = set()
        self._kinds: dict[tuple[str, tuple[str, ...], int], tuple[bool, bool]] = {}

    def copy(self) -> DeviceTimes:
        """Times to book things in that bind nobody."""
        self._in_order()
        other = DeviceTimes(self._ledger, self.times.copy())
        other._ordered = None if self._ordered is None else self._ordered.copy()
        other._kinds = self._kinds
        return other

    def set(self, row: int, times: ArrayLike) -> None:
        """The devices of a row are free at these times."""
        self.times[row] = times
        self._stale.add(row)

    def hold(self, rows: Sequence[int], columns: Sequence[int], ends: Sequence[float]) -> None:
        """Some devices are held until these times at least."""
        np.maximum.at(self.times, (rows, columns), ends)
        self._stale.update(rows)

    def of_kind(self, request: Request, rows: Rows) -> Floats:
        """(n, D): of the devices of rows; ``FOREVER`` for those of another kind than wanted."""
        if not (request.gpu_types or request.min_gpu_memory_mib or request.gpu_memory_mib):
            times = self.times[rows]
            ready = self._ledger.ready[rows]
            return times if ready.all() else np.where(ready[:, None], times, FOREVER)
        fit = right_kind(self._ledger, request, rows)
        if request.gpu_memory_mib is not None:
            fit = fit & (share_milli(self._ledger, request, rows) <= 1000)
        times = np.where(fit, self.times[rows], FOREVER)
        times[~self._ledger.ready[rows]] = FOREVER
        return times

    def soonest(self, request: Request, where: Candidates) -> Floats:
        """(n, D): the same, those that are free first before others."""
        if request.gpu_memory_mib is not None or not self._kind(request, where)[1]:
            return np.sort(self.of_kind(request, where.rows), axis=1)
        ordered = self._in_order()[where.rows]
        ready = self._ledger.ready[where.rows]
        return ordered if ready.all() else np.where(ready[:, None], ordered, FOREVER)

    def nowhere(self, request: Request, where: Candidates) -> bool:
        """Whether a pool has no device of the kind that is wanted."""
        return bool(request.whole or request.shared) and not self._kind(request, where)[0]

    def _kind(self, request: Request, where: Candidates) -> tuple[bool, bool]:
        """Whether any, and whether every device of a pool is of the kind that is wanted."""
        key = (where.pool, request.gpu_types, request.min_gpu_memory_mib)
        known = self._kinds.get(key)
        if known is None:
            there = self._ledger.layout.device_type[where.rows] != NOBODY
            fit = right_kind(self._ledger, request, where.rows)
            known = self._kinds[key] = bool(fit.any()), not (there & ~fit).any()
        return known

    def _in_order(self) -> Floats:
        ordered = self._ordered
        if ordered is None:
            ordered = self._ordered = np.sort(self.times, axis=1)
        elif self._stale:
            rows = sorted(self._stale)
            ordered[rows] = np.sort(self.times[rows], axis=1)
        self._stale.clear()
        return ordered
