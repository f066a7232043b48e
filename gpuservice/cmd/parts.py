# SPDX-License-Identifier: Apache-2.0
"""The parts of a program that has several: each runs in a thread, and none outlives another."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

LOG = logging.getLogger(__name__)

Part = Callable[[threading.Event], None]


class Parts:
    """Threads that run until ``stop`` is set. One that ends before, whatever ends it, stops all:
    a program of which a part is dead is to be started again, not to look alive.

    :param parts: what each thread runs, by its name.
    """

    def __init__(self, program: str, stop: threading.Event, parts: Mapping[str, Part]) -> None:
        self._program, self._stop = program, stop
        self._dead: list[str] = []
        self._threads = [
            threading.Thread(target=self._run, args=(name, part), name=name)
            for name, part in parts.items()
        ]

    def start(self) -> None:
        """Start all of them."""
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait until all have ended.

        :raises SystemExit: when one ended too early.
        """
        for thread in self._threads:
            thread.join()
        if self._dead:
            raise SystemExit(f"{self._program}: {'; '.join(self._dead)}")

    def _run(self, name: str, part: Part) -> None:
        said = "it returned"
        try:
            part(self._stop)
        except SystemExit as end:  # which Python leaves unsaid in a thread
            said = str(end)
        except BaseException as error:
            LOG.exception("%s failed", name)
            said = f"{type(error).__name__}: {error}"
        else:
            if self._stop.is_set():
                return
        said = f"the part {name!r} ended by itself: {' '.join(said.split())}"
        LOG.error("%s", said)
        self._dead.append(said)
        self._stop.set()
