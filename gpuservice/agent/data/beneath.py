# SPDX-License-Identifier: Apache-2.0
"""Opening names below a directory so that no link and no ``..`` leads out of it.

Each part is opened by itself with O_NOFOLLOW, relative to its parent's handle; so what is opened
lies in the directory however the names are changed meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Deepest nesting of folders that is looked into, and longest path in bytes (PATH_MAX).
MAX_DEPTH = 64
MAX_PATH = 4096


class UnsafePath(ValueError):
    """A path that is not plainly below its directory."""


def parts(path: str) -> list[str]:
    """The parts of a relative path; ``.`` and doubled slashes are dropped.

    :raises UnsafePath: for an absolute path, ``..``, a NUL, or one too long or too deep.
    """
    found = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in found or "\0" in path:
        raise UnsafePath(f"path {path!r} does not stay below its directory")
    if len(found) > MAX_DEPTH or len(os.fsencode(path)) >= MAX_PATH:
        raise UnsafePath("path is too long")
    return found


def open_directory(root: int, names: Sequence[str]) -> int:
    """Open a directory below the open directory ``root``; the caller closes it.

    :raises OSError: when a part is missing, is a link or no directory.
    """
    here = os.dup(root)
    for name in names:
        try:
            below = os.open(name, _DIRECTORY, dir_fd=here)
        finally:
            os.close(here)
        here = below
    return here


def make_directory(root: int, names: Sequence[str], mode: int = 0o755) -> int:
    """As ``open_directory``, making what is missing."""
    here = os.dup(root)
    for name in names:
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, mode, dir_fd=here)
            below = os.open(name, _DIRECTORY, dir_fd=here)
        finally:
            os.close(here)
        here = below
    return here


def open_regular(root: int, names: Sequence[str]) -> int:
    """Open a regular file for reading; the caller closes it.

    Opened without waiting, so that a pipe put in its place cannot block.

    :raises OSError: when a part is missing or a link. :raises UnsafePath: not a regular file.
    """
    parent = open_directory(root, names[:-1])
    try:
        handle = os.open(
            names[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent
        )
    finally:
        os.close(parent)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UnsafePath(f"{'/'.join(names)!r} is not a regular file")
    return handle


def size(root: int, names: Sequence[str]) -> int:
    """Bytes of a file; raises ``OSError`` when a part is missing or a link."""
    parent = open_directory(root, names[:-1])
    try:
        return os.stat(names[-1], dir_fd=parent, follow_symlinks=False).st_size
    finally:
        os.close(parent)


def create(root: int, names: Sequence[str], mode: int = 0o644) -> int:
    """Make or empty a regular file for writing, with its folders; the caller closes it.

    :raises OSError: when that is refused, or a part is a link. :raises UnsafePath: no name.
    """
    if not names:
        raise UnsafePath("path names no file")
    parent = make_directory(root, names[:-1])
    try:
        handle = os.open(
            names[-1],
            os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
            mode,
            dir_fd=parent,
        )
    finally:
        os.close(parent)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UnsafePath(f"{'/'.join(names)!r} is not a regular file")
    return handle


def walk(root: int, names: Sequence[str]) -> Iterator[tuple[list[str], str]]:
    """Everything at or below a name: (parts, kind), kind one of ``file``, ``deep``, ``other``.

    Directories are entered, not named. ``other``: a link, pipe, device or socket. ``deep``: a
    directory that is nested too deep to be looked into.

    :raises OSError: when the name itself is missing or cannot be read.
    """
    if names:
        parent = open_directory(root, names[:-1])
        try:
            mode = os.stat(names[-1], dir_fd=parent, follow_symlinks=False).st_mode
        finally:
            os.close(parent)
        if not stat.S_ISDIR(mode):
            yield list(names), "file" if stat.S_ISREG(mode) else "other"
            return
    if len(names) > MAX_DEPTH:
        yield list(names), "deep"
        return
    here = open_directory(root, names)
    try:
        entries = sorted(os.listdir(here))
    finally:
        os.close(here)
    for name in entries:
        try:
            yield from walk(root, [*names, name])
        except FileNotFoundError:
            continue
        except OSError:
            yield [*names, name], "other"
