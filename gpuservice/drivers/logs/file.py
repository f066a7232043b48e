# SPDX-License-Identifier: Apache-2.0
"""Logs as files: one a stream, appended by offset, safe with several writing processes."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oslo_config import cfg

from gpuservice.domain.errors import LogGap
from gpuservice.domain.ports import LogPiece
from gpuservice.drivers.room import writing

#: A closed stream has this beside it.
_END = ".end"


class FileLogStore:
    """Implements ``domain.ports.LogStore`` below ``[logs] directory``."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._root = Path(conf.logs.directory)

    def append(self, key: str, offset: int, data: bytes, max_bytes: int) -> tuple[int, bool]:
        """Write what is new of ``data``.

        :returns: (the next offset wanted, whether the cap is reached).
        :raises LogGap: when ``offset`` is beyond what is stored; ``meta`` has the offset wanted.
        :raises StoreFull: when the disk is.
        """
        with writing(self._root), self._locked(key) as handle:
            size = os.fstat(handle).st_size
            if size >= max_bytes:
                return size, True
            if offset > size:
                raise LogGap(
                    f"The log ends at byte {size}, the piece starts at {offset}.",
                    meta={"offset": size},
                )
            fresh = data[size - offset :][: max_bytes - size]
            written = 0
            while written < len(fresh):
                written += os.pwrite(handle, fresh[written:], size + written)
            size += written
            return size, size >= max_bytes

    def read(self, key: str, offset: int, limit: int) -> LogPiece:
        """At most ``limit`` bytes from ``offset`` (negative: from the end)."""
        path = self._path(key)
        # Closed is looked at first: what was written before it is then read too.
        closed = path.with_name(path.name + _END).exists()
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            start = max(offset, 0)
            return LogPiece(b"", start, start, closed)
        try:
            size = os.fstat(handle).st_size
            start = max(size + offset, 0) if offset < 0 else offset
            data = os.pread(handle, max(0, min(limit, size - start)), start)
        finally:
            os.close(handle)
        after = start + len(data)
        return LogPiece(data, start, after, closed and after >= size)

    def close(self, key: str) -> None:
        """Nothing more will come; raises ``StoreFull``."""
        path = self._path(key)
        with writing(self._root):
            os.close(_made(path.with_name(path.name + _END)))

    def delete(self, prefix: str) -> None:
        """Remove every stream below a prefix."""
        shutil.rmtree(self._path(prefix), ignore_errors=True)

    @contextmanager
    def _locked(self, key: str) -> Iterator[int]:
        handle = _made(self._path(key))
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield handle
        finally:
            os.close(handle)

    def _path(self, key: str) -> Path:
        return below(self._root, key)


def _made(path: Path) -> int:
    """A handle of the file, made with its folders where it is not there."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o640)
    except FileNotFoundError:  # the first of the task: its folders are not there yet
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, flags, 0o640)


def below(root: Path, key: str) -> Path:
    """The path of a slash-separated key; a key that would leave the root is a defect."""
    parts = key.strip("/").split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise ValueError(f"not a key: {key!r}")
    return root.joinpath(*parts)
