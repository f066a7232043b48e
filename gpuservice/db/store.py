# SPDX-License-Identifier: Apache-2.0
"""The database as units of work, re-run whole on transient conflicts."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from oslo_db import exception as db_exception
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from gpuservice.db.engine import WRITING, begin_snapshot, is_sqlite
from gpuservice.db.unit_of_work import DatabaseUnitOfWork
from gpuservice.domain.errors import Busy
from gpuservice.domain.ports import Clock, Ids
from gpuservice.domain.ports_store import UnitOfWork

LOG = logging.getLogger(__name__)
R = TypeVar("R")

#: How often a unit of work is run at most, and the longest pause (seconds) before the next run.
TRIES = 5
PAUSE_S = 0.05

#: Conflicts that another run can win: PostgreSQL's SQLSTATEs and MariaDB's error numbers.
_SQLSTATES = frozenset({"40001", "40P01", "55P03"})
_MARIADB = frozenset({1020, 1205, 1213})


def is_transient(error: BaseException) -> bool:
    """Whether running the unit of work again may succeed."""
    if isinstance(error, (db_exception.DBDeadlock, db_exception.DBDuplicateEntry)):
        return True
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, DBAPIError) and cause.orig is not None:
            cause = cause.orig
        if getattr(cause, "pgcode", None) in _SQLSTATES:
            return True
        args = getattr(cause, "args", ())
        if args and args[0] in _MARIADB:
            return True
        if args and isinstance(args[0], str) and "database is locked" in args[0]:
            return True
        cause = getattr(cause, "inner_exception", None) or cause.__cause__
    return False


def is_away(error: BaseException) -> bool:
    """Whether the database cannot be reached, or has no connection left for us."""
    if isinstance(error, OperationalError):
        # A refused connection (no statement yet): oslo.db translates those of statements only.
        return error.statement is None
    return isinstance(error, (db_exception.DBConnectionError, PoolTimeout))


class DatabaseStore:
    """Implements ``domain.ports.Store``.

    :param defaults: quota limits (in stored units) of projects without rows of their own.
    """

    def __init__(
        self, engine: Engine, clock: Clock, ids: Ids, defaults: Mapping[str, int] | None = None
    ) -> None:
        self.engine = engine
        self._writer = engine.execution_options(**{WRITING: True}) if is_sqlite(engine) else engine
        self._clock = clock
        self._ids = ids
        self._defaults = dict(defaults or {})

    def write(self, work: Callable[[UnitOfWork], R]) -> R:
        """Run in one transaction and commit; re-run on transient conflicts.

        :raises Busy: when the conflicts do not end, or the database is away.
        """
        for left in reversed(range(TRIES)):
            try:
                with self._writer.begin() as connection:
                    return work(self._unit(connection))
            except Exception as error:
                self._judge(error, left)
        raise AssertionError("unreachable")

    def read(self, work: Callable[[UnitOfWork], R]) -> R:
        """Run on a view of one moment; nothing is committed.

        :raises Busy: when the database is away.
        """
        try:
            with self.engine.connect() as connection:
                begin_snapshot(connection)
                try:
                    return work(self._unit(connection))
                finally:
                    connection.rollback()
        except Exception as error:
            if is_away(error):
                raise _away() from error
            raise

    def _unit(self, connection: object) -> UnitOfWork:
        unit: UnitOfWork = DatabaseUnitOfWork(connection, self._clock, self._ids, self._defaults)  # type: ignore[arg-type,assignment]
        return unit

    def _judge(self, error: Exception, left: int) -> None:
        """Pause before another run, or raise what the caller should see."""
        if not is_transient(error):
            if is_away(error):
                raise _away() from error
            raise error
        if left == 0:
            if isinstance(error, db_exception.DBDuplicateEntry):
                raise error
            raise Busy("The database is busy; try again.", meta={"retry_after_s": 1}) from error
        LOG.debug("Unit of work runs again after %s", error)
        time.sleep(random.uniform(0, PAUSE_S) * (TRIES - left))


def _away() -> Busy:
    return Busy("The database is away; try again.", meta={"retry_after_s": 2})
