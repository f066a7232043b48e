# SPDX-License-Identifier: Apache-2.0
"""Whose turn it is, level by level: a tree of heaps, of which only the path to the row that was
given is put in order again.

Who is next below each level is sorted out for all at once, as arrays; a heap holds only those that
had a turn and the first of those that had none. So what a line costs that is given out in part
hardly grows with how many queues, projects and users wait in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from typing import NamedTuple

import numpy as np

from gpuservice.planner.fairshare import FairShare
from gpuservice.planner.ledger import Floats, Ints
from gpuservice.planner.levels import USER
from gpuservice.planner.line import Line

#: Of equals, who queued first: time of queueing, submission, id.
_Tie = tuple[float, int, str]
_Item = tuple[float, _Tie, "_Node"]


@dataclass(slots=True)
class _Node:
    """One cohort, queue, project or user.

    ``head``: the place of the row that it gives next. ``begin`` to ``end``: those of its children
    that had no turn yet, as places at their depth; of a user the rows that are left.
    """

    level: int
    depth: int
    head: int
    begin: int
    end: int
    new: bool = True  # it had no turn yet
    heap: list[_Item] | None = None


class _Depth(NamedTuple):
    """All nodes of one depth, those of one parent together, whose turn is first before others."""

    level: Ints
    head: Ints
    begin: Ints
    end: Ints
    per_weight: Floats


class Turns:
    """The rows of a line by turns.

    :param ordered: rows by share, in each as they come.
    """

    def __init__(self, line: Line, ordered: Ints, fair: FairShare) -> None:
        self._line = line
        self._fair = fair
        self._rows = ordered
        self._ties: dict[int, _Tie] = {}  # of the rows that were looked at
        shares = line.share.take(ordered)
        begin = np.flatnonzero(np.r_[True, shares[1:] != shares[:-1]])
        paths = fair.paths(shares[begin])
        per_weight = fair.all_per_weight()
        rank = self._rank(ordered[begin])
        head, end = begin, np.r_[begin[1:], len(ordered)]
        self._depths: list[_Depth] = []
        for depth in range(USER, -1, -1):
            level = paths[:, depth]
            parent = paths[:, depth - 1] if depth else np.zeros(len(paths), dtype=np.int64)
            order = np.lexsort((rank, per_weight[level], parent))
            level, head, parent = level[order], head[order], parent[order]
            self._depths.insert(0, _Depth(level, head, begin[order], end[order], per_weight[level]))
            begin = np.flatnonzero(np.r_[True, parent[1:] != parent[:-1]])
            end = np.r_[begin[1:], len(order)]
            head, paths, rank = head[begin], paths[order[begin]], rank[order[begin]]
        self._top = _Node(0, -1, 0, 0, len(self._depths[0].level))

    def _rank(self, heads: Ints) -> Ints:
        """(n,): of rows, which queued first."""
        place = np.empty(len(self._line.live), dtype=np.int64)
        place[self._line.in_order(heads)] = np.arange(len(heads))
        return place[heads]

    def rows(self) -> Iterator[int]:
        """Rows in order of turn; what is charged between two of them counts at once."""
        while True:
            node = self._top
            while node.depth < USER:
                if node.heap is None:
                    node.heap = []
                    self._reveal(node)
                if not node.heap:
                    return
                node = node.heap[0][2]
            yield int(self._rows[node.head])
            self._next(self._top)

    def _next(self, branch: _Node) -> bool:
        """Go on behind the row that was given; whether anything is left."""
        heap = branch.heap
        assert heap is not None
        child = heap[0][2]
        if child.depth < USER:
            left = self._next(child)
        else:
            child.head += 1
            left = child.head < child.end
        if left:
            heapreplace(heap, self._item(child, self._fair.per_weight(child.level)))
        else:
            heappop(heap)
        if child.new:
            child.new = False
            self._reveal(branch)
        if heap:
            branch.head = heap[0][2].head
        return bool(heap)

    def _reveal(self, branch: _Node) -> None:
        """Put the first child that had no turn yet into the heap."""
        at = branch.begin
        if at == branch.end:
            return
        branch.begin += 1
        depth = self._depths[branch.depth + 1]
        child = _Node(
            depth.level.item(at), branch.depth + 1, depth.head.item(at), depth.begin.item(at),
            depth.end.item(at),
        )  # fmt: skip
        assert branch.heap is not None
        heappush(branch.heap, self._item(child, depth.per_weight.item(at)))

    def _item(self, child: _Node, per_weight: float) -> _Item:
        row = self._rows.item(child.head)
        tie = self._ties.get(row)
        if tie is None:
            line = self._line
            tie = (line.queued.item(row), line.sequence.item(row), line.job(row).job_id)
            self._ties[row] = tie
        return (per_weight, tie, child)
