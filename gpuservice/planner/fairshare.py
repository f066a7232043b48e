# SPDX-License-Identifier: Apache-2.0
"""Hierarchical weighted fair share: whose turn it is, by decayed usage per weight.

The levels are cohort, queue, project, user. A queue's usage is what it had (decayed with a
half-life, as in Slurm's fair tree and Kueue's admission fair sharing), what its running jobs may
still use, and what this very plan has given it. Without the last two, whoever is behind would be
given everything until its usage shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from gpuservice.planner.holds import FOREVER
from gpuservice.planner.ledger import Floats, Ints
from gpuservice.planner.levels import QUEUE, Path
from gpuservice.planner.line import UNLIMITED_S
from gpuservice.planner.snapshot import UsageKey
from gpuservice.planner.world import World


class FairShare:
    """Usage by level during one pass, in milli-GPU-seconds.

    Nothing is summed up before somebody asks: a pass in which one queue waits never does.
    """

    def __init__(
        self, world: World, now: float, usage: Mapping[UsageKey, float], half_life_s: float
    ) -> None:
        self._world = world
        self._levels = world.levels
        self._most_s = half_life_s
        self._now, self._usage = now, usage
        self._known: Floats | None = None
        self._started: list[tuple[Path, float]] = []  # before anybody asked

    @property
    def _used(self) -> Floats:
        """(levels,): the usage of each."""
        used = self._known
        if used is None:
            used = self._known = self._summed()
        if len(used) < len(self._levels):
            used = self._known = np.concatenate([used, np.zeros(len(self._levels) - len(used))])
        return used

    def paths(self, shares: Ints) -> Ints:
        """(n, 4): the levels of shares, outer to inner."""
        paths: Ints = self._levels.paths[shares]
        return paths

    def all_per_weight(self) -> Floats:
        """(levels,): the usage of each by its weight: the less, the sooner."""
        per_weight: Floats = self._used / self._levels.weights
        return per_weight

    def per_weight(self, level: int) -> float:
        """The usage of one level by its weight."""
        used = self._known
        if used is None or level >= len(used):
            used = self._used
        return used.item(level) / self._levels.weight(level)

    def charge(self, share: int, milli: int, runtime: float) -> None:
        """Something was started."""
        path, amount = self._levels.of_share(share), milli * self._reckoned(runtime)
        if self._known is None:
            self._started.append((path, amount))
        else:
            _add(self._used, [(path, amount)])

    def factor(self, share: int) -> float:
        """2^-(part of all usage / part of all weights) of the share's queue: 1 for who had
        nothing, 1/2 for who had just its part."""
        total = float(self._used[self._levels.queues].sum())
        if not total:
            return 1.0
        queue = self._levels.of_share(share)[QUEUE]
        part = self._used.item(queue) / total
        weight = self._levels.weights.item(queue)
        return float(2.0 ** -(part * self._levels.weights_of_queues / weight))

    def queue_usage(self, queue_id: str) -> float:
        """A queue's usage per weight."""
        return self.per_weight(self._levels.queue(queue_id))

    def cost(self, queue_id: str, milli: float, runtime: float) -> float:
        """What a job would add to its queue's usage per weight."""
        weight = self._levels.weights.item(self._levels.queue(queue_id))
        return milli * self._reckoned(runtime) / weight

    def _reckoned(self, runtime: float) -> float:
        return min(UNLIMITED_S if runtime == FOREVER else runtime, self._most_s)

    def _summed(self) -> Floats:
        """What was used, what runs, what was started."""
        had = [(self._levels.path(*key), amount) for key, amount in self._usage.items()]
        used = np.zeros(len(self._levels))
        _add(used, had)
        columns = self._world.running.columns
        milli = columns[:, 1]
        if milli.any():
            left = np.where(np.isinf(columns[:, 2]), UNLIMITED_S, columns[:, 2] - self._now)
            amounts = milli * np.clip(left, 0.0, self._most_s)
            paths = self.paths(columns[:, 0].astype(np.int64))
            for level in range(paths.shape[1]):
                used += np.bincount(paths[:, level], weights=amounts, minlength=len(used))
        _add(used, self._started)
        return used


def _add(used: Floats, amounts: Iterable[tuple[Path, float]]) -> None:
    for path, amount in amounts:
        for level in path:
            used[level] += amount
