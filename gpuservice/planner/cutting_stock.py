# SPDX-License-Identifier: Apache-2.0
"""What a free part of a GPU is worth: dual prices of the cutting-stock problem.

How few whole GPUs hold the fractions that are asked for is the cutting-stock problem; the dual of
its linear relaxation gives each size a price, so that no way to cut one GPU earns more than 1. A
size that leaves room for nothing else (0.81) costs a whole GPU, a size of which three fit a third.
Solved by the revised simplex method with columns made on demand by a knapsack (Gilmore and Gomory,
"A linear programming approach to the cutting-stock problem", 1961). Some twenty sizes take a few
milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: A gain smaller than this is none: it is rounding of the solver.
EPSILON = 1e-9


def dual_prices(sizes: Sequence[int], demand: Sequence[float], whole: int = 1000) -> Floats:
    """The price of one piece of each size, in whole GPUs.

    :param sizes: different sizes in milli-GPU, each within 1..``whole``.
    :param demand: how many pieces of each size are asked for, each above 0.
    :returns: (sizes,), never negative; no pattern that fits a GPU is worth more than 1.
    """
    count = len(sizes)
    if count == 0:
        return np.zeros(0)
    pieces = np.array([whole // size for size in sizes], dtype=np.float64)
    basis = np.diag(pieces)
    cost = np.ones(count)
    amount = np.asarray(demand, dtype=np.float64) / pieces
    prices: Floats = 1.0 / pieces
    # Far more steps than such a problem takes; the bound is for a cycle among equal solutions.
    for _ in range(50 * count):
        prices = np.asarray(np.linalg.solve(basis.T, cost), dtype=np.float64)
        entering, its_cost = _entering(sizes, prices, whole)
        if entering is None:
            break
        change = np.linalg.solve(basis, entering)
        ratio = np.full(count, np.inf)
        falls = change > EPSILON
        ratio[falls] = amount[falls] / change[falls]
        leaving = int(np.argmin(ratio))
        step = ratio[leaving]
        amount = np.maximum(amount - step * change, 0.0)
        amount[leaving] = step
        basis[:, leaving] = entering
        cost[leaving] = its_cost
    prices = np.maximum(prices, 0.0)
    most = float(value_table(sizes, prices, whole)[-1])
    return prices / most if most > 1.0 else prices


def value_table(sizes: Sequence[int], prices: Floats, whole: int = 1000) -> Floats:
    """What each amount of free milli-GPU on one GPU is worth, (``whole`` + 1,), in whole GPUs.

    The value of an amount is that of the dearest set of pieces that fits into it.
    """
    return _knapsack(sizes, prices, whole)[0]


def _entering(
    sizes: Sequence[int], prices: Floats, whole: int
) -> tuple[Floats, float] | tuple[None, float]:
    """The column that makes the solution better, with its cost; None when there is none."""
    lowest = int(np.argmin(prices))
    if prices[lowest] < -EPSILON:  # more pieces of this size than asked for
        surplus = np.zeros(len(sizes))
        surplus[lowest] = -1.0
        return surplus, 0.0
    best, takes = _knapsack(sizes, prices, whole)
    if best[-1] <= 1.0 + EPSILON:
        return None, 0.0
    pattern = np.zeros(len(sizes))
    room = int(whole)
    for index, pieces, taken in reversed(takes):
        if taken[room]:
            pattern[index] += pieces
            room -= pieces * sizes[index]
    return pattern, 1.0


def _knapsack(
    sizes: Sequence[int], prices: Floats, whole: int
) -> tuple[Floats, list[tuple[int, int, NDArray[np.bool_]]]]:
    """The best value for each room, and by (size, pieces) in which rooms those were taken.

    The number of pieces of a size is put together from 1, 2, 4, ... and a rest, so that each step
    is one operation on all rooms.
    """
    best = np.zeros(whole + 1)
    takes: list[tuple[int, int, NDArray[np.bool_]]] = []
    for index, (size, price) in enumerate(zip(sizes, prices, strict=True)):
        if price <= EPSILON:
            continue
        left, pieces = whole // size, 1
        while left > 0:
            pieces = min(pieces, left)
            weight = pieces * size
            with_it = best[:-weight] + pieces * price
            taken = np.zeros(whole + 1, dtype=np.bool_)
            taken[weight:] = with_it > best[weight:] + EPSILON
            best[weight:] = np.where(taken[weight:], with_it, best[weight:])
            takes.append((index, pieces, taken))
            left -= pieces
            pieces *= 2
    return best, takes
