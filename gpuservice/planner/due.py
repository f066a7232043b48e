# SPDX-License-Identifier: Apache-2.0
"""From when on a waiting job is promised a start.

Found by experiment on logs of real GPU clusters. Nothing here is a number of hours: what counts is
the work that waits, so that the same rule holds for jobs of minutes and of weeks.

Gangs get promises of their own, early, since draining nodes for them costs little while short work
fills the gap: a gang waits for the work that is smaller than itself, and the more so the more of
the cluster it takes. Any other job waits for the backlog of the moment: in a burst everything is
older than any constant, and a promise to all makes a first-come line of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from gpuservice.planner.ledger import Floats, Ints
from gpuservice.planner.line import UNLIMITED_S
from gpuservice.planner.snapshot import DueTimes
from gpuservice.planner.world import World


def due_times(world: World, now: float, times: DueTimes, ratio: float) -> Mapping[str, float]:
    """Due times (seconds since the epoch) of the waiting gangs that have none yet; they are kept.
    The world's line has them as well, and those of all other jobs as of this moment.

    :param ratio: what the limits that make up the backlog are worth (``Snapshot.limit_ratio``).
    """
    line = world.line
    rows = np.flatnonzero(line.live)
    if not rows.size:
        return {}
    gang = np.array([shape.gang for shape in world.shapes], dtype=np.bool_)[line.shape[rows]]
    areas = _areas(world, rows)
    worth = ratio / (1000.0 * world.gpus)
    small = rows[~gang]
    line.due[small] = line.queued[small] + _wait_of_small(
        worth * float(areas.sum()), worth * _running(world, now), times
    )
    gangs = rows[gang]
    fresh = line.in_order(gangs[np.isnan(line.due[gangs])])
    if not fresh.size:
        return {}
    part = line.milli[fresh] / (1000.0 * world.gpus)
    ahead = worth * _smaller(areas, _areas(world, fresh))
    own = line.queued[fresh] + times.gang_backlog * ahead * part**2
    own += times.gang_limit * ratio * line.runtime(fresh)
    latest = _latest_of_equals(world, fresh, gangs[~np.isnan(line.due[gangs])])
    found: dict[str, float] = {}
    for row, alike, due in zip(fresh.tolist(), latest.classes, own.tolist(), strict=True):
        moment = max(due, latest.due.get(alike, float("-inf")))
        latest.due[alike] = moment
        line.due[row] = moment
        found[line.job(row).job_id] = moment
    return found


def _wait_of_small(waiting: float, running: float, times: DueTimes) -> float:
    """How long a job waits that is no gang before it is due (seconds), by what waits and what
    runs (both over all GPUs)."""
    if waiting <= 0:
        return 0.0
    calm = waiting / (waiting + times.calm * running)
    return times.small_backlog * waiting * calm + times.small_running * running


def _smaller(areas: Floats, own: Floats) -> Floats:
    """(n,): the work that waits in jobs no larger than each, itself left out."""
    ordered = np.sort(areas)
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    smaller: Floats = sums[np.searchsorted(ordered, own, side="right")] - own
    return smaller


def _areas(world: World, rows: Ints) -> Floats:
    """(n,): milli-GPU-seconds that jobs may take, by their limits."""
    areas: Floats = world.line.runtime(rows) * world.line.milli[rows]
    return areas


def _running(world: World, now: float) -> float:
    """Milli-GPU-seconds that what runs may still take."""
    columns = world.running.columns
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
