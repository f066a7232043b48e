# SPDX-License-Identifier: Apache-2.0
"""What projects hold of their limits, counted apart from the planner."""

from __future__ import annotations

from collections.abc import Iterable

from gpuservice.planner.quota import RUNNING
from gpuservice.planner.snapshot import TaskPlacement
from gpuservice.simulation.cluster import Cluster


class Quotas:
    """The rest of each limit. A task on a pool of its own project takes none."""

    def __init__(self, cluster: Cluster) -> None:
        self._left = dict(cluster.headroom)
        self._limited = {project for project, _ in self._left}
        owners = {pool.id: pool.project_id for pool in cluster.owned}
        self._owner = {node.id: owners.get(node.pool_id) for node in cluster.nodes}
        self._type = {
            node.id: node.devices[0].gpu_type if node.devices else "" for node in cluster.nodes
        }

    def take(self, project: str, tasks: Iterable[TaskPlacement]) -> bool:
        """Take what a start needs; False, and nothing taken, if it is not left."""
        if project not in self._limited:
            return True
        needs = self._needs(project, tasks)
        if any(self._left[key] < amount for key, amount in needs.items() if amount):
            return False
        self._take(needs)
        return True

    def hold(self, project: str, tasks: Iterable[TaskPlacement]) -> None:
        """Take what runs already, even where the limit is below it."""
        if project in self._limited:
            self._take(self._needs(project, tasks))

    def give(self, project: str, tasks: Iterable[TaskPlacement]) -> bool:
        """Give it back; whether that may matter to anybody."""
        if project not in self._limited:
            return False
        for key, amount in self._needs(project, tasks).items():
            self._left[key] += amount
        return True

    def _take(self, needs: dict[tuple[str, str], int]) -> None:
        for key, amount in needs.items():
            self._left[key] -= amount

    def _needs(self, project: str, tasks: Iterable[TaskPlacement]) -> dict[tuple[str, str], int]:
        needs = {RUNNING: 1}
        for task in tasks:
            if self._owner[task.node_id] == project:
                continue
            milli = sum(share for _, share in task.devices)
            for name in ("gpus", f"gpus:{self._type[task.node_id]}"):
                needs[name] = needs.get(name, 0) + milli
        return {
            (project, name): amount
            for name, amount in needs.items()
            if (project, name) in self._left
        }
