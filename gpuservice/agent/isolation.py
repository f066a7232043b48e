# SPDX-License-Identifier: Apache-2.0
"""The kernel's means to keep tasks apart: namespaces, mounts, death signals, user ids.

Python 3.11 has no ``os.unshare``, so the C library is called directly. Used only in the spawner
and what it forks, which are single-threaded. Constants are those of linux/sched.h, linux/mount.h
and linux/prctl.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from collections.abc import Iterable

CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38

_SIG_DFL = 0

#: Names of the wire format and the flags behind them.
FLAGS = {"mount": CLONE_NEWNS, "ipc": CLONE_NEWIPC, "pid": CLONE_NEWPID}

#: What all users may write to, so that each task gets its own: no task finds another's files.
_SCRATCH = ("/tmp", "/var/tmp", "/run/lock", "/dev/shm")
#: How early the kernel ends a process when the machine's memory is used up (proc(5)): tasks before
#: the agent and their supervisors.
_OOM_SCORE = 500

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Leave the namespaces named by flags.

    :raises OSError: when the kernel or the rights of this process do not allow it.
    """
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def enter(namespace_fd: int, kind: int) -> None:
    """Enter the namespace behind an open file of /proc/PID/ns."""
    _check(_libc.setns(ctypes.c_int(namespace_fd), ctypes.c_int(kind)), "setns")


def mount(
    source: str | None, target: str, kind: str | None, flags: int, data: str | None = None
) -> None:
    """Mount, as mount(2).

    :raises OSError: when it is refused.
    """
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    _check(
        _libc.mount(
            encoded[0],
            encoded[1],
            encoded[2],
            ctypes.c_ulong(flags),
            None if data is None else data.encode(),
        ),
        f"mount {target}",
    )


def die_with_parent() -> None:
    """Ask for SIGKILL when the parent ends; the kernel forgets it at a change of user id."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")


def gain_no_rights() -> None:
    """No program run from here on gets more rights than this process (set-uid bits are void)."""
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")


def become(uid: int) -> None:
    """Take a user id and the group id of the same number, and no other group, for good."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def usual_signals(numbers: Iterable[int]) -> None:
    """Give signals their usual meaning for the program that this process becomes.

    Not by the module ``signal``, whose own table no longer matters then.
    """
    for number in numbers:
        _libc.signal(ctypes.c_int(number), ctypes.c_void_p(_SIG_DFL))


def be_bounded(processes: int | None) -> None:
    """No more processes and threads of this user than so many; the first to go without memory.

    The bound is void for root, whom a control group must bound.
    """
    with contextlib.suppress(OSError):
        handle = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(handle, str(_OOM_SCORE).encode())
        finally:
            os.close(handle)
    if processes is not None:
        _, most = resource.getrlimit(resource.RLIMIT_NPROC)
        if most != resource.RLIM_INFINITY:
            processes = min(processes, most)
        resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))


def _scratch() -> list[str]:
    """The scratch directories of this machine, each once (one may be a link to another)."""
    return list(dict.fromkeys(os.path.realpath(one) for one in _SCRATCH if os.path.isdir(one)))


def cover_of(directory: str, hidden: str = "") -> str:
    """The directory that must be covered so that a task can reach its own part of ``directory``.

    A task's user cannot pass an ancestor closed to others, and a private /tmp (or another scratch
    directory) hides what lies in the real one. The topmost such ancestor is covered by an empty
    file system in which only the way to the task's own folder is made again; without one it is
    ``hidden``, or ``directory`` itself, which hides the agent's other files from the task.
    """
    hidden = os.path.realpath(hidden) if hidden else ""
    way = os.path.realpath(directory)
    ancestors = []
    while way != "/":
        ancestors.append(way)
        way = os.path.dirname(way)
    private = {hidden, *_scratch()}
    for ancestor in reversed(ancestors):
        if ancestor in private or not os.stat(ancestor).st_mode & 0o001:
            return ancestor
    return ancestors[0]


def private_mounts(namespaces: Iterable[str], box: str, cover: str) -> None:
    """Leave the machine's mounts: own scratch directories and /proc, only ``box`` of the state.

    :raises OSError: when a step is refused; the caller must not go on to run a task then.
    """
    wanted = set(namespaces)
    box = os.path.realpath(box)
    unshare(CLONE_NEWNS | (CLONE_NEWIPC if "ipc" in wanted else 0))
    mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    held = os.open(box, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    if "pid" in wanted:
        mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    scratch = _scratch()
    for place in scratch:
        mount("tmpfs", place, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=1777")
    if cover not in scratch:
        mount("tmpfs", cover, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=711")
    old = os.umask(0o066)  # all of the way may be passed, none of it read
    os.makedirs(box, mode=0o711, exist_ok=True)
    os.umask(old)
    mount(f"/proc/self/fd/{held}", box, None, _MS_BIND)
    os.close(held)
