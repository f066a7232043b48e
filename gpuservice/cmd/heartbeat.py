# SPDX-License-Identifier: Apache-2.0
"""Each program shows that it is alive: a row of ``/v1/services``, renewed while it runs."""

from __future__ import annotations

import atexit
import logging
import os
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from gpuservice import bootstrap, version
from gpuservice.domain.errors import Busy
from gpuservice.domain.liveness import BEAT_S
from gpuservice.domain.ports_store import UnitOfWork
from gpuservice.domain.work import ServiceRecord

LOG = logging.getLogger(__name__)


@contextmanager
def beating(core: bootstrap.Core, binary: str) -> Iterator[None]:
    """Keep the row of this process up to date while the block runs; its end is written down.

    One row a process: that somebody lived to hear the nodes must be known after its end as well.
    """
    host = socket.gethostname()
    ident = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{host}/{binary}/{core.name}"))
    stop = threading.Event()

    def beat(uow: UnitOfWork) -> None:
        if not uow.services.change(ident, {"seen_at": uow.now()}):
            uow.services.add(
                ServiceRecord(
                    id=ident,
                    binary=binary,
                    host=host,
                    seen_at=uow.now(),
                    started_at=uow.now(),
                    version=version.release(),
                )
            )

    def run() -> None:
        while True:
            try:
                core.store.write(beat)
            except Busy as busy:
                LOG.warning("The heartbeat waits: %s", busy.detail)
            except Exception:
                LOG.exception("A heartbeat failed; the next one follows")
            if stop.wait(BEAT_S):
                return

    thread = threading.Thread(target=run, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(5)
        try:
            core.store.write(
                lambda uow: uow.services.change(
                    ident, {"seen_at": uow.now(), "ended_at": uow.now()}
                )
            )
        except Busy as busy:
            LOG.info("The end of the process is not written down: %s", busy.detail)
        except Exception:  # it ended all the same: its row says so when the beats stay away
            LOG.exception("The end of the process is not written down")


class BeatingApplication:
    """A WSGI application whose process shows that it is alive, and hears others.

    WSGI servers load an application before they fork and tell it nothing of its life, so each
    process begins with its first request: one that gets none hears no node either.

    :param core: not started: threads do not outlive a fork.
    """

    def __init__(self, core: bootstrap.Core, binary: str, application: Any) -> None:
        self._core, self._binary, self._application = core, binary, application
        self._lock = threading.Lock()
        self._loaded_in = os.getpid()
        self._beats_in: int | None = None

    def __call__(self, environ: Any, start_response: Any) -> Any:
        """Serve a request."""
        if self._beats_in != os.getpid():
            self._begin()
        return self._application(environ, start_response)

    def _begin(self) -> None:
        with self._lock:
            if self._beats_in == os.getpid():
                return
            self._core.start(forked=os.getpid() != self._loaded_in)
            self._beats_in = os.getpid()
            core = replace(self._core, name=f"{self._core.name}-{self._beats_in}")
            life = ExitStack()
            life.enter_context(beating(core, self._binary))
            atexit.register(life.close)
