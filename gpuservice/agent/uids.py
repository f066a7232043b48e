# SPDX-License-Identifier: Apache-2.0
"""User ids for tasks: no two live tasks of a machine share one, whichever agent started them.

A claim is a file named by the number, made exclusively in a directory all agents of the machine
share; its content is the task's directory, so that a claim whose task is gone can be told.
"""

from __future__ import annotations

import contextlib
import os
import random


class UidsExhausted(RuntimeError):
    """Every user id of the range is held by a live task."""


class UidPool:
    """Claims and gives back ids of a range."""

    def __init__(self, directory: str, base: int, count: int) -> None:
        self._directory, self._base, self._count = directory, base, count
        os.makedirs(directory, mode=0o700, exist_ok=True)

    def claim(self, task_directory: str) -> int:
        """An id that no other live task has.

        :raises UidsExhausted: when there is none.
        """
        first = random.randrange(self._count)
        for step in range(self._count):
            uid = self._base + (first + step) % self._count
            if self._make(uid, task_directory):
                return uid
        raise UidsExhausted(f"no user id left in {self._base}+{self._count}")

    def release(self, uid: int, task_directory: str) -> None:
        """Give an id back; no process of it may be left.

        A claim that another agent took over, since the task was gone, stays.
        """
        path = f"{self._directory}/{uid}"
        with contextlib.suppress(FileNotFoundError):
            with open(path, "rb") as file:
                holder = file.read()
            if holder == os.fsencode(task_directory):
                os.unlink(path)

    def _make(self, uid: int, task_directory: str) -> bool:
        path = f"{self._directory}/{uid}"
        for _ in range(2):
            try:
                handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            except FileExistsError:
                if not self._stale(path):
                    return False
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
                continue
            try:
                os.write(handle, os.fsencode(task_directory))
            finally:
                os.close(handle)
            return True
        return False

    def _stale(self, path: str) -> bool:
        try:
            with open(path, "rb") as file:
                holder = file.read()
        except FileNotFoundError:
            return True
        return bool(holder) and not os.path.isdir(holder)
