# SPDX-License-Identifier: Apache-2.0
"""Finding and ending every process of a task, whatever it did to get away."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator

from gpuservice.agent import isolation, open_files, plain_files

#: In the environment of every process of a task, so that strays can be told by it: the task's
#: directory, since the id alone may be another's where several agents share a machine.
MARKER = "GPUSERVICE_TASK_PLACE"


def start_time(pid: int | str) -> int | None:
    """When a process started, in clock ticks since boot; null if there is none of that pid.

    Together with pid and boot id it names a process for ever (proc(5), field 22 of stat).

    :raises OSError: when it cannot be told because no further file can be opened.
    """
    try:
        text = plain_files.read(f"/proc/{pid}/stat")
    except OSError as error:
        if open_files.all_in_use(error):
            raise
        return None
    fields = text[text.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def handle_of(pid: int, start: int | None) -> int | None:
    """A file that stands for a process (pidfd) that started then; null if it is there no more.

    :raises OSError: as :func:`start_time`.
    """
    try:
        handle = os.pidfd_open(pid)
    except OSError as error:
        if open_files.all_in_use(error):
            raise
        return None
    is_it = False
    try:
        is_it = start_time(pid) == start
    finally:
        if not is_it:
            os.close(handle)
    return handle if is_it else None


def descendants(root: int) -> list[int]:
    """Every live process below ``root``, from one look at /proc."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            text = plain_files.read(f"/proc/{name}/stat")
        except OSError:
            continue
        fields = text[text.rindex(b")") + 2 :].split()
        if fields[0] not in (b"Z", b"X"):
            children.setdefault(int(fields[1]), []).append(int(name))
    found, ahead = [], [root]
    while ahead:
        below = children.get(ahead.pop(), [])
        found.extend(below)
        ahead.extend(below)
    return found


def of_task(place: str) -> list[int]:
    """Every live process that carries the mark of the task of this directory.

    :raises OSError: when that cannot be told because no further file can be opened.
    """
    mark = os.fsencode(f"{MARKER}={place}")
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with _gone_meanwhile():
                if mark in plain_files.read(f"/proc/{name}/environ").split(b"\0"):
                    found.append(int(name))
    return found


def of_uid(uid: int) -> list[int]:
    """Every live process of a user id.

    :raises OSError: as :func:`of_task`.
    """
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with _gone_meanwhile():
                if os.stat(f"/proc/{name}").st_uid == uid and start_time(name) is not None:
                    found.append(int(name))
    return found


@contextlib.contextmanager
def _gone_meanwhile() -> Iterator[None]:
    """A process that ended, or is another user's, is none of those looked for."""
    try:
        yield
    except OSError as error:
        if open_files.all_in_use(error):
            raise


def kill_each(pids: list[int]) -> None:
    """Stop all of them first, so that none forks while the others are ended; then SIGKILL."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def kill_everything_of(uid: int) -> None:
    """SIGKILL to every process of a user id at one stroke: as that user, to all it may signal.

    Forks; for single-threaded processes only.
    """
    child = os.fork()
    if child == 0:
        with contextlib.suppress(OSError):
            isolation.become(uid)
            os.kill(-1, signal.SIGKILL)
        os._exit(0)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)


def sweep(place: str, uid: int | None, within_s: float) -> list[int]:
    """End what a dead supervisor left behind; returns the pids that are still there at the end.

    Used where no pid namespace did it already.
    """
    until = time.monotonic() + within_s
    while True:
        left = sorted({*of_task(place), *(of_uid(uid) if uid is not None else ())})
        if not left or time.monotonic() > until:
            return left
        kill_each(left)
        time.sleep(0.02)
