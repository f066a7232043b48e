# SPDX-License-Identifier: Apache-2.0
"""The order of the line, and of what may go ahead of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from gpuservice.planner.fairshare import FairShare
from gpuservice.planner.ledger import Floats, Ints
from gpuservice.planner.line import Line, distinct
from gpuservice.planner.snapshot import Policy
from gpuservice.planner.turns import Turns

#: Waits count from so much on when slowdowns are compared, as a share of the mean limit of what
#: waits: without it, whatever has just come would be last.
FIRST_SHARE = 0.3


def backfill_key(line: Line, rows: Ints, now: float, policy: Policy) -> Floats | None:
    """(n,): the smaller, the sooner a job is tried that has no promise; None: by the line.

    ``area_slowdown``: wait over (limit x GPUs), largest first: short and small jobs go ahead, and
    no job waits for ever behind others of its own size.
    """
    if policy.backfill_order == "short_first":
        return line.runtime(rows)
    if policy.backfill_order == "area_slowdown":
        limits = line.runtime(rows)
        first = FIRST_SHARE * float(limits.mean()) if rows.size else 0.0
        waited = now - line.queued.take(rows) + first
        # Who asks for no GPU counts as if he asked for the least part of one.
        area = np.maximum(line.area.take(rows), limits)
        key: Floats = -waited / area
        return key
    return None


def multifactor_key(
    line: Line, rows: Ints, now: float, policy: Policy, fair: FairShare, milli_in_all: float
) -> Floats:
    """(n,): minus the weighted sum of age, fair share, size and priority, each 0..1 (as Slurm's
    multifactor plugin reckons them; its fair-share factor is 2^-(usage / share))."""
    weights = policy.weights
    age = np.clip((now - line.queued[rows]) / weights.age_max_s, 0.0, 1.0)
    shares = line.share[rows]
    factor = {share: fair.factor(share) for share in distinct(shares)}
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


class Order:
    """The order of a line by shares and a key that stays as it is for a pass: who is asked about
    again needs not be put in order again."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._known: Ints = np.zeros(0, dtype=np.int64)

    def by_share(self, rows: Ints, key: Floats | None) -> Ints:
        """Rows by share, in each by the key, then as they come."""
        line = self._line
        asked = np.zeros(len(line.live), dtype=np.bool_)
        asked[rows] = True
        ordered = self._known[asked[self._known]]
        if len(ordered) < len(rows):
            keys = () if key is None else (key,)
            ordered = line.in_order(rows, line.share.take(rows), *keys)
            self._known = ordered
        return ordered


def in_line(
    line: Line, rows: Ints, key: Floats | None, fair: FairShare | None, order: Order | None = None
) -> Iterator[int]:
    """Rows in order. With ``fair`` the turn goes round among shares of queues; what is started
    between two steps counts at once.

    :param order: the order by this very key, as far as it is known.
    """
    if not len(rows):
        return
    if fair is None:
        yield from line.in_order(rows, *(() if key is None else (key,))).tolist()
        return
    ordered = (order or Order(line)).by_share(rows, key)
    if line.share[ordered[0]] == line.share[ordered[-1]]:
        yield from ordered.tolist()
        return
    yield from Turns(line, ordered, fair).rows()


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
