# SPDX-License-Identifier: Apache-2.0
"""The sign of life of the service's own processes, shown to operators as ``/v1/services``."""

from __future__ import annotations

from gpuservice.domain.ports import Ids
from gpuservice.domain.ports_store import Store, UnitOfWork, Where
from gpuservice.domain.work import ServiceRecord


class Heartbeat:
    """Keeps the record of one program on one machine alive.

    :param binary: the program's name. :param host: the machine's. A restarted program goes on
        with its record, so that what an operator said of it stays.
    """

    def __init__(self, store: Store, ids: Ids, binary: str, host: str, version: str) -> None:
        self._store = store
        self._ids = ids
        self._binary = binary
        self._host = host
        self._version = version
        self._started = False

    def beat(self) -> None:
        """Say that the program is there."""
        self._store.write(self._write)
        self._started = True

    def _write(self, uow: UnitOfWork) -> None:
        now = uow.now()
        known = uow.services.find(
            Where("binary", "eq", self._binary), Where("host", "eq", self._host))
        if not known:
            uow.services.add(ServiceRecord(
                id=self._ids.new(), binary=self._binary, host=self._host, seen_at=now,
                started_at=now, version=self._version))
            return
        values = {"seen_at": now, "version": self._version}
        if not self._started:
            values["started_at"] = now
        uow.services.change(known[0].id, values)
