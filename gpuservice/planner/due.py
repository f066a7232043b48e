# SPDX-License-Identifier: Apache-2.0
"""From when on a waiting job is promised a start.

Found by experiment on logs of real GPU clusters. Nothing here is a number of hours: what counts is
the work that waits, so that the same rule holds for jobs of minutes and of weeks.

Gangs get promises of their own, early, since draining nodes for them costs little while short work
fills the gap: a gang waits for a part of the work that is smaller than itself, and the more so the
more of the cluster it takes, and the less of what waits is short beside what fills the nodes. Where
all limits are alike nothing fills the gap, and a gang waits for several times that work. Any other
job waits for the backlog of the moment: in a burst everything is older than any constant, and a
promise to all makes a first-come line of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from gpuservice.planner.ledger import Floats, Ints
from gpuservice.planner.line import UNLIMITED_S
from gpuservice.planner.snapshot import DueTimes
from gpuservice.planner.world import World

#: Which part of the waiting jobs counts as short, and below which part of the GPUs a time is not
#: yet a long one: a few jobs that are unlike all others decide nothing.
SHORT, LONG = 0.1, 0.9
#: Sums of weights are this exact.
TINY = 1e-9


def due_times(world: World, now: float, times: DueTimes, ratio: float) -> Mapping[str, float]:
    """Due times (seconds since the epoch) of the waiting gangs that have none yet; they are kept.
    The world's line has them as well, and those of all other jobs as of this moment.

    :param ratio: what the limits that make up the backlog are worth (``Snapshot.limit_ratio``).
    """
    line = world.line
    rows = np.flatnonzero(line.live)
    if not rows.size:
        return {}
    gang = world.columns.gang.take(line.shape.take(rows))
    areas = _areas(world, rows)
    worth = ratio / (1000.0 * world.gpus)
    small = rows.take(np.flatnonzero(~gang))
    line.due[small] = line.queued.take(small) + _wait_of_small(
        worth * float(areas.sum()), worth * _running(world, now), times
    )
    gangs = rows.take(np.flatnonzero(gang))
    fresh = line.in_order(gangs[np.isnan(line.due[gangs])])
    if not fresh.size:
        return {}
    part = line.milli[fresh] / (1000.0 * world.gpus)
    ahead = worth * _smaller(areas, _areas(world, fresh))
    alike = times.gang_alike * _alike(world, rows, now) ** 3
    own = line.queued[fresh] + ahead * (times.gang_least + times.gang_backlog * part**2 + alike)
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


def _alike(world: World, rows: Ints, now: float) -> float:
    """How much the short among what waits is like the long of what waits and runs, 0..1: 1 where
    nothing is short enough to fill nodes that are drained. The short: a tenth of the jobs has no
    longer limit. The long: what no more than a tenth of the GPUs exceeds, of those that are asked
    for or of those that are taken."""
    limits, taken = world.line.runtime(rows), world.running.columns[:, 1]
    long = max(
        _quantile(limits, world.line.milli[rows], LONG),
        _quantile(_left(world, now), taken, LONG),
    )
    return min(1.0, _quantile(limits, np.ones(len(rows)), SHORT) / long)


def _quantile(values: Floats, weights: Floats, part: float) -> float:
    """The least of the values that, with all below it, has so large a part of the weight."""
    order = np.argsort(values)
    sums = np.cumsum(weights[order])
    if not sums.size or sums[-1] <= 0:
        return 0.0
    place = int(np.searchsorted(sums, part * sums[-1] * (1.0 - TINY)))
    return float(values[order[min(place, len(order) - 1)]])


def _areas(world: World, rows: Ints) -> Floats:
    """(n,): milli-GPU-seconds that jobs may take, by their limits."""
    return world.line.area.take(rows)


def _running(world: World, now: float) -> float:
    """Milli-GPU-seconds that what runs may still take."""
    return float((world.running.columns[:, 1] * _left(world, now)).sum())


def _left(world: World, now: float) -> Floats:
    """(n,): how long what runs may still take (seconds), by number of the gang."""
    ends = world.running.columns[:, 2]
    left: Floats = np.maximum(np.where(np.isinf(ends), UNLIMITED_S, ends - now), 0.0)
    return left


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
