# SPDX-License-Identifier: Apache-2.0
"""All that should run on a node, as its agent is told."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from gpuservice.domain.inventory import Device, Node
from gpuservice.domain.ports import UnitOfWork, Where
from gpuservice.domain.task_environment import order
from gpuservice.domain.work import Task

Orders = list[dict[str, Any]]

#: How many nodes' lists one process remembers.
REMEMBERED = 2000


def orders_of(uow: UnitOfWork, node: Node, log_max_bytes: int) -> Orders:
    """The tasks of this node and epoch; six reads, whatever their number.

    Tasks of an older epoch are left out: they were given up, and must not run.
    """
    tasks = [task for task in uow.tasks.of_node(node.id) if task.node_epoch == node.epoch]
    if not tasks:
        return []
    attempts = {one.id: one for one in uow.attempts.get_many({task.attempt_id for task in tasks})}
    jobs = {job.id: job for job in uow.jobs.get_many({task.job_id for task in tasks})}
    peers: dict[str, list[Task]] = {}
    for peer in uow.tasks.of_attempts(sorted(attempts)):
        peers.setdefault(peer.attempt_id, []).append(peer)
    shares = _shares(uow, [task.id for task in tasks])
    return [
        order(jobs[task.job_id], attempts[task.attempt_id], task, peers[task.attempt_id],
              shares.get(task.id, []), log_max_bytes)
        for task in tasks if task.job_id in jobs and task.attempt_id in attempts
    ]


def _shares(uow: UnitOfWork, task_ids: list[str]) -> dict[str, list[tuple[Device, int]]]:
    held = uow.allocations.find(Where("task_id", "in", task_ids), Where("released_at", "null"))
    devices = {one.id: one for one in uow.devices.get_many({one.device_id for one in held})}
    found: dict[str, list[tuple[Device, int]]] = {}
    for one in held:
        found.setdefault(one.task_id, []).append((devices[one.device_id], one.milli))
    for shares in found.values():
        shares.sort(key=lambda share: share[0].ordinal)
    return found


class OrderBook:
    """Lists of nodes at one (epoch, revision), so that an unchanged list is not read again.

    The node's row is always read before its tasks: a list may be newer than the revision it
    stands under, never older; and each change of a list raises the revision.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lists: OrderedDict[str, tuple[tuple[int, int], Orders]] = OrderedDict()

    def known(self, node: Node) -> Orders | None:
        """The list at the node's revision, if it is remembered."""
        with self._lock:
            entry = self._lists.get(node.id)
            if entry is None or entry[0] != (node.epoch, node.revision):
                return None
            self._lists.move_to_end(node.id)
            return entry[1]

    def remember(self, node: Node, orders: Orders) -> None:
        """Keep a list."""
        with self._lock:
            self._lists[node.id] = ((node.epoch, node.revision), orders)
            self._lists.move_to_end(node.id)
            while len(self._lists) > REMEMBERED:
                self._lists.popitem(last=False)
