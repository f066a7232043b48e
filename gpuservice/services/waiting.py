# SPDX-License-Identifier: Apache-2.0
"""Requests that wait for news: a bounded number of them, woken by hints, else by looking again.

Hints may be lost, so a waiter never relies on them: whoever waits looks again after each
:data:`LOOK_AGAIN_S` at the latest.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from gpuservice.domain.ports import Hint, Hints

#: Seconds after which a waiter looks again without having been woken.
LOOK_AGAIN_S = 1.0

#: The kinds of hints that somebody waits for.
KINDS = ("nodes", "logs")


@dataclass(slots=True, eq=False)
class Place:
    """One waiting request."""

    kind: str
    ident: str
    _news: threading.Event = field(default_factory=threading.Event)

    def wake(self) -> None:
        """There is (or may be) news."""
        self._news.set()

    def wait(self, seconds: float) -> None:
        """Return at news, or after ``seconds``, or when it is time to look again."""
        self._news.wait(max(0.0, min(seconds, LOOK_AGAIN_S)))
        self._news.clear()


class Waiting:
    """The places of one process.

    :param slots: how many requests may wait at the same time; more are answered at once.
    """

    def __init__(self, hints: Hints, slots: int) -> None:
        self._lock = threading.Lock()
        self._slots = slots
        self._places: set[Place] = set()
        self._marks = dict.fromkeys(KINDS, 0)
        self.unsubscribe = hints.subscribe(KINDS, self._on_hint)

    def mark(self, kind: str) -> int:
        """How many hints of a kind have come: taken before the look that decides to wait, so
        that news between that look and the place is not missed."""
        with self._lock:
            return self._marks[kind]

    @contextmanager
    def place(self, kind: str, ident: str, mark: int) -> Iterator[Place | None]:
        """A place for one request, or None when all are taken."""
        place = Place(kind, ident)
        with self._lock:
            taken = len(self._places) >= self._slots
            if not taken:
                self._places.add(place)
                if self._marks[kind] != mark:
                    place.wake()
        if taken:
            yield None
            return
        try:
            yield place
        finally:
            with self._lock:
                self._places.discard(place)

    def _on_hint(self, hint: Hint) -> None:
        with self._lock:
            self._marks[hint.kind] += 1
            woken = [
                place for place in self._places
                if place.kind == hint.kind and (not hint.ids or place.ident in hint.ids)
            ]
        for place in woken:
            place.wake()
