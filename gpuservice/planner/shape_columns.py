# SPDX-License-Identifier: Apache-2.0
"""What is asked of all shapes at once, as columns that grow with the shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gpuservice.planner.ledger import NOBODY, Bools, Ints, Ledger

if TYPE_CHECKING:
    from gpuservice.planner.world import Shape


class ShapeColumns:
    """By number of the shape.

    ``needs`` (n, 2): (whole GPUs, milli of a GPU) that a task needs of one node; ``gang`` (n,):
    more GPUs than any node has; ``tasks`` (n,): of a gang.
    """

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self._shapes = shapes
        self._needs: Ints = np.zeros((0, 2), dtype=np.int64)
        self._host: Ints = np.zeros((0, 2), dtype=np.int64)  # CPUs and memory of a task
        self._gang: Bools = np.zeros(0, dtype=np.bool_)
        self._tasks: Ints = np.zeros(0, dtype=np.int64)
        self._project: Ints = np.zeros(0, dtype=np.int64)  # of those that take shares
        self._pools: Ints = np.zeros(0, dtype=np.int64)  # the number of its set of pools
        self._pool_sets: dict[tuple[str, ...], int] = {}

    @property
    def gang(self) -> Bools:
        """(n,): more GPUs than any node has."""
        self._grow()
        return self._gang

    @property
    def tasks(self) -> Ints:
        """(n,): tasks of a gang."""
        self._grow()
        return self._tasks

    def takes_gpus(self, number: int) -> bool:
        """Whether a task of a shape takes any of a GPU."""
        self._grow()
        return bool(self._needs[number].any())

    def needs(self, numbers: Ints) -> Ints:
        """(n, 5): what a task of each shape needs of one node: whole GPUs, milli of a GPU, how
        many GPUs that counts as, CPUs and memory."""
        self._grow()
        gpus = self._needs[numbers]
        counted = np.maximum(gpus[:, 0], gpus[:, 1] > 0)
        needs: Ints = np.column_stack([gpus, counted, self._host[numbers]])
        return needs

    def looks_at(self, numbers: Ints, pool: str) -> Bools:
        """(n,): which of the shapes look at a pool."""
        self._grow()
        sets = np.array([pool in pools for pools in self._pool_sets], dtype=np.bool_)
        found: Bools = sets[self._pools[numbers]]
        return found

    def may_fit(self, numbers: Ints, ledger: Ledger) -> list[int]:
        """Of some shapes those that are not too large for what is free on any node."""
        self._grow()
        most = np.zeros((len(self._pool_sets), 2), dtype=np.int64)
        for pools, number in self._pool_sets.items():
            for pool in pools:
                most[number] = np.maximum(most[number], ledger.most_free(pool))
        enough = self._needs[numbers] <= most[self._pools[numbers]]
        left = numbers[enough.all(axis=1)]
        found: list[int] = left[self._beside_others(left, ledger)].tolist()
        return found

    def _beside_others(self, numbers: Ints, ledger: Ledger) -> Bools:
        """(n,): whether what is free is not only beside shares of other projects."""
        needs = self._needs[numbers, 1]
        fits: Bools = needs == 0
        shared = np.flatnonzero(needs)
        if not shared.size:
            return fits
        most = np.zeros((len(self._pool_sets), len(ledger.layout.projects) + 1), dtype=np.int64)
        for pools, number in self._pool_sets.items():
            for pool in pools:
                here = ledger.most_beside(pool)
                most[number, : len(here)] = np.maximum(most[number, : len(here)], here)
        which = numbers[shared]
        pools_of, project = self._pools[which], self._project[which]
        room = np.maximum(most[pools_of, 0], most[pools_of, project + 1])
        fits[shared] = needs[shared] <= room
        return fits

    def _grow(self) -> None:
        new = self._shapes[len(self._gang) :]
        if not new:
            return
        pools = [tuple(one.pool for one in shape.where) for shape in new]
        numbers = [self._pool_sets.setdefault(one, len(self._pool_sets)) for one in pools]
        self._needs = np.concatenate(
            [self._needs, np.array([_need(one) for one in new], dtype=np.int64)]
        )
        host = [(one.request.vcpus, one.request.memory_mib) for one in new]
        self._host = np.concatenate([self._host, np.array(host, dtype=np.int64)])
        self._gang = np.concatenate([self._gang, np.array([one.gang for one in new])])
        tasks = np.array([one.request.count for one in new], dtype=np.int64)
        self._tasks = np.concatenate([self._tasks, tasks])
        projects = [one.views[0].project if one.views else NOBODY for one in new]
        self._project = np.concatenate([self._project, np.array(projects, dtype=np.int64)])
        self._pools = np.concatenate([self._pools, np.array(numbers, dtype=np.int64)])


def _need(shape: Shape) -> tuple[int, int]:
    """What a task needs of one node: (whole GPUs, milli of one)."""
    request = shape.request
    if request.whole or not request.shared:
        return request.whole, 0
    return 0, 1 if request.gpu_memory_mib is not None else request.gpu_milli
