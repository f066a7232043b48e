# SPDX-License-Identifier: Apache-2.0
"""Runs nothing: tasks end well at once, or after the seconds their environment names.

For measuring the service without the cost of processes. Keeps no files and adopts nothing.
"""

from __future__ import annotations

import contextlib
import heapq
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from gpuservice.agent.orders import TaskOrder
from gpuservice.agent.runner import DataMessage, Ended, Event, Started
from gpuservice.agent.task_files import Result
from gpuservice.agent.wire import Capabilities

#: How long a task pretends to run, seconds; from the task's environment.
SECONDS = "NOFORK_SECONDS"


class NoForkRunner:
    """See ``runner.Runner``."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._seconds: dict[str, float] = {}
        self._running: dict[str, float] = {}
        self._due: list[tuple[float, str]] = []
        self._events: deque[Event] = deque()

    @property
    def capabilities(self) -> Capabilities:
        """None: there is nothing to keep apart."""
        return Capabilities()

    @property
    def fault(self) -> None:
        """None: nothing runs."""

    def adopt(self) -> Sequence[TaskOrder]:
        """Nothing is left over from before."""
        return ()

    def prepare(self, order: TaskOrder, env: Mapping[str, str]) -> str:
        """Note how long it is to last."""
        with contextlib.suppress(ValueError):
            self._seconds[order.task_id] = float(env.get(SECONDS, "0"))
        return "/"

    def launch(self, task_id: str) -> None:
        """Begin to pretend."""
        now, seconds = time.time(), self._seconds.pop(task_id, 0.0)
        with self._changed:
            self._running[task_id] = now
            if seconds <= 0:
                self._end(task_id, Result(started_at=now, ended_at=now, exit_code=0))
            else:
                self._events.append(Started(task_id, now))
                heapq.heappush(self._due, (time.monotonic() + seconds, task_id))
            self._changed.notify()

    def stop(self, task_id: str, grace_s: float, signal_name: str) -> None:
        """End it as a signal would."""
        with self._changed:
            if task_id in self._running:
                number = 15 if grace_s > 0 else 9
                self._end(
                    task_id,
                    Result(
                        started_at=self._running[task_id],
                        signal=number,
                        ended_at=time.time(),
                        cause="stop",
                    ),
                )
                self._changed.notify()

    def limit(self, task_id: str, time_limit_s: int | None) -> None:
        """What pretends to run has no limit."""

    def helper(
        self, task_id: str, kind: str
    ) -> contextlib.AbstractContextManager[Iterator[DataMessage]]:
        """There is no data."""
        return contextlib.nullcontext(iter([DataMessage({"done": True}, None)]))

    def wait(self, timeout_s: float) -> Sequence[Event]:
        """What "happened" since the last call."""
        with self._changed:
            if not self._events:
                if self._due:
                    timeout_s = min(timeout_s, max(0.0, self._due[0][0] - time.monotonic()))
                self._changed.wait(timeout_s)
            while self._due and self._due[0][0] <= time.monotonic():
                _, task_id = heapq.heappop(self._due)
                if task_id in self._running:
                    self._end(
                        task_id,
                        Result(
                            started_at=self._running[task_id], ended_at=time.time(), exit_code=0
                        ),
                    )
            found = list(self._events)
            self._events.clear()
            return found

    def wipe(self, task_id: str, result: Result | None = None) -> None:
        """It left nothing."""

    def clean(self, task_id: str) -> None:
        """Nothing to remove."""
        self._seconds.pop(task_id, None)

    def log_directory(self, task_id: str) -> str | None:
        """It writes nothing."""
        return None

    def close(self) -> None:
        """Nothing to let go of."""

    def _end(self, task_id: str, result: Result) -> None:
        del self._running[task_id]
        self._events.append(Ended(task_id, result))
