# SPDX-License-Identifier: Apache-2.0
"""Places for single tasks where fractions of GPUs are asked for: what they leave is worth most.

What a rest is worth depends on who may come (``fragmentation``), and that is learned from what
waits and what runs. Starts do not change that mix, so a pass has one; counts are rounded, so the
next passes mostly have the same. Where fractions are few the tightest fit does as well and costs
less, and nothing here is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from gpuservice.planner.capacity import fitting_devices
from gpuservice.planner.fragmentation import OURS, Floats, Prices, learn, score
from gpuservice.planner.ledger import NOBODY, Ints
from gpuservice.planner.mix import WHOLE, Mix, Shape
from gpuservice.planner.placement import Option, Pieces, Tasks, tasks_on
from gpuservice.planner.snapshot import Request, RunningGang, TaskPlacement

if TYPE_CHECKING:
    from gpuservice.planner import world as state

#: Fractions count from this part of the GPUs that the mix asks for.
SHARE_OF_DEMAND = 0.05
#: Beside so many others one request for a whole GPU is expected, whoever is there.
OTHERS = 8
WHOLE_GPU = Shape(0, 1, WHOLE)
#: States of a node remembered with their scores, for one kind of task.
_STATES = 50_000

Counts = tuple[tuple[Shape, int], ...]


@dataclass(frozen=True, slots=True)
class Place:
    """A pool that a task may go to: its number among the shape's, what is free there for it, and
    whether anything is kept for others (a share then goes where it fits most tightly)."""

    number: int
    option: Option
    kept: bool


@dataclass(slots=True)
class _Scored:
    """The scores of one kind of task on a pool's nodes, brought up to date by what changed."""

    prices: Prices
    shape: Shape
    value: Floats
    device: Ints
    seen: int = -1
    states: dict[tuple[bytes, int], tuple[float, int]] = field(default_factory=dict)


class Worth:
    """Chooses places by what they leave."""

    def __init__(self, world: state.World) -> None:
        self._world = world
        self._pools = {pool: number for number, pool in enumerate(world.layout.pool_rows)}
        self._running: dict[int, int] = {}  # shape -> tasks
        self._kinds: list[int] = []  # the numbers of what tasks of each shape ask
        self._numbers: dict[Shape, int] = {}
        self._fractions = False  # whether anybody ever had or wanted one
        self._prices: Prices | None = None
        self._known = False
        self._scored: dict[tuple[str, Shape, int], _Scored] = {}

    # -- what happens ------------------------------------------------------------------------
    def begin(self) -> None:
        """A pass begins: what waits and runs may have changed."""
        self._known = False

    def wanted(self, request: Request) -> None:
        """Somebody asks for this."""
        self._fractions = self._fractions or request.shared

    def running(self, gang: RunningGang, times: int) -> None:
        """A gang runs (1) or is gone (-1)."""
        if not gang.tasks:
            return
        request = gang.request or request_of_tasks(gang.tasks)
        number = self._world.shape(request, gang.queue_id, gang.project_id)
        self._running[number] = self._running.get(number, 0) + times * len(gang.tasks)

    # -- choosing ----------------------------------------------------------------------------
    @property
    def counts(self) -> bool:
        """Whether places are chosen here at present."""
        return self._fractions and self._learned() is not None

    def place(self, request: Request, shape: state.Shape, places: Sequence[Place]) -> Tasks | None:
        """The best place for a single task, the first pool's of equally good ones."""
        prices = self._learned()
        best: tuple[float, int, Place, _Scored] | None = None
        for place in places:
            if prices is None:
                break
            where, slots = place.option.where, place.option.slots
            kind = task_shape(request, shape.each[place.number])
            project = where.project if request.shared else NOBODY
            scored = self._fresh(prices, kind, request, where.pool, project)
            value = np.where(slots > 0, scored.value, -np.inf)
            at = int(value.argmax())
            if value[at] > (-np.inf if best is None else best[0]):
                best = (float(value[at]), at, place, scored)
        if best is None:
            return None
        _, at, place, scored = best
        where, layout = place.option.where, self._world.layout
        row = where.rows.start + at
        if not request.shared or place.kept:
            return tasks_on(self._world.ledger, request, place.option, Pieces((row,), (1,)))
        share = (layout.devices[row][int(scored.device[at])], shape.each[place.number])
        name = layout.nodes[row].id
        return (TaskPlacement(0, name, (share,), request.vcpus, request.memory_mib),)

    # -- what is asked for -------------------------------------------------------------------
    def _learned(self) -> Prices | None:
        if not self._known:
            self._known = True
            counts = self._mix()
            layout = self._world.layout
            capacity = tuple(
                WHOLE * int(layout.healthy[rows].sum()) for rows in layout.pool_rows.values()
            )
            self._prices = _prices(counts, capacity) if _worth_it(counts) else None
        return self._prices

    def _mix(self) -> Counts:
        """Tasks by shape that wait or run, rounded."""
        world, line = self._world, self._world.line
        live = np.flatnonzero(line.live)
        tasks = np.bincount(
            line.shape.take(live), line.elements.take(live), minlength=len(world.shapes)
        )
        tasks *= world.columns.tasks
        for number, count in self._running.items():
            tasks[number] += count
        for shape in world.shapes[len(self._kinds) :]:
            kind = self._kind(shape)
            number = NOBODY if kind is None else self._numbers.setdefault(kind, len(self._numbers))
            self._kinds.append(number)
        of = np.array(self._kinds, dtype=np.int64) + 1
        amounts = np.bincount(of, tasks, minlength=len(self._numbers) + 1)[1:].tolist()
        counts = {
            kind: amount for kind, amount in zip(self._numbers, amounts, strict=True) if amount
        }
        if counts:  # somebody may always come for a whole GPU
            counts[WHOLE_GPU] = counts.get(WHOLE_GPU, 0.0) + max(sum(counts.values()) / OTHERS, 1.0)
        return tuple(sorted((kind, _rounded(n)) for kind, n in counts.items()))

    def _kind(self, shape: state.Shape) -> Shape | None:
        """What a task of the shape asks, and of which pools; None: nothing here has it."""
        request = shape.request
        may = [
            (self._pools[where.pool], milli)
            for view, where, milli in zip(shape.views, shape.where, shape.each, strict=True)
            if view.possible and (milli or not request.shared)
        ]
        if not may:
            return None
        pools = () if len(may) == len(self._pools) else tuple(sorted(pool for pool, _ in may))
        return task_shape(request, may[0][1], pools)

    # -- scores ------------------------------------------------------------------------------
    def _fresh(
        self, prices: Prices, kind: Shape, request: Request, pool: str, project: int
    ) -> _Scored:
        rows = self._world.layout.pool_rows[pool]
        scored = self._scored.get((pool, kind, project))
        if scored is None or scored.prices is not prices:
            count = rows.stop - rows.start
            scored = self._scored[pool, kind, project] = _Scored(
                prices, kind, np.full(count, -np.inf), np.full(count, -1, dtype=np.int64)
            )
        journal = self._world.ledger.journals[pool]
        if scored.seen != journal.end:
            changed = journal.since(scored.seen) if scored.seen >= 0 else None
            at = np.arange(rows.start, rows.stop) if changed is None else np.unique(changed)
            scored.seen = journal.end
            self._score(scored, request, at, project, pool)
        return scored

    def _score(
        self, scored: _Scored, request: Request, rows: Ints, project: int, pool: str
    ) -> None:
        """Score some nodes; equal ones are reckoned once."""
        ledger, states = self._world.ledger, scored.states
        # Of what the project may not have nothing is free for it.
        may = fitting_devices(ledger, request, rows, project)
        free = np.where(may, np.maximum(ledger.free[rows], 0), 0)
        cores = 1000 * np.maximum(ledger.cpus[rows], 0)
        keys = [(one.tobytes(), core) for one, core in zip(free, cores.tolist(), strict=True)]
        if len(states) > _STATES:
            states.clear()
        unknown = {key: at for at, key in enumerate(keys) if key not in states}
        if unknown:
            at = np.array(list(unknown.values()), dtype=np.int64)
            models = np.full(len(at), self._pools[pool], dtype=np.int64)
            found = score(scored.prices, free[at], cores[at], models, scored.shape, OURS)
            values = zip(found.value.tolist(), found.device.tolist(), strict=True)
            states.update(zip(unknown, values, strict=True))
        start = self._world.layout.pool_rows[pool].start
        for row, key in zip((rows - start).tolist(), keys, strict=True):
            scored.value[row], scored.device[row] = states[key]


def task_shape(request: Request, milli: int, pools: tuple[int, ...] = ()) -> Shape:
    """What one task asks of a node.

    :param milli: what it takes of GPUs there.
    """
    cores = 1000 * request.vcpus
    if request.shared:
        return Shape(cores, 1, milli, pools)
    return Shape(cores, request.whole, WHOLE if request.whole else 0, pools)


def request_of_tasks(tasks: Sequence[TaskPlacement]) -> Request:
    """The request that such tasks may have come of."""
    one = tasks[0]
    milli = sum(part for _, part in one.devices)
    return Request(
        count=len(tasks),
        min_count=len(tasks),
        gpu_milli=milli,
        vcpus=one.vcpus,
        memory_mib=one.memory_mib,
    )


def _rounded(count: float) -> int:
    """A count to the next power of the root of two."""
    return round(2 ** (round(2 * math.log2(count)) / 2))


def _worth_it(counts: Counts) -> bool:
    """Whether fractions are a part of the mix that is worth caring for."""
    demand = sum(shape.total_milli * count for shape, count in counts)
    fractions = sum(shape.total_milli * count for shape, count in counts if shape.milli % WHOLE)
    return fractions > 0 and fractions >= SHARE_OF_DEMAND * demand


@lru_cache(64)
def _prices(counts: Counts, capacity: tuple[int, ...]) -> Prices:
    mix = Mix()
    for shape, count in counts:
        mix.add(shape, count)
    return learn(mix, capacity)
