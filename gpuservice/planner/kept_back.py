# SPDX-License-Identifier: Apache-2.0
"""Whose room is kept for a promise, told for a whole line at once.

While nodes come free one by one for a gang, what is free of them would do for most of a long line,
and whoever is tried finds that it would delay the promise. That depends on the request and on the
moment at which it would end, so it is told here by shape, without trying anybody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpuservice.domain.inventory import MAX_TASKS_PER_NODE
from gpuservice.planner.holds import ALREADY, FOREVER
from gpuservice.planner.ledger import Bools, Floats, Ints
from gpuservice.planner.placement import alone
from gpuservice.planner.snapshot import Request

if TYPE_CHECKING:
    from gpuservice.planner.passes import Pass

#: To try fewer jobs than this costs no more than to find out about them.
WORTH_IT = 4

#: Nodes of a pool with anything free that are looked at; where there are more, jobs are tried.
MOST_NODES = 64


def kept_back(state: Pass, rows: Ints, shapes: Ints) -> Bools:
    """(n,): who surely cannot start: no task of it fits anywhere but where it would still run when
    a promise is due, with nothing left beside what was promised."""
    none = np.zeros(len(rows), dtype=np.bool_)
    if not state.policy.backfill or state.reserved or not state.future.booked.of:
        return none
    if len(rows) < WORTH_IT:
        return none
    numbers = np.flatnonzero(np.bincount(shapes))
    latest = _latest_ends(state, numbers)
    if (latest == FOREVER).all():
        return none
    of_shape = np.full(len(state.world.shapes), FOREVER)
    of_shape[numbers] = latest
    kept: Bools = state.now + state.world.line.limit.take(rows) > of_shape.take(shapes)
    return kept


def _latest_ends(state: Pass, numbers: Ints) -> Floats:
    """(n,): by when each of the shapes has to end so as to start now; ``FOREVER`` where it may
    end at any time, or where counting does not say it."""
    world = state.world
    latest = np.full(len(numbers), FOREVER)
    simple = [
        at
        for at, number in enumerate(numbers.tolist())
        if _anywhere(world.shapes[number].request) and world.columns.takes_gpus(number)
    ]
    if not simple:
        return latest
    chosen = numbers[simple]
    needs = world.columns.needs(chosen)
    ends = np.full(len(chosen), ALREADY)
    for pool in world.layout.pool_rows:
        there = world.columns.looks_at(chosen, pool)
        if there.any():
            ends[there] = np.maximum(ends[there], _ends_in_pool(state, pool, needs[there]))
    latest[simple] = np.where(ends == ALREADY, FOREVER, ends)
    return latest


def _anywhere(request: Request) -> bool:
    """Whether any room for enough tasks will do."""
    return alone(request) or not request.required


def _ends_in_pool(state: Pass, pool: str, needs: Ints) -> Floats:
    """(n,): the same in one pool; ``ALREADY`` where there is no room for it at all.

    :param needs: (n, 5) whole GPUs, milli of a GPU, GPUs as bookings count them, CPUs and memory.
    """
    ledger, guards = state.world.ledger, state.future.guards
    where = ledger.layout.pool_rows[pool]
    free = ledger.free[where].max(axis=1, initial=0)
    rows = np.flatnonzero(free > 0)
    ends = np.full(len(needs), ALREADY)
    if len(rows) > MOST_NODES or ledger.layout.alone[pool]:
        return np.full(len(needs), FOREVER)
    for at in rows.tolist():
        row = where.start + at
        if not ledger.ready[row] or ledger.tasks[row] >= MAX_TASKS_PER_NODE:
            continue
        room = (ledger.whole[row], free[at], ledger.cpus[row], ledger.memory[row])
        fits = (needs[:, (0, 1, 3, 4)] <= room).all(axis=1)
        if fits.any():
            ends[fits] = np.maximum(ends[fits], guards.latest_ends(row, needs[fits]))
    return ends
