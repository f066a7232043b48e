# SPDX-License-Identifier: Apache-2.0
"""What a project's quota still lets it have, counting what this very plan has already given.

A task on its own project's pool takes no GPU quota: the pool's nodes are counted already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from gpuservice.planner.capacity import PLENTY, Candidates, right_kind, share_milli
from gpuservice.planner.ledger import Layout, Ledger
from gpuservice.planner.snapshot import PoolState, Request, TaskPlacement

RUNNING = "jobs:running"


class Headroom:
    """The rest of every limited quota. Names without a limit are absent and never stop a job."""

    def __init__(self, left: Mapping[tuple[str, str], int], pools: Mapping[str, PoolState]) -> None:
        self._left = dict(left)
        self._pools = pools
        self._limited = {project for project, _ in self._left}

    def limits(self, project_id: str) -> bool:
        """Whether anything of the project is limited."""
        return project_id in self._limited

    def may_run(self, project_id: str) -> bool:
        """Whether the project may have one more attempt."""
        return self._left.get((project_id, RUNNING), 1) >= 1

    def room(self, project_id: str, pool_id: str) -> int:
        """Milli-GPUs that the project may still take on a pool."""
        if project_id not in self._limited or self._own(project_id, pool_id):
            return PLENTY
        return max(
            0,
            min(
                (self._left.get((project_id, name), PLENTY) for name in self._names(pool_id)),
                default=PLENTY,
            ),
        )

    def change(self, project_id: str, taken: Mapping[str, int], sign: int = -1) -> None:
        """Count what a start takes of the project's quota (or, with +1, gives back)."""
        if project_id not in self._limited:
            return
        for name, amount in taken.items():
            if (project_id, name) in self._left:
                self._left[project_id, name] += sign * amount

    def counted(
        self, layout: Layout, project_id: str, tasks: Iterable[TaskPlacement]
    ) -> dict[str, int]:
        """What a gang takes of its project's quota."""
        taken = {RUNNING: 1}
        if project_id not in self._limited:
            return taken
        for task in tasks:
            row = layout.node_row.get(task.node_id)
            if row is None or self._own(project_id, layout.pool[row]):
                continue
            milli = sum(milli for _, milli in task.devices)
            for name in self._names(layout.pool[row]):
                taken[name] = taken.get(name, 0) + milli
        return taken

    def left(self, project_id: str) -> dict[str, int]:
        """What is left of each limited name that a start takes (GPUs in milli)."""
        return {
            name: amount
            for (project, name), amount in sorted(self._left.items())
            if project == project_id and (name == RUNNING or name.startswith("gpus"))
        }

    def _own(self, project_id: str, pool_id: str) -> bool:
        pool = self._pools.get(pool_id)
        return pool is not None and pool.project_id == project_id

    def _names(self, pool_id: str) -> tuple[str, ...]:
        pool = self._pools.get(pool_id)
        return ("gpus",) if pool is None else ("gpus", f"gpus:{pool.template.gpu_type}")


def milli_of_task(ledger: Ledger, request: Request, where: Candidates) -> int:
    """Milli-GPUs of a task in a pool, at most (a share by memory depends on the device)."""
    if request.gpu_memory_mib is None:
        return request.gpu_milli
    milli = np.where(
        right_kind(ledger, request, where.rows), share_milli(ledger, request, where.rows), 0
    )
    return int(np.where(milli <= 1000, milli, 0).max(initial=0))
