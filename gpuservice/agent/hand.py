# SPDX-License-Identifier: Apache-2.0
"""One task as the agent holds it, from the order to the service's word that it may be forgotten."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from gpuservice.agent.log_shipping import LogCursor
from gpuservice.agent.orders import TaskOrder
from gpuservice.agent.task_files import Result
from gpuservice.agent.wire import Failure, LogPiece, TaskReport, TaskState


@dataclass(slots=True)
class TaskInHand:
    """State of one task; changed under the agent's lock only.

    ``discarded``: nobody wants it any more, it is cleaned at its end without a word.
    ``launched``: given to the runner, so an end will come from there.
    """

    order: TaskOrder
    logs: LogCursor
    state: TaskState = "preparing"
    started_at: float | None = None
    result: Result | None = None
    failure: Failure | None = None
    launched: bool = False
    discarded: bool = False
    #: The state that the service has heard of.
    told: TaskState | None = None
    grace_s: float | None = None
    #: The time limit last heard of; the order keeps the one it came with.
    time_limit_s: int | None = field(init=False)
    checkpointed_at: float = 0.0
    checkpoint_lock: threading.Lock = field(default_factory=threading.Lock)
    #: The last completed checkpoint's number; they only grow.
    checkpoint_seq: int = 0
    #: What of its checkpoints is to be told of with the next sync; each reason is told once.
    checkpoint_faults: list[Failure] = field(default_factory=list)
    _reasons_told: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.time_limit_s = self._first_limit_s

    @property
    def _first_limit_s(self) -> int | None:
        return None if self.order.spec is None else self.order.spec.time_limit_s

    @property
    def limit_changed(self) -> bool:
        """Whether the limit is another than the order's."""
        return self.time_limit_s != self._first_limit_s

    @property
    def has_data(self) -> bool:
        """Whether its end means more than a report: outputs or a checkpoint to hand over."""
        spec = self.order.spec
        return spec is not None and bool(spec.outputs or self.keeps_checkpoint)

    @property
    def left_data(self) -> bool:
        """Whether it ran, and what it left was not handed over yet."""
        result = self.result
        return (
            result is not None and result.cause not in ("setup", "lost") and not result.handed_over
        )

    @property
    def keeps_checkpoint(self) -> bool:
        """Whether this rank's checkpoint is kept."""
        spec = self.order.spec
        return (
            spec is not None
            and spec.checkpoint is not None
            and (spec.checkpoint.ranks == "all" or self.order.rank == 0)
        )

    @property
    def last_word(self) -> Result | None:
        """What must be known of it should another agent report it; null if its end says it all."""
        if self.result is None or not (self.has_data or self.failure):
            return None
        if self.failure is None:
            return self.result
        return replace(self.result, failure_class=self.failure.kind, evidence=self.failure.evidence)

    def fail(self, kind: str, evidence: str) -> None:
        """Note a failure; the first one stands."""
        if self.failure is None:
            self.failure = Failure(kind=kind, evidence=evidence)

    def checkpoint_fault(self, reason: str, evidence: str) -> bool:
        """Note why a checkpoint was not kept (whole); whether that is news."""
        if reason in self._reasons_told:
            return False
        self._reasons_told.add(reason)
        # Many of them may ride in one sync.
        self.checkpoint_faults.append(Failure(kind=reason, evidence=evidence[:500]))
        return True

    def ended(self, result: Result) -> None:
        """Take the runner's word on the end."""
        self.result = result
        if result.started_at is not None and result.cause != "setup":
            self.started_at = result.started_at
        if result.failure_class is not None:
            self.fail(result.failure_class, result.evidence or "")

    @property
    def has_news(self) -> bool:
        """Whether the service must hear of it."""
        return self.told != self.state or bool(self.checkpoint_faults)

    def report(self, log: dict[str, LogPiece]) -> TaskReport:
        """What a sync says of it now."""
        result = self.result or Result()
        gone = self.state == "gone"
        return TaskReport(
            task_id=self.order.task_id,
            state=self.state,
            started_at=_when(self.started_at),
            ended_at=_when(result.ended_at),
            exit_code=result.exit_code,
            signal=result.signal,
            oom=result.oom,
            timed_out=result.timed_out,
            stopped=result.cause == "stop",
            failure=self.failure if gone else None,
            checkpoint_fault=next(iter(self.checkpoint_faults), None),
            log=log,
        )


def _when(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
