# SPDX-License-Identifier: Apache-2.0
"""Cloud calls side by side: a bounded number of threads, each thing in one of them at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")


class Hands:
    """Works on things by their id. One that is still at work is not begun anew.

    Nothing is remembered that a crash could lose: what was begun is found again by its row.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._threads = threads
        self._name = name
        self._executor: ThreadPoolExecutor | None = None
        self._at_work: dict[str, Future[bool]] = {}
        self._lock = threading.Lock()

    def work(
        self, things: Iterable[tuple[str, T]], do: Callable[[T], bool], patience_s: float | None
    ) -> int:
        """Begin what is not at work yet, then wait for all that is.

        :param patience_s: after so long the rest goes on by itself (None: wait for everything).
        :returns: how many of those that were done since the last call did something.
        :raises BaseException: of one of them, when all that were waited for are done.
        """
        with self._lock:
            for ident, thing in things:
                if ident not in self._at_work:
                    self._at_work[ident] = self._begin(do, thing)
            futures = dict(self._at_work)
        wait(futures.values(), patience_s)
        done = {ident: one for ident, one in futures.items() if one.done()}
        with self._lock:
            for ident in done:
                self._at_work.pop(ident, None)
        failures = [error for one in done.values() if (error := one.exception()) is not None]
        if failures:
            raise failures[0]
        return sum(one.result() for one in done.values())

    def _begin(self, do: Callable[[T], bool], thing: T) -> Future[bool]:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._threads, self._name)
        return self._executor.submit(do, thing)

    def close(self) -> None:
        """Begin nothing more; what is in the middle of a call ends it."""
        with self._lock:
            executor, self._executor = self._executor, None
            self._at_work.clear()
        if executor is not None:
            executor.shutdown(wait=True, cancel_futures=True)
