# SPDX-License-Identifier: Apache-2.0
"""Who plans: one leader of a shard, elected through a tooz lock, proven by an epoch.

The lock only keeps idle schedulers idle. What protects the data is the epoch that each new leader
raises in the database: a commit under an older epoch changes nothing (:class:`StaleEpoch`).
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from tooz import ToozError, coordination

from gpuservice.domain.ports_store import Store

LOG = logging.getLogger(__name__)

#: After losing an epoch a scheduler waits this long (seconds, with jitter) before it leads again,
#: so that two that both believe they lead do not take turns at every pass.
STEP_DOWN_S = (1.0, 3.0)
#: What would end the user's part of a URL.
_MISREAD = frozenset("/?#[]\t\r\n")


class Leadership:
    """The leadership of one shard.

    :param url: tooz coordination URL; empty means that this process is the only scheduler (or
        that the epoch alone shall decide).
    :param member: this process's name.
    """

    def __init__(
        self,
        store: Store,
        shard: str,
        member: str,
        url: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._shard = shard
        self._member = member
        self._url = url
        self._monotonic = monotonic
        self._epoch: int | None = None
        self._not_before = 0.0
        self._coordinator: Any = None
        self._lock: Any = None

    @property
    def epoch(self) -> int | None:
        """The epoch under which this process leads, or None."""
        return self._epoch

    def lead(self) -> int | None:
        """Try to lead; the epoch, or None while another does (or the coordinator is away)."""
        if self._epoch is not None:
            return self._epoch if self._keep_lock() else None
        if self._monotonic() < self._not_before or not self._take_lock():
            return None
        self._epoch = self._store.write(lambda uow: uow.raise_epoch(self._shard, self._member))
        LOG.info("Leading shard %s with epoch %d", self._shard, self._epoch)
        return self._epoch

    def step_down(self) -> None:
        """Another leader has raised the epoch: stop, and let it work."""
        LOG.warning("Shard %s was taken by another scheduler; stepping down", self._shard)
        self._epoch = None
        self._not_before = self._monotonic() + random.uniform(*STEP_DOWN_S)
        self._drop_lock()

    def stop(self) -> None:
        """Give the lock back so that another scheduler leads at once."""
        self._epoch = None
        self._drop_lock()
        if self._coordinator is not None:
            try:
                self._coordinator.stop()
            except Exception as error:  # drivers do not translate all that a close may raise
                LOG.info("The coordinator was away at the end: %s", error)
            self._coordinator = None

    def _take_lock(self) -> bool:
        if not self._url:
            return True
        try:
            if self._coordinator is None:
                coordinator = coordination.get_coordinator(self._url, self._member.encode())
                coordinator.start()
                self._coordinator = coordinator
            lock = self._coordinator.get_lock(f"gpuservice-{self._shard}".encode())
            if not lock.acquire(blocking=False):
                return False
        except ToozError as error:
            LOG.warning("The coordinator is away: %s", error)
            self._coordinator = None
            return False
        self._lock = lock
        return True

    def _keep_lock(self) -> bool:
        if self._lock is None:
            return True
        try:
            self._coordinator.heartbeat()
            held = bool(self._lock.acquired)
        except ToozError:
            held = False
        if not held:
            LOG.warning("The leadership lock of shard %s is gone", self._shard)
            self._epoch = None
            self._drop_lock()
        return held

    def _drop_lock(self) -> None:
        if self._lock is None:
            return
        try:
            self._lock.release()
        except ToozError as error:
            LOG.info("The coordinator was away while giving leadership back: %s", error)
            self._coordinator = None
        self._lock = None


def coordination_url(configured: str | None, database: str) -> str | None:
    """The tooz URL: as configured, else the database itself (none for SQLite: one process).

    tooz speaks of ``postgresql://`` and ``mysql://``, SQLAlchemy adds its driver after a ``+``. It
    takes user and password as they stand: where they cannot stand in a URL, the epoch alone
    decides.
    """
    if configured is not None:
        return configured or None
    scheme, _, rest = database.partition("://")
    dialect = scheme.partition("+")[0]
    if dialect not in ("postgresql", "mysql"):
        return None
    who, at, where = rest.rpartition("@")
    plain = ":".join(unquote(part) for part in who.split(":", 1))
    if _MISREAD.intersection(plain):
        LOG.warning(
            "[scheduler] coordination_url is not set, and the user or password of the database "
            "cannot be used for it: schedulers are told apart by the database alone"
        )
        return None
    return f"{dialect}://{plain}{at}{where}"
