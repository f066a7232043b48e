# SPDX-License-Identifier: Apache-2.0
"""What a project's quota still lets it have, counting what this very plan has already given.

A task on its own project's pool takes no GPU quota: the pool's nodes are counted already.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpuservice.planner.capacity import Candidates, candidates, fitting_devices, share_milli
from gpuservice.planner.ledger import Ledger
from gpuservice.planner.placement import Tasks
from gpuservice.planner.snapshot import PendingJob, Request, Snapshot

RUNNING = "jobs:running"


class Headroom:
    """The rest of every limited quota. Names without a limit are absent and never stop a job."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._left = dict(snapshot.headroom)
        self._pools = {pool.id: pool for pool in snapshot.pools}
        self._limited = {project for project, _ in self._left}

    def may_run(self, project_id: str) -> bool:
        """Whether the project may have one more attempt."""
        return self._left.get((project_id, RUNNING), 1) >= 1

    def within(
        self, ledger: Ledger, pool_ids: tuple[str, ...], project_id: str, request: Request
    ) -> tuple[Candidates, ...]:
        """The pools where the project's quota lets the request start, own pools first."""
        ordered = sorted(pool_ids, key=lambda pool: not self._own(project_id, pool))
        found = candidates(ledger, ordered, project_id)
        if project_id not in self._limited:
            return found
        present = [pool for pool in ordered if pool in ledger.layout.pool_nodes]
        return tuple(
            replace(one, most=self._tasks(ledger, project_id, pool, request, one))
            for pool, one in zip(present, found, strict=True)
        )

    def take(self, ledger: Ledger, job: PendingJob, tasks: Tasks) -> None:
        """Count what a start gives the project."""
        if job.project_id not in self._limited:
            return
        self._sub(job.project_id, RUNNING, 1)
        for task in tasks:
            pool = ledger.layout.pool[ledger.layout.node_row[task.node_id]]
            if self._own(job.project_id, pool):
                continue
            for name in self._names(pool):
                self._sub(job.project_id, name, sum(milli for _, milli in task.devices))

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

    def _tasks(
        self, ledger: Ledger, project_id: str, pool: str, request: Request, where: Candidates
    ) -> int:
        """How many tasks of the request the GPU quota has room for in a pool."""
        if self._own(project_id, pool):
            return where.most
        lefts = [
            self._left[project_id, name]
            for name in self._names(pool)
            if (project_id, name) in self._left
        ]
        each = _milli(ledger, request, where)
        return min([where.most, *(max(left, 0) // each for left in lefts)]) if each else where.most

    def _sub(self, project_id: str, name: str, amount: int) -> None:
        key = (project_id, name)
        if key in self._left:
            self._left[key] -= amount


def _milli(ledger: Ledger, request: Request, where: Candidates) -> int:
    """Milli-GPUs of a task in a pool, at most (a share by memory depends on the device)."""
    if request.gpu_memory_mib is None:
        return request.gpu_milli
    fit = fitting_devices(ledger, request, where.project) & where.nodes[:, None]
    milli = np.where(fit, share_milli(ledger, request), 0)
    return int(np.where(milli <= 1000, milli, 0).max(initial=0))
