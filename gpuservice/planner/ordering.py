# SPDX-License-Identifier: Apache-2.0
"""The order of the line, and of what may go ahead of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush

import numpy as np

from gpuservice.planner.fairshare import FairShare
from gpuservice.planner.ledger import Floats, Ints
from gpuservice.planner.line import Line
from gpuservice.planner.snapshot import Policy

#: Waits count from so many seconds on when slowdowns are compared: without it, whatever has just
#: come would be last.
FIRST_HOUR_S = 3600.0


def backfill_key(line: Line, rows: Ints, now: float, policy: Policy) -> Floats | None:
    """(n,): the smaller, the sooner a job is tried that has no promise; None: by the line.

    ``area_slowdown``: wait over (limit x GPUs), largest first: short and small jobs go ahead, and
    no job waits for ever behind others of its own size.
    """
    if policy.backfill_order == "short_first":
        return line.runtime(rows)
    if policy.backfill_order == "area_slowdown":
        waited = now - line.queued[rows] + FIRST_HOUR_S
        area: Floats = line.runtime(rows) * np.maximum(line.milli[rows], 1.0)
        return -waited / area
    return None


def multifactor_key(
    line: Line, rows: Ints, now: float, policy: Policy, fair: FairShare, milli_in_all: float
) -> Floats:
    """(n,): minus the weighted sum of age, fair share, size and priority, each 0..1 (as Slurm's
    multifactor plugin reckons them; its fair-share factor is 2^-(usage / share))."""
    weights = policy.weights
    age = np.clip((now - line.queued[rows]) / weights.age_max_s, 0.0, 1.0)
    shares = line.share[rows]
    factor = {share: fair.factor(share) for share in np.unique(shares).tolist()}
    fairness = np.array([factor[share] for share in shares.tolist()])
    size = np.clip(line.milli[rows] / max(milli_in_all, 1.0), 0.0, 1.0)
    priority = line.tier[rows] / 1000.0
    total: Floats = (
        weights.age * age
        + weights.fairshare * fairness
        + weights.size * size
        + weights.priority * priority
    )
    return -total


def in_line(line: Line, rows: Ints, key: Floats | None, fair: FairShare | None) -> Iterator[int]:
    """Rows in order. With ``fair`` the turn goes round among shares of queues; what is started
    between two steps counts at once."""
    keys = () if key is None else (key,)
    if not len(rows):
        return
    if fair is None:
        yield from line.in_order(rows, *keys).tolist()
        return
    shares = line.share[rows]
    if (shares == shares[0]).all():
        yield from line.in_order(rows, *keys).tolist()
        return
    ordered = line.in_order(rows, shares, *keys)
    yield from _round(line, ordered, fair)


def _round(line: Line, ordered: Ints, fair: FairShare) -> Iterator[int]:
    """Rows grouped by share: always the next one of the share whose turn it is."""
    shares = line.share[ordered]
    begins = np.flatnonzero(np.r_[True, shares[1:] != shares[:-1]]).tolist()
    ends = [*begins[1:], len(ordered)]
    rows = ordered.tolist()
    heap = []
    for begin, end in zip(begins, ends, strict=True):
        share = int(shares[begin])
        heap.append((fair.turn(share), _tie(line, rows[begin]), share, begin, end))
    heapify(heap)
    while heap:
        turn, tie, share, at, end = heappop(heap)
        now = fair.turn(share)
        if now > turn:
            heappush(heap, (now, tie, share, at, end))
            continue
        yield rows[at]
        if at + 1 < end:
            heappush(heap, (fair.turn(share), _tie(line, rows[at + 1]), share, at + 1, end))


def _tie(line: Line, row: int) -> tuple[float, int, str]:
    return float(line.queued[row]), int(line.sequence[row]), line.job(row).job_id


class Positions:
    """Ranks among waiting jobs that share a candidate pool."""

    def __init__(self) -> None:
        self._seen: dict[frozenset[str], int] = {}

    def next(self, pool_ids: Iterable[str]) -> int:
        """The position of the next waiting job in line, which looks at these pools."""
        pools = frozenset(pool_ids)
        ahead = sum(count for other, count in self._seen.items() if other & pools)
        self._seen[pools] = self._seen.get(pools, 0) + 1
        return ahead + 1
