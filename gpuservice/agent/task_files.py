# SPDX-License-Identifier: Apache-2.0
"""The files of one task in the agent's state directory, and how each is written.

``order.json`` what to do; ``supervisor`` who does it (made once, by whoever comes first);
``started`` when it began; ``stop`` the wish to end; ``limit`` the time limit, if it was changed
since; ``result.json`` how it ended; ``box/`` what the task itself sees: ``script`` and ``work/``.
Only ``box/work`` and the script are the task's.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass, fields, replace
from typing import Any

from gpuservice.agent import plain_files

ORDER, SUPERVISOR, STARTED, STOP, LIMIT, RESULT = (
    "order.json",
    "supervisor",
    "started",
    "stop",
    "limit",
    "result.json",
)


#: Room for any result; its evidence is at most a few thousand bytes long.
_RESULT_BYTES = 16384


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What a supervisor must know to run a task; ``argv`` null: the script in the box.

    ``uid`` null: the agent's own user. ``groups``: control group bases, controller -> directory.
    ``devices``: the device nodes it may open (kind, major, minor or null for all), null: any.
    """

    task_id: str
    directory: str
    argv: list[str] | None
    env: dict[str, str]
    workdir: str
    uid: int | None
    namespaces: list[str]
    cover: str
    groups: dict[str, str]
    devices: list[tuple[str, int, int | None]] | None
    memory_mib: int | None
    vcpus: float | None
    time_limit_s: float | None
    grace_s: float
    signal: str
    log_max_bytes: int
    log_segment_bytes: int
    lease_file: str
    orphan_after_s: float
    max_processes: int | None = None

    @property
    def box(self) -> str:
        """The part of the task's directory that the task can see."""
        return f"{self.directory}/box"

    @property
    def work(self) -> str:
        """The task's working directory, its own."""
        return f"{self.directory}/box/work"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a task ended; times are seconds of the node's wall clock.

    ``cause``: why the supervisor ended it (``stop``, ``limit``, ``lease``, ``orphan``,
    ``setup``), null if it ended by itself. ``failure_class``/``evidence``: a class of the
    contract and what speaks for it, where the supervisor can know. ``handed_over``: what it left
    was handed over or given up (then with a failure), so that it may be wiped.
    """

    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    oom: bool = False
    timed_out: bool = False
    cause: str | None = None
    failure_class: str | None = None
    evidence: str | None = None
    handed_over: bool = False


def plain(item: Launch | Result) -> dict[str, Any]:
    """The fields by name; their values are plain already, and copying them takes its time."""
    return {one.name: getattr(item, one.name) for one in fields(item)}


def write_json(path: str, content: Any, *, durable: bool = False) -> None:
    """Replace a file as a whole; ``durable``: on disk when this returns."""
    scratch = f"{path}.{os.getpid()}.new"
    handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        plain_files.write_all(handle, json.dumps(content).encode())
        if durable:
            os.fdatasync(handle)
    finally:
        os.close(handle)
    os.replace(scratch, path)


def read_json(path: str) -> Any:
    """The content of a file, null if it is not there or was not written to its end."""
    try:
        return json.loads(plain_files.read(path))
    except (FileNotFoundError, ValueError):
        return None


def claim(directory: str, content: dict[str, Any]) -> bool:
    """Become the one that decides about this task; false if another was first.

    The supervisor claims before it forks the task, a restarted agent before it says that there
    is no supervisor: so the two can never both be right. On a full disk the claim is empty, which
    means that nobody has the task, and this is false as well.
    """
    scratch = f"{directory}/{SUPERVISOR}.{os.getpid()}.new"
    try:
        handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            plain_files.write_all(handle, json.dumps(content).encode())
        finally:
            os.close(handle)
    except OSError:
        with contextlib.suppress(OSError):
            os.close(os.open(f"{directory}/{SUPERVISOR}", os.O_CREAT | os.O_EXCL | os.O_CLOEXEC))
            os.unlink(scratch)
        return False
    try:
        os.link(scratch, f"{directory}/{SUPERVISOR}")
    except FileExistsError:
        return False
    finally:
        os.unlink(scratch)
    return True


def reserve_result(directory: str) -> None:
    """Take the room of the result beforehand: a task may fill the disk.

    :raises OSError: when there is none.
    """
    handle = os.open(_reserved(directory), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(handle, 0, _RESULT_BYTES)
    finally:
        os.close(handle)


def save_result(directory: str, result: Result) -> None:
    """Write the result so that it is there as a whole or not at all, also after a power cut; in
    the room that was reserved, if it was."""
    content = json.dumps(plain(result)).encode()
    handle = os.open(_reserved(directory), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        plain_files.write_all(handle, content)
        os.ftruncate(handle, len(content))
        os.fdatasync(handle)
    finally:
        os.close(handle)
    os.replace(_reserved(directory), f"{directory}/{RESULT}")


def _reserved(directory: str) -> str:
    return f"{directory}/{RESULT}.{os.getpid()}.new"


def settle(directory: str, result: Result) -> None:
    """Write the last word on a task whose data was handed over, for an agent that comes later."""
    if os.path.isdir(directory):
        write_json(f"{directory}/{RESULT}", plain(replace(result, handed_over=True)))


def load_result(directory: str) -> Result | None:
    """The result of a task, null if its supervisor did not get to write one."""
    content = read_json(f"{directory}/{RESULT}")
    return None if content is None else Result(**content)
