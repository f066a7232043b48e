# SPDX-License-Identifier: Apache-2.0
"""Each program shows that it is alive: a row of ``/v1/services``, renewed while it runs."""

from __future__ import annotations

import logging
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from gpuservice import bootstrap, version
from gpuservice.domain.errors import Busy
from gpuservice.domain.ports_store import UnitOfWork
from gpuservice.domain.work import ServiceRecord

LOG = logging.getLogger(__name__)

#: Seconds between two renewals; a process is down after six without.
BEAT_S = 10.0


@contextmanager
def beating(core: bootstrap.Core, binary: str) -> Iterator[None]:
    """Keep the row of this process up to date while the block runs; its end removes it.

    One row a host and binary and process id: a restarted process takes over its own.
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
            core.store.write(lambda uow: uow.services.remove(ident))
        except Busy as busy:
            LOG.info("The service's row stays behind: %s", busy.detail)
