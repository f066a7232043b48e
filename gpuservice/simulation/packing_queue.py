# SPDX-License-Identifier: Apache-2.0
"""Packing with a queue: what did not fit waits, and requests are decided on in batches.

As nothing ever leaves in a packing study, waiting alone helps nobody. Looking ahead does: of the
requests that came since the last decision the largest is placed first.

``hold`` goes further and breaks the rule that no GPU idles while somebody waits who fits. Fractions
cost more of the GPUs than they ask for (``cutting_stock``): once as much is asked for as there is,
that much cannot be given out. What has to be refused then is best refused among those that waste
most, so an even share of these is held from the start. The result says that jobs were held.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gpuservice.planner.fragmentation import Floats, worth_of_parts
from gpuservice.planner.mix import WHOLE, Mix, Shape

if TYPE_CHECKING:
    from gpuservice.simulation.packing import Options, Run


def shares_to_hold(mix: Mix, slack: float) -> dict[int, float]:
    """Size in milli-GPU -> the share of the requests for such a part that is best refused.

    :param slack: share of the cluster that is lost to other causes than fractions.
    """
    worth = worth_of_parts(mix)
    asked: dict[int, int] = {}
    for shape, count in mix.counts.items():
        if shape.devices:
            asked[shape.milli] = asked.get(shape.milli, 0) + count * shape.devices
    demand = sum(milli * count for milli, count in asked.items()) / WHOLE
    cost = {milli: float(worth[milli]) * count for milli, count in asked.items()}
    excess = sum(cost.values()) - (1.0 - slack) * demand
    shares: dict[int, float] = {}
    # By the share of its cost that it makes use of.
    for milli in sorted(asked, key=lambda size: _use(size, worth)):
        if excess <= 0 or _use(milli, worth) >= 1.0:
            break
        shares[milli] = min(1.0, excess / cost[milli])
        excess -= cost[milli]
    return shares


def _use(milli: int, worth: Floats) -> float:
    value = float(worth[milli])
    return milli / WHOLE / value if value else float("inf")


class Holding:
    """Says of each arrival whether it is held: of each size an even share."""

    def __init__(self, mix: Mix, slack: float, *, learning: bool) -> None:
        self._mix = mix
        self._slack = slack
        self._learning = learning
        self._shares = shares_to_hold(mix, slack)
        self._owed: dict[int, float] = {}

    def holds(self, shape: Shape) -> bool:
        """Count the arrival, and whether it is one to be held."""
        if self._learning:
            self._mix.add(shape)
            if self._mix.due():
                self._shares = shares_to_hold(self._mix, self._slack)
        if not shape.devices:
            return False
        owed = self._owed.get(shape.milli, 0.0) + self._shares.get(shape.milli, 0.0)
        held = owed >= 1.0
        self._owed[shape.milli] = owed - held
        return held


def drive(run: Run, options: Options, capacity: int, listed: Iterable[Shape]) -> None:
    """Let all requests come, and decide after each batch and after the last one.

    :param capacity: milli-GPU of the cluster.
    :param listed: the list the requests are from.
    """
    learning = options.known == "arrivals"
    holding = Holding(Mix() if learning else Mix(listed), options.hold_slack, learning=learning)
    waiting: list[int] = []
    demand = 0
    for now, one in enumerate(run.arrivals):
        run.placer.arrived(one.shape)
        before, demand = demand, demand + one.shape.total_milli
        waiting.append(now)
        if options.hold and before < options.hold_until * capacity:
            one.held = holding.holds(one.shape)
        release = before < options.hold_until * capacity <= demand
        last = now == len(run.arrivals) - 1
        if release or last or (now + 1) % options.batch == 0:
            held = options.hold and not last and demand < options.hold_until * capacity
            waiting = _decide(run, waiting, now, held=held)


def _decide(run: Run, waiting: list[int], now: int, *, held: bool) -> list[int]:
    """Place what fits, largest first, and say what still waits."""
    left: list[int] = []
    for index in sorted(waiting, key=lambda which: _rank(run, which)):
        if (held and run.arrivals[index].held) or not run.place(index, now):
            left.append(index)
    return left


def _rank(run: Run, index: int) -> tuple[bool, int, int, int]:
    """What was held last; else largest first, by GPU, then by cores, then by arrival."""
    one = run.arrivals[index]
    return (one.held, -one.shape.total_milli, -one.shape.cores_milli, index)
