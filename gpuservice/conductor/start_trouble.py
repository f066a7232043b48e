# SPDX-License-Identifier: Apache-2.0
"""Nodes that cannot start tasks are left alone for a while.

A node with a full disk, say, fails each task at once and is free for the next: the line would run
into it. After a few such failures in a row it is cordoned; later it gets another try, and the
first failure then cordons it again.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta

from gpuservice.conductor.deps import Deps
from gpuservice.conductor.node_marks import Marks
from gpuservice.domain.ports import Hint
from gpuservice.domain.ports_store import UnitOfWork, Where
from gpuservice.domain.progress import failure_class
from gpuservice.domain.states import NodeStatus
from gpuservice.domain.work import Task

#: So many failures in a row: fewer than the attempts that a job has by default.
IN_A_ROW = 2
PAUSE = timedelta(minutes=5)
REASON = "start_failures"


def outcomes(tasks: Sequence[Task]) -> dict[str, str | None]:
    """Node -> why it could not start a task of an ended attempt; None where one had started."""
    told: dict[str, str | None] = {}
    for task in tasks:
        if task.claimed_started_at is not None:
            told[task.node_id] = None
        elif failure_class(task) == "node_failure":
            told.setdefault(task.node_id, task.failure_evidence or "unknown")
    return told


class StartTrouble:
    """Counts in this process; several conductors cordon a little later than one."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._marks = Marks(deps)
        self._lock = threading.Lock()
        self._failures: dict[str, int] = {}

    def note(self, told: Mapping[str, str | None]) -> None:
        """What ended attempts say of their nodes (after their transaction)."""
        tripped: dict[str, str] = {}
        with self._lock:
            for node_id, evidence in told.items():
                if evidence is None:
                    self._failures.pop(node_id, None)
                    continue
                self._failures[node_id] = self._failures.get(node_id, 0) + 1
                if self._failures[node_id] >= IN_A_ROW:
                    self._failures[node_id] = IN_A_ROW - 1
                    tripped[node_id] = evidence
        for node_id, evidence in tripped.items():
            if self._deps.store.write(
                lambda uow, ident=node_id, why=evidence: self._cordon(uow, ident, why)  # type: ignore[misc]
            ):
                self._deps.hints.send(Hint("jobs"))

    def _cordon(self, uow: UnitOfWork, node_id: str, evidence: str) -> bool:
        node = uow.nodes.get(node_id)
        if node is None or node.status != NodeStatus.READY:
            return False
        return self._marks.node(uow, node, "cordon", {"status_reason": REASON}, REASON, evidence)

    def step(self) -> int:
        """Give nodes another try; how many."""
        due = self._deps.store.read(
            lambda uow: uow.nodes.find(
                Where("status", "eq", NodeStatus.CORDONED),
                Where("status_reason", "eq", REASON),
                Where("status_changed_at", "le", uow.now() - PAUSE),
            )
        )
        back = sum(
            self._deps.store.write(
                lambda uow, one=node: self._marks.node(  # type: ignore[misc]
                    uow, one, "uncordon", {"status_reason": None}, REASON
                )
            )
            for node in due
        )
        if back:
            self._deps.hints.send(Hint("jobs"))
        return back
