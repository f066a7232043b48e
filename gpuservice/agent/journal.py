# SPDX-License-Identifier: Apache-2.0
"""The list of task ids that were about to be started here, on disk before anything forks.

An id in it is never started again, whatever happened to its task: the service makes a new task
for a new attempt. The newest ``KEPT`` ids stay, and those of tasks still in hand: the service has
taken the end of all others and names them no more.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Collection

LOG = logging.getLogger(__name__)
#: How many ids are kept; the file has twice as many before the older half goes.
KEPT = 100_000


class Journal:
    """File of task ids, oldest first; used by one thread at a time."""

    def __init__(self, path: str, kept: int = KEPT) -> None:
        self._path, self._kept = path, kept
        self._known: dict[str, None] = {}
        with contextlib.suppress(FileNotFoundError), open(path, encoding="ascii") as file:
            self._known.update((line.strip(), None) for line in file if line.endswith("\n"))
        self._file = self._open(path)
        self._mend()

    @staticmethod
    def _open(path: str) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _mend(self) -> None:
        """End a line that a crash cut off, so that the next id is a line of its own."""
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")

    def __contains__(self, task_id: object) -> bool:
        return task_id in self._known

    def record(self, task_ids: Collection[str], in_hand: Collection[str] = ()) -> None:
        """Write ids down; when this returns they are on disk.

        :param in_hand: ids that must stay known however old they are.
        :raises OSError: when they could not be written; nothing may be started then.
        """
        if not task_ids:
            return
        size = os.fstat(self._file).st_size
        try:
            _write(self._file, task_ids)
        except OSError:
            with contextlib.suppress(OSError):  # half a line would spoil the next one
                os.ftruncate(self._file, size)
            raise
        self._known.update(dict.fromkeys(task_ids))
        if len(self._known) >= 2 * self._kept + len(in_hand):
            try:
                self._compact(in_hand)
            except OSError as error:  # the whole file still says it all
                LOG.warning("the journal stays long: %s", error)

    def _compact(self, in_hand: Collection[str]) -> None:
        """Replace the file, as a whole or not at all, by one without the older ids."""
        older = list(self._known)[: -self._kept]
        held = set(in_hand)
        known = dict.fromkeys(one for one in older if one in held)
        known.update(dict.fromkeys(list(self._known)[-self._kept :]))
        scratch = f"{self._path}.new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(scratch)
        handle = self._open(scratch)
        try:
            _write(handle, known)
            os.replace(scratch, self._path)
        except OSError:
            os.close(handle)
            raise
        os.close(self._file)
        self._file, self._known = handle, known
        folder = os.open(os.path.dirname(self._path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)  # what is recorded from now on is in the new file alone
        finally:
            os.close(folder)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def _write(handle: int, task_ids: Collection[str]) -> None:
    view = memoryview("".join(f"{one}\n" for one in task_ids).encode("ascii"))
    while view:
        view = view[os.write(handle, view) :]
    os.fdatasync(handle)
