# SPDX-License-Identifier: Apache-2.0
"""Engines: SQLite (WAL) inside one process, PostgreSQL and MariaDB for everything else."""

from __future__ import annotations

import itertools
import logging
import time
from typing import Any

import sqlalchemy
from oslo_config import cfg
from oslo_db.exception import DBConnectionError, DBError
from oslo_db.sqlalchemy import engines, exc_filters
from sqlalchemy import Connection, Engine, event
from sqlalchemy.dialects.postgresql import psycopg2
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DisconnectionError, OperationalError

from gpuservice.domain.errors import Misconfigured

LOG = logging.getLogger(__name__)

#: How long a writer waits for another one on SQLite before it is told that the file is busy.
SQLITE_BUSY_MS = 5000
#: A connection that was idle for longer (seconds) is tried before it is used again.
IDLE_S = 0.5
#: Execution option that marks a transaction as writing (SQLite then begins IMMEDIATE).
WRITING = "gpuservice_writing"
#: What PostgreSQL answers while it starts, ends or serves too many; other FATAL answers (a user
#: or a database that it does not know) stay what they are.
_PASSES = (
    "starting up",
    "shutting down",
    "in recovery",
    "administrator command",
    "too many",
    "connection slots",
)


def create_engine_from(conf: cfg.ConfigOpts) -> Engine:
    """The engine of ``[database] connection``; retries the first connection as configured."""
    return create_engine(
        conf.database.connection,
        pool_size=conf.database.max_pool_size,
        max_overflow=conf.database.max_overflow,
        max_retries=conf.database.max_retries,
        retry_interval=conf.database.retry_interval,
    )


def create_engine(
    url: str,
    *,
    pool_size: int = 20,
    max_overflow: int = 50,
    max_retries: int = 0,
    retry_interval: int = 1,
) -> Engine:
    """An engine for a URL, with the isolation that the transactions of this service need.

    Idle connections are tried before use, so that a restart of the database costs no request.

    :raises Misconfigured: when nothing can connect to such a URL, or could in all its retries.
    """
    try:
        return _create_engine(url, pool_size, max_overflow, max_retries, retry_interval)
    except ValueError:
        # What it says may be a part of the password.
        said = "it is no URL; is the port a number, and are / # ? @ in the password escaped?"
    except (OperationalError, DBError) as error:
        said = _first_line(error)
    except (ArgumentError, ImportError) as error:
        said = str(error)
    name = url.partition("://")[0] if "://" in url else "of no kind"
    raise Misconfigured(f"[database] connection cannot be used ({name}): {said}")


def _create_engine(
    url: str, pool_size: int, max_overflow: int, max_retries: int, retry_interval: int
) -> Engine:
    if make_url(url).get_backend_name() == "sqlite":
        return _sqlite(url, pool_size)
    engine: Engine = engines.create_engine(
        url,
        max_pool_size=pool_size,
        max_overflow=max_overflow,
        pool_timeout=30,
        max_retries=0,  # below: oslo.db does not know how newer clients of PostgreSQL say it
        thread_checkin=False,
        mysql_sql_mode="TRADITIONAL",
    )
    _connect_once(engine, max_retries, retry_interval)
    _try_when_idle(engine)
    if engine.dialect.name in ("mysql", "mariadb"):
        event.listen(engine, "connect", _read_committed)
    if engine.dialect.driver == "psycopg2":
        _batch_updates(engine)
    return engine


def _connect_once(engine: Engine, max_retries: int, retry_interval: int) -> None:
    """Wait for the database: a first connection, tried so often (-1: for ever; 0: not at all).

    :raises OperationalError: when the last try failed, or the database refuses such a user.
    :raises DBConnectionError: likewise.
    """
    for tried in itertools.count(1):
        if 0 <= max_retries < tried:
            return
        try:
            engine.connect().close()
            return
        except (OperationalError, DBConnectionError) as error:
            if tried == max_retries or not _may_pass(engine, error):
                raise
            LOG.warning("The database cannot be reached yet: %s", _first_line(error))
        time.sleep(retry_interval)


def _may_pass(engine: Engine, error: Exception) -> bool:
    """Whether a connection that failed so may come about later."""
    if isinstance(error, DBConnectionError):
        return True
    if engine.dialect.name != "postgresql":
        return False
    said = _first_line(error)
    return "FATAL" not in said or any(words in said for words in _PASSES)


def _first_line(error: Exception) -> str:
    """What the server, or the client in its place, said."""
    cause = getattr(error, "orig", None) or getattr(error, "inner_exception", None) or error
    if isinstance(cause, OperationalError):
        cause = cause.orig or cause
    return str(cause).strip().partition("\n")[0]


def _try_when_idle(engine: Engine) -> None:
    """Try a connection before use only when it has been idle for ``IDLE_S``.

    oslo.db has each one tried at each use: one round trip more for every transaction, for the
    sake of servers that were restarted. A restart takes longer than that idle time; whoever is
    in the middle of one is told that the database is away, and tries again.
    """
    pool: Any = engine.pool
    pool._pre_ping = False
    dialect: Any = engine.dialect

    @event.listens_for(pool, "checkin")
    def _used(connection: Any, record: Any) -> None:
        record.info["used_at"] = time.monotonic()

    @event.listens_for(pool, "checkout")
    def _try(connection: Any, record: Any, proxy: Any) -> None:
        used_at = record.info.get("used_at")
        if used_at is None or time.monotonic() - used_at < IDLE_S:
            return
        try:
            dialect.do_ping(connection)
        except dialect.loaded_dbapi.Error as error:
            raise DisconnectionError("the database closed the connection") from error


def _batch_updates(engine: Engine) -> None:
    """One round trip for an UPDATE with many parameter sets, instead of one for each.

    The option of ``sqlalchemy.create_engine`` for it does not pass through oslo.db.
    """
    dialect: Any = engine.dialect
    dialect.executemany_mode = psycopg2.EXECUTEMANY_VALUES_PLUS_BATCH
    dialect.supports_sane_multi_rowcount = False


def _read_committed(connection: Any, record: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    cursor.close()


def _sqlite(url: str, pool_size: int) -> Engine:
    """oslo.db would open the file anew for each transaction; here connections are pooled.

    The driver's own BEGIN is switched off and ours emitted instead: IMMEDIATE for writers, so
    that two of them queue up instead of failing in the middle.
    """
    engine = sqlalchemy.create_engine(
        url,
        pool_size=pool_size,
        max_overflow=pool_size,
        connect_args={"check_same_thread": False, "timeout": SQLITE_BUSY_MS / 1000},
    )
    exc_filters.register_engine(engine)

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, record: Any) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA busy_timeout = {SQLITE_BUSY_MS}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        writing = connection.get_execution_options().get(WRITING)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")

    return engine


def begin_snapshot(connection: Connection) -> None:
    """Let the coming transaction see one moment, however many statements it has.

    A transaction of SQLite always does. Elsewhere READ COMMITTED (right for guarded writes) would
    show each statement a newer state.
    """
    if connection.dialect.name == "postgresql":
        connection.execution_options(isolation_level="REPEATABLE READ")
    elif connection.dialect.name in ("mysql", "mariadb"):
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")


def is_sqlite(engine: Engine) -> bool:
    """Whether this is the embedded database (one process, one writer)."""
    return engine.dialect.name == "sqlite"
