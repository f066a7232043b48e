# SPDX-License-Identifier: Apache-2.0
"""Where a gang goes: the innermost topology that holds it, then the tightest fit.

All of a gang is placed or nothing. Without a topology wish, and for a preferred one, the levels
are tried from inside out, so that a gang is never spread further than it must be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gpuservice.planner.capacity import (
    MANY,
    NOWHERE,
    PLENTY,
    Candidates,
    View,
    device_slots,
    device_slots_of,
    group_slots,
    may_fit,
    share_milli,
    task_slots,
)
from gpuservice.planner.ledger import NOBODY, Ints, Ledger
from gpuservice.planner.snapshot import LEVELS, Request, Shares, TaskPlacement
from gpuservice.planner.wish import ANYWHERE, Wish

Tasks = tuple[TaskPlacement, ...]

#: A sum of slots that is still far from overflow.
_MANY = PLENTY // 1024


@dataclass(frozen=True, slots=True)
class Option:
    """One pool with the tasks that each of its nodes may take (n,).

    ``devices``: row -> the slots of each of its devices, where not all that are free may be taken.
    """

    where: Candidates
    slots: Ints
    devices: Mapping[int, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pieces:
    """How many tasks go to which rows; all into one link group where ``group`` says so."""

    rows: Sequence[int]
    counts: Sequence[int]
    group: int | None = None


def place(ledger: Ledger, request: Request, where: Sequence[Candidates]) -> Tasks | None:
    """Places for ``count`` tasks (at least ``min_count``), or None. Nothing is taken.

    :param where: the pools to look at; of equally good places the first pool's is taken.
    """
    return place_in(
        ledger,
        request,
        [
            Option(one, task_slots(ledger, request, one.rows, one.project))
            for one in where
            if one.most >= request.min_count and may_fit(request, ledger.most_free(one.pool))
        ],
    )


def place_in(
    ledger: Ledger, request: Request, options: Sequence[Option], wish: Wish = ANYWHERE
) -> Tasks | None:
    """The same where the slots of each pool are known (and may leave out what is kept)."""
    found = _whole_gang(ledger, request, options, wish)
    if found is not None or request.min_count == request.count:
        return found
    best, most = None, request.min_count - 1
    for option in options:
        fits = min(request.count, option.where.most, _most(ledger, request, option))
        if fits > most:
            best, most = option, fits
    if best is None:
        return None
    return _whole_gang(ledger, replace(request, count=most, min_count=most), [best], wish)


def alone(request: Request) -> bool:
    """Whether any node will do for it: a single task, which goes to the first pool with room."""
    return request.count == 1 and request.within != "link_group"


def place_first(
    ledger: Ledger, request: Request, view: View, where: Candidates, wish: Wish
) -> Tasks | None:
    """Places in one pool for a single task that :func:`alone` is true of, where nothing is
    kept."""
    if view.interchangeable and not wish.spread:
        row = view.tightest(ledger, where.pool, wish)
        if row is None:
            return None
        if row != MANY:
            slots = [int(idle >= 1000) for idle in ledger.free[row].tolist()]
            shares = _devices(ledger, request, slots, row, None, 1)[0]
            name = ledger.layout.nodes[row].id
            return (TaskPlacement(0, name, shares, request.vcpus, request.memory_mib),)
    if request.shared:
        row = view.tightest_share(ledger, wish.spread)
        if row is None:
            return None
        return tasks_on(ledger, request, Option(where, view.slots), Pieces((row,), (1,)))
    return place_in(ledger, request, [Option(where, view.fresh(ledger, where.pool))], wish)


def largest_gang(ledger: Ledger, request: Request, where: Candidates) -> int:
    """How many tasks of the request, at most its count, fit at once where its topology lets
    them be."""
    option = Option(where, task_slots(ledger, request, where.rows, where.project))
    return (
        min(request.count, where.most, _most(ledger, request, option)) if len(option.slots) else 0
    )


def _whole_gang(
    ledger: Ledger, request: Request, options: Sequence[Option], wish: Wish
) -> Tasks | None:
    """Places for the whole ``count`` at the innermost level that has them."""
    options = [one for one in options if one.where.most >= request.count and len(one.slots)]
    if alone(request):
        for option in options:
            row = _one_node(ledger, request, option, wish)
            if row is not None:
                return tasks_on(ledger, request, option, Pieces((row,), (1,)))
        return None
    options = [one for one in options if int(one.slots.max()) > 0]
    for level in _levels(request):
        for option in options:
            pieces = _at_level(ledger, request, option, level, wish)
            if pieces is not None:
                return tasks_on(ledger, request, option, pieces)
    return None


def _one_node(ledger: Ledger, request: Request, option: Option, wish: Wish) -> int | None:
    """The node for a single task: the one that it fills most tightly."""
    rows = option.where.rows
    if request.shared and not option.slots.any():
        return None
    if request.shared:
        milli = share_milli(ledger, request, rows)
        room = np.where(
            device_slots(ledger, request, rows, option.where.project) > 0,
            ledger.free[rows] - milli,
            PLENTY,
        )
        left = room.min(axis=1) * 64 + ledger.whole[rows]
    else:
        left = ledger.whole[rows]
    wanted = np.where(option.slots > 0, -left if wish.spread else left, NOWHERE)
    at = int(wanted.argmin())
    if wanted[at] == NOWHERE:
        return None
    if request.shared:
        return int(rows.start + at)
    alike: Ints = np.flatnonzero(wanted == wanted[at]) + rows.start
    return wish.of(alike)


def _most(ledger: Ledger, request: Request, option: Option) -> int:
    """The largest gang that the outermost allowed level holds."""
    level = _levels(request)[-1]
    if level is None:
        return int(np.minimum(option.slots, _MANY).sum())
    if level == "link_group":
        return int(_groups(ledger, request, option).max(initial=0))
    domains = ledger.layout.domains[level][option.where.rows]
    totals = int(_totals(domains, option.slots).max(initial=0))
    return max(totals, int(option.slots.max(initial=0)))


def _levels(request: Request) -> Sequence[str | None]:
    """The levels to try, inner to outer; None is "anywhere"."""
    if request.within is None:
        return (*LEVELS[1:], None)
    if request.required:
        return LEVELS[: LEVELS.index(request.within) + 1]
    return (*LEVELS, None)


def _groups(ledger: Ledger, request: Request, option: Option) -> Ints:
    """(n, G): slots by link group, no more of a node than the option leaves of it."""
    where = option.where
    groups = group_slots(ledger, request, where.rows, where.project)
    for row, slots in option.devices.items():
        numbers = ledger.layout.groups[row]
        for group in range(groups.shape[1]):
            here = sum(room for room, of in zip(slots, numbers, strict=True) if of == group)
            at = row - where.rows.start
            groups[at, group] = min(int(groups[at, group]), here // (request.whole or 1))
    return np.minimum(groups, option.slots[:, None])


def _at_level(
    ledger: Ledger, request: Request, option: Option, level: str | None, wish: Wish
) -> Pieces | None:
    start, slots = option.where.rows.start, option.slots
    if level == "link_group":
        return _one_group(_groups(ledger, request, option), request, start)
    if level == "node":
        fits = np.flatnonzero(slots >= request.count)
        if not fits.size:
            return None
        left = ledger.whole[option.where.rows][fits] if request.whole else slots[fits]
        best = left.max() if wish.spread else left.min()
        return Pieces((wish.of(start + fits[left == best]),), (request.count,))
    if level is None:
        return _in_domain(np.arange(len(slots)), slots, request.count, start)
    if not ledger.layout.labelled[option.where.pool, level]:
        return None
    domains = _domains(ledger, request, option.where, level)
    best_domain = _tightest(_totals(domains, slots), request.count)
    if best_domain is None:
        return None
    return _in_domain(np.flatnonzero(domains == best_domain), slots, request.count, start)


def _domains(ledger: Ledger, request: Request, where: Candidates, level: str) -> Ints:
    """(n,): the domain of each node at a level. Where the request requires one further out, being
    together there has to be known as well: racks of two zones may have one name, and a node may
    not say its zone."""
    domains = ledger.layout.domains[level][where.rows]
    if not request.required or request.within in (None, level):
        return domains
    outer = ledger.layout.domains[str(request.within)][where.rows]
    both = domains * (int(outer.max(initial=0)) + 1) + outer
    return np.where((domains != NOBODY) & (outer != NOBODY), both, NOBODY)


def _totals(domains: Ints, slots: Ints) -> Ints:
    """(domains,): slots of each domain, bounded so that sums stay small."""
    known = domains != NOBODY
    if not known.any():
        return np.zeros(0, dtype=np.int64)
    sums = np.bincount(domains[known], weights=np.minimum(slots[known], _MANY))
    return sums.astype(np.int64)


def _tightest(totals: Ints, count: int) -> int | None:
    """The domain with the least slots that holds so many tasks."""
    enough = np.flatnonzero(totals >= count)
    return int(enough[np.argmin(totals[enough])]) if enough.size else None


def _one_group(slots: Ints, request: Request, start: int) -> Pieces | None:
    best = _tightest(slots.reshape(-1), request.count)
    if best is None:
        return None
    row, group = divmod(best, slots.shape[1])
    return Pieces((start + row,), (request.count,), group)


def _in_domain(rows: Ints, slots: Ints, count: int, start: int) -> Pieces | None:
    """Nodes of one domain: the roomiest first, and one that holds the rest most tightly."""
    here = np.minimum(slots[rows], _MANY)
    order = np.argsort(-here, kind="stable")
    filled = np.cumsum(here[order])
    if not filled.size or filled[-1] < count:
        return None
    full = int(np.searchsorted(filled, count))  # so many nodes are used up, one more is begun
    counts = [int(one) for one in here[order[:full]]]
    chosen = [int(one) for one in rows[order[:full]]]
    left = count - sum(counts)
    if left:
        rest = order[full:]
        fits = rest[here[rest] >= left]
        chosen.append(int(rows[fits[np.lexsort((fits, here[fits]))[0]]]))
        counts.append(left)
    return Pieces([start + one for one in chosen], counts)


def tasks_on(ledger: Ledger, request: Request, option: Option, pieces: Pieces) -> Tasks:
    """The tasks of some pieces, each with its devices. Nothing is taken."""
    if len(pieces.rows) == 1:
        slots = [device_slots_of(ledger, request, pieces.rows[0], option.where.project)]
    else:
        rows = np.array(pieces.rows, dtype=np.int64)
        slots = device_slots(ledger, request, rows, option.where.project).tolist()
    if option.devices:
        slots = [
            list(option.devices.get(row, here))
            for row, here in zip(pieces.rows, slots, strict=True)
        ]
    tasks: list[TaskPlacement] = []
    vcpus, memory_mib = request.vcpus, request.memory_mib
    for here, row, count in zip(slots, pieces.rows, pieces.counts, strict=True):
        name = ledger.layout.nodes[row].id
        for shares in _devices(ledger, request, here, row, pieces.group, count):
            tasks.append(TaskPlacement(len(tasks), name, shares, vcpus, memory_mib))
    return tuple(tasks)


def _devices(
    ledger: Ledger, request: Request, slots: Sequence[int], row: int, group: int | None, count: int
) -> list[Shares]:
    """The shares of devices of each of ``count`` tasks on a node."""
    each = request.whole
    if not (request.shared or each):
        return [()] * count
    layout = ledger.layout
    groups = layout.groups[row]
    usable = [column for column, room in enumerate(slots) if room > 0]
    if count == 1 and each and group is None and layout.one_group[row]:
        of = layout.wholes[row]
        return [tuple([of[column] for column in usable[:each]])]
    if group is not None:
        usable = [column for column in usable if groups[column] == group]
    if request.shared:
        return _shares(ledger, request, row, {column: slots[column] for column in usable}, count)
    if len({groups[column] for column in usable}) == 1:
        sets = [usable[at * each : (at + 1) * each] for at in range(count)]
    else:
        sets = _whole(usable, groups, each, count)
    of = layout.wholes[row]
    return [tuple([of[column] for column in chosen]) for chosen in sets]


def _whole(usable: list[int], groups: list[int], each: int, count: int) -> list[list[int]]:
    """``count`` sets of ``each`` devices: from the link group that holds a set most tightly,
    else from the largest groups first."""
    left = list(usable)
    sets: list[list[int]] = []
    for _ in range(count):
        sizes: dict[int, int] = {}
        for column in left:
            sizes[groups[column]] = sizes.get(groups[column], 0) + 1
        fits = [(size, number) for number, size in sizes.items() if size >= each]
        if fits:
            _, number = min(fits)
            chosen = [column for column in left if groups[column] == number][:each]
        else:
            chosen = sorted(left, key=lambda column: (-sizes[groups[column]], column))[:each]
        sets.append(sorted(chosen))
        left = [column for column in left if column not in chosen]
    return sets


def _shares(
    ledger: Ledger, request: Request, row: int, room: dict[int, int], count: int
) -> list[Shares]:
    """One device a task: those already shared first, the fullest that still has room.

    :param room: how many tasks each device takes.
    """
    milli = share_milli(ledger, request, slice(row, row + 1))[0].tolist()
    free = {column: int(ledger.free[row, column]) for column in room}
    devices = ledger.layout.devices[row]
    chosen: list[Shares] = []
    for _ in range(count):
        column = min(
            (one for one, left in room.items() if left > 0),
            key=lambda one: (free[one] - milli[one], one),
        )
        room[column] -= 1
        free[column] -= milli[column]
        chosen.append(((devices[column], milli[column]),))
    return chosen
