# SPDX-License-Identifier: Apache-2.0
"""The first moment at which a gang fits, given when each node holds one, two, ... of its tasks."""

from __future__ import annotations

import numpy as np

from gpuservice.planner.holds import FOREVER
from gpuservice.planner.ledger import NOBODY, Floats, Ints


def first(
    times: Floats, count: int, most: int, level: str | None, domains: Ints | None
) -> tuple[float, list[tuple[int, int]]] | None:
    """(the first moment at which ``count`` tasks fit, [(node, tasks there)]): as many tasks as
    fit at that moment where ``most`` are wanted."""
    nodes, width = times.shape
    if not nodes or not width:
        return None
    if level in ("node", "link_group") or most == 1:
        return _on_one_node(times, count, most)
    flat = times.reshape(-1)
    inside = np.arange(flat.size)
    single: tuple[float, list[tuple[int, int]]] | None = None
    if domains is not None:
        # One node is within one of everything, labelled or not.
        single = _on_one_node(times, count, most)
        found = _best_domain(flat, np.repeat(domains, width), count)
        if found is None or (single is not None and single[0] <= float(flat[found[count - 1]])):
            return single
        inside = found
    elif flat.size < count:
        return None
    order = inside[np.argsort(flat[inside], kind="stable")]
    start = float(flat[order[count - 1]])
    if start == FOREVER:
        return None
    chosen = order[: int(np.searchsorted(flat[order[:most]], start, side="right"))]
    rows, counts = np.unique(chosen // width, return_counts=True)
    return start, [(int(row), int(number)) for row, number in zip(rows, counts, strict=True)]


def _on_one_node(
    times: Floats, count: int, most: int
) -> tuple[float, list[tuple[int, int]]] | None:
    """The same where one node has to hold all tasks."""
    if times.shape[1] < count:
        return None
    at = int(times[:, count - 1].argmin())
    start = float(times[at, count - 1])
    if start == FOREVER:
        return None
    return start, [(at, int(np.searchsorted(times[at, :most], start, side="right")))]


def _best_domain(flat: Floats, of: Ints, count: int) -> Ints | None:
    """The places of the domain in which ``count`` tasks fit first, the soonest first."""
    order = np.lexsort((flat, of))
    order = order[of[order] != NOBODY]
    grouped = of[order]
    if not grouped.size:
        return None
    starts = np.flatnonzero(np.r_[True, grouped[1:] != grouped[:-1]])
    ends = np.r_[starts[1:], len(grouped)]
    enough = np.flatnonzero(ends - starts >= count)
    if not enough.size:
        return None
    best = enough[int(flat[order[starts[enough] + count - 1]].argmin())]
    places: Ints = order[starts[best] : ends[best]]
    return places
