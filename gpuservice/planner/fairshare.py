# SPDX-License-Identifier: Apache-2.0
"""Hierarchical weighted fair share: whose turn it is, by decayed usage per weight.

The levels are cohort, queue, project, user. A queue's usage is what it had (decayed with a
half-life, as in Slurm's fair tree and Kueue's admission fair sharing), what its running jobs may
still use, and what this very plan has given it. Without the last two, whoever is behind would be
given everything until its usage shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from gpuservice.planner.holds import FOREVER
from gpuservice.planner.line import UNLIMITED_S
from gpuservice.planner.snapshot import QueueState, UsageKey
from gpuservice.planner.world import World


class FairShare:
    """Usage by level during one pass, in milli-GPU-seconds.

    Nothing is summed up before somebody asks: a pass in which one queue waits never does.
    """

    def __init__(
        self, world: World, now: float, usage: Mapping[UsageKey, float], half_life_s: float
    ) -> None:
        self._world = world
        self._most_s = half_life_s
        self._now, self._usage = now, usage
        self._known: dict[tuple[str, ...], float] | None = None
        self._started: list[tuple[int, float]] = []  # before anybody asked

    @cached_property
    def _weights(self) -> dict[tuple[str, ...], float]:
        return _weights(self._world.queues)

    @property
    def _used(self) -> dict[tuple[str, ...], float]:
        """(queue), (queue, project), (queue, project, user) and ("", cohort) -> usage."""
        if self._known is None:
            self._known = {}
            for (queue, project, user), amount in self._usage.items():
                self._add(queue, project, user, amount)
            self._add_running(self._now)
            for share, amount in self._started:
                self._charge(share, amount)
        return self._known

    def path(self, share: int) -> tuple[tuple[str, ...], ...]:
        """The levels of a share, outer to inner: cohort (where there is one), queue, project,
        user."""
        one = self._world.shares[share]
        queue = self._world.queues.get(one.queue_id)
        inner = (
            (one.queue_id,),
            (one.queue_id, one.project_id),
            (one.queue_id, one.project_id, one.user_id),
        )
        return (("", queue.cohort), *inner) if queue and queue.cohort else inner

    def per_weight(self, level: tuple[str, ...]) -> float:
        """The usage of a level by its weight: the less, the sooner."""
        return self._used.get(level, 0.0) / self._weights.get(level, 1.0)

    def charge(self, share: int, milli: int, runtime: float) -> None:
        """Something was started."""
        amount = milli * self._reckoned(runtime)
        if self._known is None:
            self._started.append((share, amount))
        else:
            self._charge(share, amount)

    def _charge(self, share: int, amount: float) -> None:
        one = self._world.shares[share]
        self._add(one.queue_id, one.project_id, one.user_id, amount)

    def factor(self, share: int) -> float:
        """2^-(part of all usage / part of all weights) of the share's queue: 1 for who had
        nothing, 1/2 for who had just its part."""
        one = self._world.shares[share]
        total = sum(amount for key, amount in self._used.items() if len(key) == 1)
        if not total:
            return 1.0
        weights = sum(weight for key, weight in self._weights.items() if len(key) == 1)
        part = self._used.get((one.queue_id,), 0.0) / total
        return float(2.0 ** -(part * weights / self._weights.get((one.queue_id,), 1.0)))

    def queue_usage(self, queue_id: str) -> float:
        """A queue's usage per weight."""
        return self._used.get((queue_id,), 0.0) / self._weights.get((queue_id,), 1.0)

    def cost(self, queue_id: str, milli: float, runtime: float) -> float:
        """What a job would add to its queue's usage per weight."""
        return milli * self._reckoned(runtime) / self._weights.get((queue_id,), 1.0)

    def _reckoned(self, runtime: float) -> float:
        return min(UNLIMITED_S if runtime == FOREVER else runtime, self._most_s)

    def _add(self, queue: str, project: str, user: str, amount: float) -> None:
        used = self._used
        state = self._world.queues.get(queue)
        if state is not None and state.cohort:
            used["", state.cohort] = used.get(("", state.cohort), 0.0) + amount
        for key in ((queue,), (queue, project), (queue, project, user)):
            used[key] = used.get(key, 0.0) + amount

    def _add_running(self, now: float) -> None:
        columns = self._world.columns
        milli = columns[:, 1]
        if not milli.any():
            return
        left = np.where(np.isinf(columns[:, 2]), UNLIMITED_S, columns[:, 2] - now)
        sums = np.bincount(
            columns[:, 0].astype(np.int64),
            weights=milli * np.clip(left, 0.0, self._most_s),
            minlength=len(self._world.shares),
        )
        for share in np.flatnonzero(sums).tolist():
            one = self._world.shares[share]
            self._add(one.queue_id, one.project_id, one.user_id, float(sums[share]))


def _weights(queues: Mapping[str, QueueState]) -> dict[tuple[str, ...], float]:
    """Weights of queues and, as sums, of cohorts."""
    weights: dict[tuple[str, ...], float] = {}
    for queue in queues.values():
        weight = max(float(queue.weight), 1e-9)
        weights[queue.id,] = weight
        if queue.cohort:
            weights["", queue.cohort] = weights.get(("", queue.cohort), 0.0) + weight
    return weights
