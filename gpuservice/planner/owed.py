# SPDX-License-Identifier: Apache-2.0
"""Queues that are behind by more than their next job.

Whose turn it is says who is tried first, not who starts: where one queue sends jobs of a whole
node and another small ones, the small ones take whatever becomes free, and the first queue never
comes to its share. So the head of a queue that would still be behind another waiting one with that
job charged to it is promised a start like a job that is due.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpuservice.planner.ledger import Floats, Ints
from gpuservice.planner.levels import QUEUE
from gpuservice.planner.line import distinct

if TYPE_CHECKING:
    from gpuservice.planner.passes import Pass

#: Heads that are tried in one pass without one of them starting.
MOST_HEADS = 4


def give_owed(state: Pass, rows: Ints, key: Floats | None) -> list[int]:
    """Start the heads of queues that are owed, or promise them a start.

    :param key: the order inside a queue (None: the line's).
    :returns: the places among ``rows`` of those that were tried.
    """
    policy, line, levels = state.policy, state.world.line, state.world.levels
    if policy.order != "fair" or policy.due is None or not policy.backfill or not policy.promises:
        return []
    shares = line.share.take(rows)
    level_of = levels.paths[:, QUEUE]
    waiting = distinct(level_of[distinct(shares)]) if rows.size else []
    if len(waiting) < 2:
        return []
    tried: list[int] = []
    passed: list[int] = []
    while len(passed) < min(MOST_HEADS, len(waiting)):
        usage = state.fair.all_per_weight()[waiting]
        most = float(usage.max())
        usage[passed] = np.inf
        least = float(usage.min())
        at = min(
            np.flatnonzero(usage == least).tolist(), key=lambda at: levels.queue_id(waiting[at])
        )
        mine = level_of == waiting[at]
        of_queue = np.flatnonzero(mine[shares])
        if tried:
            of_queue = of_queue[~np.isin(of_queue, tried)]
        if not of_queue.size:
            passed.append(at)
            continue
        place = _first(state, rows, of_queue, key)
        row = int(rows[place])
        name = levels.queue_id(waiting[at])
        if least + state.fair.cost(name, line.milli[row], line.limit[row]) >= most:
            break
        tried.append(place)
        before = len(state.starts)
        state.front(row)
        if len(state.starts) == before:
            passed.append(at)
    return tried


def _first(state: Pass, rows: Ints, places: Ints, key: Floats | None) -> int:
    """The place of the first row of a queue."""
    if key is not None:
        places = places[key[places] == key[places].min()]
    first = int(state.world.line.in_order(rows[places])[0])
    return int(places[np.flatnonzero(rows[places] == first)[0]])
