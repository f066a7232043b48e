# SPDX-License-Identifier: Apache-2.0
"""What an agent needs of whatever runs its tasks: the interface and its events, not its means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO, Any, Protocol

from gpuservice.agent.orders import TaskOrder
from gpuservice.agent.task_files import Result
from gpuservice.agent.wire import Capabilities


@dataclass(frozen=True, slots=True)
class Started:
    """The task's program runs since ``at`` (seconds of the node's clock)."""

    task_id: str
    at: float


@dataclass(frozen=True, slots=True)
class Ended:
    """No process of the task is left."""

    task_id: str
    result: Result


Event = Started | Ended


@dataclass(frozen=True, slots=True)
class DataMessage:
    """One message of a data helper, with the open file it hands over, if any."""

    content: Mapping[str, Any]
    file: IO[bytes] | None


class LaunchError(RuntimeError):
    """The node could not make what a task needs: the node's failure."""


class Runner(Protocol):
    """Runs tasks. ``wait`` is called by one thread; the rest from any."""

    @property
    def capabilities(self) -> Capabilities:
        """What was proved at the start."""

    @property
    def fault(self) -> str | None:
        """Why no task may be started here, null if they may; those adopted go on."""

    def adopt(self) -> Sequence[TaskOrder]:
        """Tasks an earlier agent left, running or ended; ``wait`` tells which."""

    def prepare(self, order: TaskOrder, env: Mapping[str, str]) -> str:
        """Make a task's place; returns its working directory. :raises LaunchError: if it cannot."""

    def launch(self, task_id: str) -> None:
        """Start a prepared task; ``wait`` tells what becomes of it."""

    def stop(self, task_id: str, grace_s: float, signal: str) -> None:
        """Ask a task to end, SIGKILL to its tree after the grace; without grace at once."""

    def limit(self, task_id: str, time_limit_s: int | None) -> None:
        """Change the time limit of a launched task, counted from its start; null: none."""

    def helper(self, task_id: str, kind: str) -> AbstractContextManager[Iterator[DataMessage]]:
        """Messages of a data helper at work as the task's user."""

    def wait(self, timeout_s: float) -> Sequence[Event]:
        """What happened since the last call; waits for something up to the timeout."""

    def wipe(self, task_id: str, result: Result | None = None) -> None:
        """Remove what an ended task could see: its scratch does not wait for the service's word.

        ``result``: its last word, to be kept first.
        """

    def clean(self, task_id: str) -> None:
        """Remove a task's place; it must have ended or never have been launched."""

    def log_directory(self, task_id: str) -> str | None:
        """Where the task's streams are kept, null if it has none."""

    def close(self) -> None:
        """Let go of everything; tasks go on."""
