# SPDX-License-Identifier: Apache-2.0
"""The agent's end of the spawner: starts it, sends requests, notices its death."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from gpuservice.agent import open_files
from gpuservice.agent.runner import DataMessage

LOG = logging.getLogger(__name__)
#: The directory that holds the package, for an interpreter that sees nothing else of ours.
_HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_PROGRAM = (
    f"import sys; sys.path.append({_HOME!r}); from gpuservice.agent.spawner import main; main()"
)
_MESSAGE_BYTES = 262144
#: Longest time without a message of a data helper, seconds.
_SILENCE_S = 0.5


def ready(handle: int, what: int, seconds: float) -> bool:
    """Whether the file is ready for ``what`` (of poll) within so many seconds. Not by select(),
    which ends at 1,024 files: an all-in-one may have more."""
    poll = select.poll()
    poll.register(handle, what)
    return bool(poll.poll(1000 * seconds))


class Spawner:
    """A running spawner. Its death closes nothing by itself: ask ``alive``."""

    def __init__(self, error_log: str) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, open(error_log, "ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-S", "-E", "-s", "-c", _PROGRAM, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                close_fds=True,
                pass_fds=(theirs.fileno(),),
                env={"LANG": "C.UTF-8"},
                start_new_session=True,
            )
        open_files.give_first_limit(self._process.pid)
        self.events = ours
        self.events.setblocking(False)

    @property
    def alive(self) -> bool:
        """Whether the process is there."""
        return self._process.poll() is None

    def request(self, content: dict[str, Any], *handles: int) -> None:
        """Send one request.

        :raises OSError: when the spawner is gone or does not take it within seconds.
        """
        data = json.dumps(content).encode()
        for _ in range(50):
            try:
                socket.send_fds(self.events, [data], list(handles), socket.MSG_NOSIGNAL)
            except BlockingIOError:
                ready(self.events.fileno(), select.POLLOUT, 0.2)
            else:
                return
        raise TimeoutError("the spawner takes no requests")

    def heard(self) -> list[dict[str, Any]]:
        """Every event that is there now."""
        found = []
        with contextlib.suppress(OSError):  # nothing (more) there, or it is dead
            while data := self.events.recv(_MESSAGE_BYTES):
                event = event_of(data)
                if event is not None:
                    found.append(event)
        return found

    @contextlib.contextmanager
    def helper(self, directory: str, kind: str) -> Iterator[Iterator[DataMessage]]:
        """Start a data helper and read its messages; it ends when the block is left."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with theirs:
                self.request({"op": "help", "directory": directory, "kind": kind}, theirs.fileno())
            yield _messages(ours)

    def close(self) -> None:
        """End the spawner; what it forked goes on."""
        self.events.close()
        self._process.wait()


def event_of(data: bytes) -> dict[str, Any] | None:
    """An event as it was sent, null for anything else: an agent must outlive any message."""
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        event = None
    if (
        isinstance(event, dict)
        and isinstance(event.get("event"), str)
        and isinstance(event.get("task_id"), str)
        and "/" not in event["task_id"]
    ):
        return event
    LOG.warning("nonsense came from the spawner: %r", data[:200])
    return None


def _messages(line: socket.socket) -> Iterator[DataMessage]:
    """Messages until ``done`` or ``failure``; an early end of the helper is a failure, too.

    While the helper is silent there is an empty message now and then, for the reader to see
    whether it still wants any.
    """
    while True:
        if not ready(line.fileno(), select.POLLIN, _SILENCE_S):
            yield DataMessage({}, None)
            continue
        data, handles, _, _ = socket.recv_fds(line, _MESSAGE_BYTES, 1)
        if not data:
            evidence = "the data helper ended early"
            yield DataMessage({"failure": {"class": "platform", "evidence": evidence}}, None)
            return
        content = json.loads(data)
        file = open(handles[0], "rb", buffering=0) if handles else None  # noqa: SIM115
        yield DataMessage(content, file)
        if file is not None:
            file.close()
        if "done" in content or "failure" in content:
            return
