# SPDX-License-Identifier: Apache-2.0
"""The order of the line, and of what may go ahead of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

import numpy as np

from gpuservice.planner.fairshare import FairShare
from gpuservice.planner.ledger import Floats, Ints
from gpuservice.planner.line import Line
from gpuservice.planner.snapshot import Policy

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
        waited = now - line.queued[rows] + first
        area: Floats = limits * np.maximum(line.milli[rows], 1.0)
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
    yield from Turns(line, line.in_order(rows, shares, *keys), fair).rows()


class Turns:
    """Whose turn it is, level by level: a heap of heaps, of which only the path to the row that
    was given is put in order again.

    A node is a list ``[heap of children]`` or, at the bottom, the rows of one share.
    """

    def __init__(self, line: Line, ordered: Ints, fair: FairShare) -> None:
        self._line = line
        self._fair = fair
        self._rows = ordered.tolist()
        self._queued = line.queued[ordered].tolist()
        self._sequence = line.sequence[ordered].tolist()
        shares = line.share[ordered]
        begins = np.flatnonzero(np.r_[True, shares[1:] != shares[:-1]]).tolist()
        tree: dict[tuple[str, ...], _Branch] = {(): _Branch((), 0, [])}
        leaves = zip(shares[begins].tolist(), begins, [*begins[1:], len(ordered)], strict=True)
        for share, begin, end in leaves:
            path = fair.path(share)
            leaf = _Leaf(path[-1], begin, end)
            for level in range(len(path) - 1, -1, -1):
                above = path[level - 1] if level else ()
                child: _Node = leaf if level == len(path) - 1 else tree[path[level]]
                known = above in tree
                if not known:
                    tree[above] = _Branch(above, level, [])
                tree[above].heap.append((0.0, self._tie(begin), child))
                if known:
                    break
        self._top = tree[()]
        for branch in sorted(tree.values(), key=lambda branch: -branch.depth):
            self._settle(branch)

    def rows(self) -> Iterator[int]:
        """Rows in order of turn; what is charged between two of them counts at once."""
        while self._top.heap:
            node: _Node = self._top
            while isinstance(node, _Branch):
                node = node.heap[0][2]
            yield self._rows[node.at]
            self._next(self._top)

    def _next(self, branch: _Branch) -> bool:
        """Go on behind the row that was given; whether anything is left."""
        child = branch.heap[0][2]
        if isinstance(child, _Branch):
            left = self._next(child)
        else:
            child.at += 1
            left = child.at < child.end
        if left:
            heapreplace(branch.heap, self._item(child))
        else:
            heappop(branch.heap)
        return bool(branch.heap)

    def _settle(self, branch: _Branch) -> None:
        branch.heap = [self._item(child) for _, _, child in branch.heap]
        heapify(branch.heap)

    def _item(self, child: _Node) -> _Item:
        node = child
        while isinstance(node, _Branch):
            node = node.heap[0][2]
        return (self._fair.per_weight(child.level), self._tie(node.at), child)

    def _tie(self, at: int) -> _Tie:
        job_id = self._line.job(self._rows[at]).job_id
        return self._queued[at], self._sequence[at], job_id


_Tie = tuple[float, int, str]
_Item = tuple[float, _Tie, "_Node"]


@dataclass(slots=True)
class _Leaf:
    """The rows of one share that are left."""

    level: tuple[str, ...]
    at: int
    end: int


@dataclass(slots=True)
class _Branch:
    """One cohort, queue or project, with a heap of those below it."""

    level: tuple[str, ...]
    depth: int
    heap: list[_Item]


_Node = _Leaf | _Branch


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
