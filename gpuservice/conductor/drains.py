# SPDX-License-Identifier: Apache-2.0
"""Nodes that are drained with notice: what still runs there when it is over goes elsewhere."""

from __future__ import annotations

from gpuservice.conductor.deps import Deps
from gpuservice.domain.ports import Hint
from gpuservice.domain.ports_store import UnitOfWork, Where
from gpuservice.domain.states import NodeStatus


class Drains:
    """Stops the attempts on nodes whose notice is over; they are requeued and do not count."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    def step(self) -> int:
        """One look at the deadlines; how many attempts were asked to stop."""
        due = self._deps.store.read(
            lambda uow: uow.nodes.find(
                Where("status", "eq", NodeStatus.DRAINING),
                Where("drain_deadline_at", "le", uow.now()),
                Where("live_tasks", "gt", 0),
            )
        )
        stopped = sum(self._empty(node.id) for node in due)
        if stopped:
            self._deps.hints.send(Hint("attempts"))
        return stopped

    def _empty(self, node_id: str) -> int:
        def work(uow: UnitOfWork) -> int:
            tasks = uow.tasks.of_node(node_id)
            uow.jobs.get_many({task.job_id for task in tasks}, lock=True)
            attempts = uow.attempts.get_many({task.attempt_id for task in tasks}, lock=True)
            node = uow.nodes.get(node_id)
            deadline = None if node is None else node.drain_deadline_at
            if node is None or node.status != NodeStatus.DRAINING or deadline is None:
                return 0  # it was taken back meanwhile
            if deadline > uow.now():
                return 0
            left = [one.id for one in attempts if one.live and one.stop_reason is None]
            uow.attempts.change_many(
                left,
                {"stop_reason": "drained", "stop_requested_at": uow.now(), "attention": True},
                Where("live", "eq", 1),
            )
            return len(left)

        return self._deps.store.write(work)
