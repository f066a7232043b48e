# SPDX-License-Identifier: Apache-2.0
"""Where a gang goes: the innermost topology that holds it, then the tightest fit.

All of a gang is placed or nothing. Without a topology wish, and for a preferred one, the levels
are tried from inside out, so that a gang is never spread further than it must be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuservice.planner.capacity import (
    PLENTY,
    Candidates,
    device_slots,
    group_capacity,
    node_capacity,
    share_milli,
)
from gpuservice.planner.ledger import NOBODY, Ints, Ledger
from gpuservice.planner.snapshot import LEVELS, Request, Shares, TaskPlacement

Tasks = tuple[TaskPlacement, ...]

#: (node row, link group or None, tasks there)
Piece = tuple[int, int | None, int]


def place(ledger: Ledger, request: Request, where: Sequence[Candidates]) -> Tasks | None:
    """Places for ``count`` tasks (at least ``min_count``), or None. Nothing is taken.

    :param where: the pools to look at; of equally good places the first pool's is taken.
    """
    options = [
        _Option(one, node_capacity(ledger, request, one))
        for one in where
        if one.most >= request.min_count
    ]
    found = _whole_gang(ledger, request, options)
    if found is not None or request.min_count == request.count:
        return found
    best, most = None, request.min_count - 1
    for option in options:
        fits = min(request.count, option.where.most, _most(ledger, request, option))
        if fits > most:
            best, most = option, fits
    if best is None:
        return None
    return _whole_gang(ledger, replace(request, count=most, min_count=most), [best])


@dataclass(frozen=True, slots=True)
class _Option:
    """One pool with the tasks that each of its nodes takes."""

    where: Candidates
    capacity: Ints


def _whole_gang(ledger: Ledger, request: Request, options: Sequence[_Option]) -> Tasks | None:
    """Places for the whole ``count`` at the innermost level that has them."""
    for level in _levels(request):
        for option in options:
            if option.where.most < request.count:
                continue
            pieces = _at_level(ledger, request, option.where, option.capacity, level)
            if pieces is not None:
                return _tasks(ledger, request, option.where, pieces)
    return None


def _most(ledger: Ledger, request: Request, option: _Option) -> int:
    """The largest gang that the outermost allowed level holds."""
    level = _levels(request)[-1]
    if level is None:
        return int(np.minimum(option.capacity, PLENTY // 1024).sum())
    if level == "link_group":
        return int(group_capacity(ledger, request, option.where).max(initial=0))
    return int(_totals(ledger.layout.domains[level], option.capacity).max(initial=0))


def _levels(request: Request) -> Sequence[str | None]:
    """The levels to try, inner to outer; None is "anywhere"."""
    if request.within is None:
        return (*LEVELS[1:], None)
    if request.required:
        return LEVELS[: LEVELS.index(request.within) + 1]
    return (*LEVELS, None)


def _at_level(
    ledger: Ledger, request: Request, where: Candidates, capacity: Ints, level: str | None
) -> list[Piece] | None:
    if level == "link_group":
        return _one_group(group_capacity(ledger, request, where), request)
    if level is None:
        return _in_domain(np.arange(len(capacity)), capacity, request)
    domains = ledger.layout.domains[level]
    totals = _totals(domains, capacity)
    best = _tightest(totals, request)
    if best is None:
        return None
    return _in_domain(np.flatnonzero(domains == best), capacity, request)


def _totals(domains: Ints, capacity: Ints) -> Ints:
    """(domains,): capacity of each domain, bounded so that sums stay small."""
    known = domains != NOBODY
    if not known.any():
        return np.zeros(0, dtype=np.int64)
    bounded = np.minimum(capacity[known], PLENTY // 1024)
    sums = np.bincount(domains[known], weights=bounded)
    return sums.astype(np.int64)


def _tightest(totals: Ints, request: Request) -> int | None:
    """The domain with the least capacity that holds the gang."""
    enough = np.flatnonzero(totals >= request.count)
    return int(enough[np.argmin(totals[enough])]) if enough.size else None


def _one_group(capacity: Ints, request: Request) -> list[Piece] | None:
    best = _tightest(capacity.reshape(-1), request)
    if best is None:
        return None
    row, group = divmod(best, capacity.shape[1])
    return [(row, group, request.count)]


def _in_domain(rows: Ints, capacity: Ints, request: Request) -> list[Piece] | None:
    """Nodes of one domain: one that holds the rest most tightly, else the fullest first."""
    here = capacity[rows]
    left = request.count
    if int(np.minimum(here, PLENTY // 1024).sum()) < left:
        return None
    pieces: list[Piece] = []
    order = rows[np.argsort(-here, kind="stable")]
    for row in order:
        if not left:
            break
        fits = rows[(here >= left)]
        if fits.size:
            used = {piece[0] for piece in pieces}
            tight = [int(one) for one in fits if int(one) not in used]
            if tight:
                row = min(tight, key=lambda one: (int(capacity[one]), one))
        take = min(left, int(capacity[row]))
        if take:
            pieces.append((int(row), None, take))
            left -= take
    return pieces


def _tasks(ledger: Ledger, request: Request, where: Candidates, pieces: list[Piece]) -> Tasks:
    tasks: list[TaskPlacement] = []
    slots = device_slots(ledger, request, where.project)
    for row, group, count in pieces:
        for shares in _devices(ledger, request, slots[row], row, group, count):
            tasks.append(
                TaskPlacement(
                    rank=len(tasks),
                    node_id=ledger.layout.nodes[row].id,
                    devices=shares,
                    vcpus=request.vcpus,
                    memory_mib=request.memory_mib,
                )
            )
    return tuple(tasks)


def _devices(
    ledger: Ledger, request: Request, slots: Ints, row: int, group: int | None, count: int
) -> list[Shares]:
    """The devices of ``count`` tasks on one node."""
    if not (request.shared or request.whole):
        return [()] * count
    devices = ledger.layout.nodes[row].devices
    groups = ledger.layout.device_group[row]
    usable = [
        column
        for column in range(len(devices))
        if slots[column] > 0 and (group is None or groups[column] == group)
    ]
    if request.shared:
        return _shares(ledger, request, slots, row, usable, count)
    return [
        tuple((devices[column].id, 1000) for column in chosen)
        for chosen in _whole(usable, groups, request.whole, count)
    ]


def _whole(usable: list[int], groups: Ints, each: int, count: int) -> list[list[int]]:
    """``count`` sets of ``each`` devices: from the link group that holds a set most tightly,
    else from the largest groups first."""
    left = list(usable)
    sets: list[list[int]] = []
    for _ in range(count):
        sizes: dict[int, int] = {}
        for column in left:
            sizes[int(groups[column])] = sizes.get(int(groups[column]), 0) + 1
        fits = [(size, number) for number, size in sizes.items() if size >= each]
        if fits:
            _, number = min(fits)
            chosen = [column for column in left if groups[column] == number][:each]
        else:
            chosen = sorted(left, key=lambda column: (-sizes[int(groups[column])], column))[:each]
        sets.append(sorted(chosen))
        left = [column for column in left if column not in chosen]
    return sets


def _shares(
    ledger: Ledger, request: Request, slots: Ints, row: int, usable: list[int], count: int
) -> list[Shares]:
    """One device a task: those already shared first, the fullest that still has room."""
    milli = share_milli(ledger, request)[row]
    free = {column: int(ledger.free[row, column]) for column in usable}
    devices = ledger.layout.nodes[row].devices
    chosen: list[Shares] = []
    for _ in range(count):
        column = min(
            (one for one in usable if free[one] >= milli[one]),
            key=lambda one: (free[one] - int(milli[one]), one),
        )
        free[column] -= int(milli[column])
        chosen.append(((devices[column].id, int(milli[column])),))
    return chosen
