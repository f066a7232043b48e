# SPDX-License-Identifier: Apache-2.0
"""From when on a waiting job is promised a start.

Found by experiment on logs of real GPU clusters: gangs are promised a start of their own early,
since draining nodes for them costs little while short work fills the gap; other jobs late, by the
backlog they met, since in a burst everything is older than any constant.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gpuservice.planner.ledger import Ints
from gpuservice.planner.line import UNLIMITED_S
from gpuservice.planner.snapshot import DueTimes
from gpuservice.planner.world import World

_HOUR_S = 3600.0


def due_times(world: World, now: float, times: DueTimes, ratio: float) -> Mapping[str, float]:
    """Due times (seconds since the epoch) of the waiting jobs that have none yet; they are kept
    in the world's line as well.

    :param ratio: what the limits that make up the backlog are worth (``Snapshot.limit_ratio``).
    """
    line = world.line
    rows = np.flatnonzero(line.live & np.isnan(line.due))
    if not rows.size:
        return {}
    rows = line.in_order(rows)
    known = np.flatnonzero(line.live & ~np.isnan(line.due))
    backlog = _running(world, now) + _area(world, known)
    found: dict[str, float] = {}
    for row in rows.tolist():
        backlog += _area(world, np.array([row]))
        met = ratio * backlog / (1000.0 * world.gpus * _HOUR_S)
        part = float(line.milli[row]) / (1000.0 * world.gpus)
        if world.shapes[int(line.shape[row])].gang:
            age = times.gang_h + (times.gang_share_h + times.gang_backlog * met) * part
        else:
            age = times.small_h + times.small_backlog * met
        due = max(float(line.queued[row]) + age * _HOUR_S, _of_equals(world, row))
        line.due[row] = due
        found[line.job(row).job_id] = due
    return found


def _area(world: World, rows: Ints) -> float:
    """Milli-GPU-seconds that jobs may take, by their limits."""
    return float((world.line.runtime(rows) * world.line.milli[rows]).sum())


def _running(world: World, now: float) -> float:
    """Milli-GPU-seconds that what runs may still take."""
    columns = world.columns
    left = np.where(np.isinf(columns[:, 2]), UNLIMITED_S, columns[:, 2] - now)
    return float((columns[:, 1] * np.maximum(left, 0.0)).sum())


def _of_equals(world: World, row: int) -> float:
    """The latest due time of equal jobs that wait already: equal jobs keep their order."""
    line = world.line
    equal = (
        line.live
        & (line.shape == line.shape[row])
        & (line.share == line.share[row])
        & (line.tier == line.tier[row])
        & (line.limit == line.limit[row])
        & (line.queued <= line.queued[row])
        & ~np.isnan(line.due)
    )
    return float(line.due[equal].max(initial=float("-inf")))
