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

if TYPE_CHECKING:
    from gpuservice.planner.passes import Pass

#: Heads that are tried in one pass without one of them starting.
MOST_HEADS = 4


def give_owed(state: Pass, rows: Ints, key: Floats | None) -> Ints:
    """Start the heads of queues that are owed, or promise them a start.

    :param key: the order inside a queue (None: the line's).
    :returns: the places among ``rows`` of those that were not tried.
    """
    policy, line = state.policy, state.world.line
    everything = np.arange(len(rows))
    if policy.order != "fair" or policy.due is None or not policy.backfill or not policy.promises:
        return everything
    queue_of = _queues(state, line.share[rows])
    names = sorted(set(queue_of.values()))
    if len(names) < 2:
        return everything
    place_of = {name: at for at, name in enumerate(names)}
    number_of = np.zeros(len(state.world.shares), dtype=np.int64)
    for share, name in queue_of.items():
        number_of[share] = place_of[name]
    numbers = number_of[line.share[rows]]
    levels = np.array([state.world.levels.queue(name) for name in names], dtype=np.int64)
    left = np.ones(len(rows), dtype=np.bool_)
    passed: list[int] = []
    while len(passed) < min(MOST_HEADS, len(names)):
        usage = state.fair.all_per_weight()[levels]
        most = float(usage.max())
        usage[passed] = np.inf
        at = int(usage.argmin())
        least = float(usage[at])
        of_queue = np.flatnonzero(left & (numbers == at))
        if not of_queue.size:
            passed.append(at)
            continue
        place = _first(state, rows, of_queue, key)
        row = int(rows[place])
        if least + state.fair.cost(names[at], line.milli[row], line.limit[row]) >= most:
            break
        left[place] = False
        before = len(state.starts)
        state.front(row)
        if len(state.starts) == before:
            passed.append(at)
    return np.flatnonzero(left)


def _queues(state: Pass, shares: Ints) -> dict[int, str]:
    """Share -> its queue, of those that wait."""
    counts = np.bincount(shares, minlength=1)
    return {share: state.world.shares[share].queue_id for share in np.flatnonzero(counts).tolist()}


def _first(state: Pass, rows: Ints, places: Ints, key: Floats | None) -> int:
    """The place of the first row of a queue."""
    if key is not None:
        places = places[key[places] == key[places].min()]
    first = int(state.world.line.in_order(rows[places])[0])
    return int(places[np.flatnonzero(rows[places] == first)[0]])
