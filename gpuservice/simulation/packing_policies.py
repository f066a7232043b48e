# SPDX-License-Identifier: Apache-2.0
"""The policies of the packing study: ours, and the six of the FGD paper to compare it with.

The others follow the published simulator (hkust-adsl/kubernetes-scheduler-simulator), down to
scores in whole numbers, because which scores are equal decides as much as which is higher.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from gpuservice.planner.fragmentation import FGD, Prices, Scores, Weights, learn, score
from gpuservice.planner.mix import WHOLE, Mix, Shape
from gpuservice.simulation.faults import InputFault
from gpuservice.simulation.packing_board import Board, Floats, Ints, Placement, Policy, best

#: Share of all requests that FGD's typical ones make up.
TYPICAL = 0.95
#: The largest host the published scores know: milli-cores, milli-GPU.
LARGEST_HOST = (128_000, 8 * WHOLE)


@dataclass(slots=True)
class Priced:
    """A place by the value of what it leaves idle (``gpuservice.planner.fragmentation``)."""

    prices: Prices
    weights: Weights

    def arrived(self, shape: Shape) -> bool:
        """The prices are those of the whole list: an arrival teaches nothing."""
        return False

    def scores(self, board: Board, rows: Ints, shape: Shape) -> Scores:
        """By the prices."""
        free, cores, model = board.free[rows], board.cores[rows], board.model[rows]
        return score(self.prices, free, cores, model, shape, self.weights)

    def choose(self, board: Board, scores: Scores, shape: Shape) -> Placement:
        """The best, the first of equals."""
        return best(board, scores, shape)


@dataclass(slots=True)
class Learning(Priced):
    """The same with prices learned from the arrivals so far, at growing intervals."""

    capacity: Ints
    mix: Mix = field(default_factory=Mix)

    def arrived(self, shape: Shape) -> bool:
        """Count it; the prices are made anew when that is due."""
        self.mix.add(shape)
        if not self.mix.due():
            return False
        self.prices = learn(self.mix, self.capacity)
        return True


class Ruled:
    """A place by a fixed rule on what is idle; the device is the one that is filled best."""

    def __init__(self, rule: Callable[[Board, Ints, Shape, Ints], Floats]) -> None:
        self._rule = rule

    def arrived(self, shape: Shape) -> bool:
        """A rule learns nothing."""
        return False

    def scores(self, board: Board, rows: Ints, shape: Shape) -> Scores:
        """By the rule, in whole numbers."""
        free = board.free[rows]
        fits = board.cores[rows] >= shape.cores_milli
        if shape.models:
            fits &= np.isin(board.model[rows], shape.models)
        room = free >= max(shape.milli, 1)
        fits &= room.sum(axis=1) >= shape.devices
        tightest = np.where(room, free, WHOLE + 1).argmin(axis=1)
        value = np.trunc(self._rule(board, rows, shape, tightest))
        return Scores(np.where(fits, value, -np.inf), tightest)

    def choose(self, board: Board, scores: Scores, shape: Shape) -> Placement:
        """The best, the first of equals."""
        return best(board, scores, shape)


class Random(Ruled):
    """Any node that holds it, any device of it that does."""

    def __init__(self, generator: np.random.Generator) -> None:
        super().__init__(lambda board, rows, shape, device: np.zeros(len(rows)))
        self._generator = generator

    def choose(self, board: Board, scores: Scores, shape: Shape) -> Placement:
        """Drawn from all that fit."""
        node = int(self._generator.choice(np.flatnonzero(scores.value > -np.inf)))
        device = -1
        if shape.devices:
            device = int(self._generator.choice(np.flatnonzero(board.free[node] >= shape.milli)))
        alone = np.full(len(scores.value), -np.inf)
        alone[node] = 0.0
        return best(board, Scores(alone, np.full(len(alone), device)), shape)


def best_fit(board: Board, rows: Ints, shape: Shape, device: Ints) -> Floats:
    """The least left over, cores and GPU alike, as a share of the largest host."""
    cores, milli = LARGEST_HOST
    left = 0.5 * (board.cores[rows] - shape.cores_milli) / cores
    left += 0.5 * (board.free[rows].sum(axis=1) - shape.total_milli) / milli
    return np.asarray((1.0 - left) * 100.0)


def dot_product(board: Board, rows: Ints, shape: Shape, device: Ints) -> Floats:
    """Where what is idle is least like what is asked for."""
    cores, milli = LARGEST_HOST
    alike = board.cores[rows] / cores * (shape.cores_milli / cores)
    alike += board.free[rows].sum(axis=1) / milli * (shape.total_milli / milli)
    return np.asarray((1.0 - alike / 2.0) * 100.0)


def packing(board: Board, rows: Ints, shape: Shape, device: Ints) -> Floats:
    """A shared GPU, else an idle one of a used node, else one of an idle node."""
    if not shape.devices:
        return np.zeros(len(rows))
    free, gpus = board.free[rows], board.gpus[rows]
    idle = (free == WHOLE).sum(axis=1)
    left = free[np.arange(len(rows)), device]
    shared = np.maximum(100 - (left * 100 // WHOLE) // 10, 50)
    opened = np.maximum(50 - shape.devices, 33)
    value = np.where(left < WHOLE, shared, opened)
    value = np.where(idle == gpus, np.maximum(33 - idle, idle), value)
    return np.asarray(value, dtype=np.float64)


def clustering(board: Board, rows: Ints, shape: Shape, device: Ints) -> Floats:
    """Requests of one kind together: all fractions, or those of equally many whole GPUs."""
    if not shape.devices:
        return np.zeros(len(rows))
    kinds = board.kinds[rows]
    column = 0 if shape.milli < WHOLE else shape.devices
    if column >= kinds.shape[1]:  # more GPUs than any node has
        return np.zeros(len(rows))
    alike, different = kinds[:, column] > 0, (kinds > 0).sum(axis=1)
    used = 25 * (LARGEST_HOST[1] - board.free[rows].sum(axis=1)) // LARGEST_HOST[1]
    step = np.where(alike, np.where(different == 1, 75, 50), np.where(different == 0, 25, 0))
    return np.asarray(used + step, dtype=np.float64)


RULES: dict[str, Callable[[Board, Ints, Shape, Ints], Floats]] = {
    "bestfit": best_fit,
    "packing": packing,
    "clustering": clustering,
    "dotprod": dot_product,
}
#: All names, ours first.
NAMES = ("default", "fgd", *RULES, "random")


def make(
    name: str,
    board: Board,
    shapes: Iterable[Shape],
    *,
    known: str,
    weights: Weights,
    generator: np.random.Generator,
) -> Policy:
    """The policy of this name.

    :param shapes: the list that requests are drawn from; what FGD and, with ``known`` "list", ours
        learn from.
    :param known: "list", or "arrivals" for prices that know only the requests so far.
    """
    if name in RULES:
        return Ruled(RULES[name])
    if name == "random":
        return Random(generator)
    if name == "fgd":
        return Priced(learn(Mix(shapes), board.capacity, share=TYPICAL), FGD)
    if name != "default":
        raise InputFault(f"no packing policy {name!r}; there are {', '.join(NAMES)}")
    if known == "list":
        return Priced(learn(Mix(shapes), board.capacity), weights)
    if known == "arrivals":
        return Learning(learn(Mix(), board.capacity), weights, board.capacity)
    raise InputFault(f"known is {known!r}, not 'list' or 'arrivals'")
