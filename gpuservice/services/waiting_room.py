# SPDX-License-Identifier: Apache-2.0
"""Requests that wait for news: woken by hints, few at a time, the rest answered at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from gpuservice.domain.ports import Hint, Hints

R = TypeVar("R")

#: A waiting request looks again at least this often (seconds): hints may be lost.
LOOK_S = 1.0


class WaitingRoom:
    """Lets at most ``places`` requests of one process wait at the same time."""

    def __init__(
        self, hints: Hints, places: int, kinds: tuple[str, ...] = ("nodes", "logs")
    ) -> None:
        self._places = threading.BoundedSemaphore(max(places, 1)) if places else None
        self._lock = threading.Lock()
        self._waiting: dict[str, list[threading.Event]] = {}
        self._closed = False
        hints.subscribe(kinds, self._on_hint)

    def wait_for(self, key: str, seconds: float, look: Callable[[], R | None]) -> R | None:
        """Look now, then after each hint for ``key``, until there is news or time is up."""
        if seconds <= 0 or self._places is None or self._closed:
            return look()
        if not self._places.acquire(blocking=False):
            return look()
        event = threading.Event()
        try:
            # Known to the hints before the first look: what changes after it wakes us.
            with self._lock:
                self._waiting.setdefault(key, []).append(event)
            return self._watch(event, time.monotonic() + seconds, look)
        finally:
            with self._lock:
                waiting = self._waiting[key]
                waiting.remove(event)
                if not waiting:
                    del self._waiting[key]
            self._places.release()

    def close(self) -> None:
        """Let everybody go now, and nobody wait again: the program ends."""
        self._closed = True
        self._on_hint(Hint(""))

    def _watch(
        self, event: threading.Event, until: float, look: Callable[[], R | None]
    ) -> R | None:
        while True:
            news = look()
            left = until - time.monotonic()
            if news is not None or left <= 0 or self._closed:
                return news
            event.wait(min(left, LOOK_S))
            event.clear()

    def _on_hint(self, hint: Hint) -> None:
        with self._lock:
            keys = hint.ids or tuple(self._waiting)
            events = [event for key in keys for event in self._waiting.get(key, ())]
        for event in events:
            event.set()
