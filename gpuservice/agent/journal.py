# SPDX-License-Identifier: Apache-2.0
"""The list of task ids that were ever about to be started here, on disk before anything forks.

An id in it is never started again, whatever happened to its task: the service makes a new task
for a new attempt. Lines are never removed while the node lives; 100 bytes a task.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection


class Journal:
    """Append-only file of task ids; used by one thread at a time."""

    def __init__(self, path: str) -> None:
        self._known: set[str] = set()
        with contextlib.suppress(FileNotFoundError), open(path, encoding="ascii") as file:
            self._known.update(line.strip() for line in file if line.endswith("\n"))
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._mend()

    def _mend(self) -> None:
        """End a line that a crash cut off, so that the next id is a line of its own."""
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")

    def __contains__(self, task_id: object) -> bool:
        return task_id in self._known

    def record(self, task_ids: Collection[str]) -> None:
        """Write ids down; when this returns they are on disk.

        :raises OSError: when they could not be written; nothing may be started then.
        """
        if not task_ids:
            return
        os.write(self._file, "".join(f"{one}\n" for one in task_ids).encode("ascii"))
        os.fdatasync(self._file)
        self._known.update(task_ids)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
