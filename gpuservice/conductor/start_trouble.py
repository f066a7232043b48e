# SPDX-License-Identifier: Apache-2.0
"""Nodes that cannot start tasks are left alone for a while.

A node with a full disk, say, fails each task at once and is free for the next: the line would run
into it. After a few such failures in a row, soon after each other, it is cordoned; later it gets
another try. What was given up with an epoch of the node says nothing of it in the next.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from gpuservice.conductor.deps import Deps
from gpuservice.conductor.node_marks import Marks
from gpuservice.domain.ports import Hint
from gpuservice.domain.ports_store import UnitOfWork, Where
from gpuservice.domain.progress import failure_class
from gpuservice.domain.states import NodeStatus
from gpuservice.domain.work import Task

#: So many failures in a row: fewer than the attempts that a job has by default.
IN_A_ROW = 2
#: ... each within so long of the one before; longer than the pauses between a job's attempts.
SOON = timedelta(minutes=1)
PAUSE = timedelta(minutes=5)
REASON = "start_failures"


#: A node in one of its epochs.
Place = tuple[str, int]


def outcomes(tasks: Sequence[Task]) -> dict[Place, str | None]:
    """Why nodes could not start a task of an ended attempt; None where one had started."""
    told: dict[Place, str | None] = {}
    for task in tasks:
        place = (task.node_id, task.node_epoch)
        if task.claimed_started_at is not None:
            told[place] = None
        elif failure_class(task) == "node_failure":
            told.setdefault(place, task.failure_evidence or "unknown")
    return told


class StartTrouble:
    """Counts in this process; several conductors cordon a little later than one."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._marks = Marks(deps)
        self._lock = threading.Lock()
        self._failures: dict[Place, tuple[int, datetime]] = {}

    def note(self, told: Mapping[Place, str | None]) -> None:
        """What an ended attempt says of its nodes (after its transaction)."""
        tripped: dict[Place, str] = {}
        now = self._deps.clock.now()
        with self._lock:
            self._failures = {
                place: known for place, known in self._failures.items() if now - known[1] <= SOON
            }
            for place, evidence in told.items():
                if evidence is None:
                    self._failures.pop(place, None)
                    continue
                count = self._failures.pop(place, (0, now))[0] + 1
                if count < IN_A_ROW:
                    self._failures[place] = (count, now)
                else:
                    tripped[place] = evidence
        for place, evidence in tripped.items():
            if self._deps.store.write(
                lambda uow, at=place, why=evidence: self._cordon(uow, at, why)  # type: ignore[misc]
            ):
                self._deps.hints.send(Hint("jobs"))

    def _cordon(self, uow: UnitOfWork, place: Place, evidence: str) -> bool:
        node = uow.nodes.get(place[0])
        if node is None or node.status != NodeStatus.READY or node.epoch != place[1]:
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
