# SPDX-License-Identifier: Apache-2.0
"""From when on a waiting job is promised a start.

Found by experiment on logs of real GPU clusters: gangs are promised a start of their own early,
since draining nodes for them costs little while short work fills the gap; other jobs late, by the
backlog they met, since in a burst everything is older than any constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from gpuservice.planner.ledger import Floats, Ints
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
    before = _running(world, now) + float(_areas(world, known).sum())
    backlog = before + np.cumsum(_areas(world, rows))
    met = ratio * backlog / (1000.0 * world.gpus * _HOUR_S)
    part = line.milli[rows] / (1000.0 * world.gpus)
    gangs = np.array([shape.gang for shape in world.shapes], dtype=np.bool_)[line.shape[rows]]
    ages = np.where(
        gangs,
        times.gang_h + (times.gang_share_h + times.gang_backlog * met) * part,
        times.small_h + times.small_backlog * met,
    )
    due = line.queued[rows] + ages * _HOUR_S
    latest = _latest_of_equals(world, rows, known)
    found: dict[str, float] = {}
    for row, alike, own in zip(rows.tolist(), latest.classes, due.tolist(), strict=True):
        moment = max(own, latest.due.get(alike, float("-inf")))
        latest.due[alike] = moment
        line.due[row] = moment
        found[line.job(row).job_id] = moment
    return found


def _areas(world: World, rows: Ints) -> Floats:
    """(n,): milli-GPU-seconds that jobs may take, by their limits."""
    areas: Floats = world.line.runtime(rows) * world.line.milli[rows]
    return areas


def _running(world: World, now: float) -> float:
    """Milli-GPU-seconds that what runs may still take."""
    columns = world.columns
    left = np.where(np.isinf(columns[:, 2]), UNLIMITED_S, columns[:, 2] - now)
    return float((columns[:, 1] * np.maximum(left, 0.0)).sum())


class _Latest(NamedTuple):
    """The latest due time by class of equal jobs, and the class of each new row."""

    classes: list[int]
    due: dict[int, float]


def _latest_of_equals(world: World, rows: Ints, known: Ints) -> _Latest:
    """Due times of equal jobs that wait already: equal jobs keep their order."""
    line = world.line
    if len(rows) == 1:
        return _Latest([0], {0: _of_one(world, int(rows[0]), known)})
    both = np.concatenate([rows, known])
    numbers = np.zeros(len(both), dtype=np.int64)
    for column in (line.shape, line.share, line.tier, line.limit):
        _, number = np.unique(column[both], return_inverse=True)
        numbers = numbers * (int(number.max()) + 1) + number
    classes = numbers[: len(rows)]
    mine = np.isin(numbers[len(rows) :], classes)
    due: dict[int, float] = {}
    for alike, moment in zip(
        numbers[len(rows) :][mine].tolist(), line.due[known[mine]].tolist(), strict=True
    ):
        due[alike] = max(moment, due.get(alike, moment))
    return _Latest(classes.tolist(), due)


def _of_one(world: World, row: int, known: Ints) -> float:
    """The latest due time of those that wait and are equal to one job."""
    line = world.line
    alike = known[line.shape[known] == line.shape[row]]
    for column in (line.share, line.tier, line.limit):
        alike = alike[column[alike] == column[row]]
    return float(line.due[alike].max(initial=float("-inf")))
