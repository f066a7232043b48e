# SPDX-License-Identifier: Apache-2.0
"""Databases for these tests: SQLite always, PostgreSQL and MariaDB where their URLs are given.

A database that is not configured is not collected. Each test process makes a database of its own
on the server and drops it at the end, so that processes may run side by side.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from database_rows import RandomIds, SystemClock
from sqlalchemy import Engine
from sqlalchemy.engine import make_url

from gpuservice.db import migrations
from gpuservice.db.engine import create_engine
from gpuservice.db.store import DatabaseStore
from gpuservice.db.tables import METADATA

#: Backend -> the environment variable that holds the URL of its server (None: always there).
SERVERS = {
    "sqlite": None,
    "postgresql": "GPUSERVICE_TEST_POSTGRESQL_URL",
    "mariadb": "GPUSERVICE_TEST_MARIADB_URL",
}


def configured() -> list[str]:
    """The backends that can be tested here."""
    return [name for name, variable in SERVERS.items() if variable is None or os.getenv(variable)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames:
        metafunc.parametrize("backend", configured(), scope="session")


@contextmanager
def fresh_database(backend: str, folder: Path) -> Iterator[Engine]:
    """An engine on a new, empty database, which is dropped at the end."""
    variable = SERVERS[backend]
    name = f"gpuservice_{uuid.uuid4().hex[:12]}"
    if variable is None:
        engine = create_engine(f"sqlite:///{folder / name}.db", pool_size=64)
        yield engine
        engine.dispose()
        return
    server = create_engine(os.environ[variable], pool_size=2)
    with server.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    url = make_url(os.environ[variable]).set(database=name)
    engine = create_engine(url.render_as_string(hide_password=False), pool_size=64)
    try:
        yield engine
    finally:
        engine.dispose()
        with server.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(f"DROP DATABASE {name}")
        server.dispose()


@pytest.fixture
def empty_engine(backend: str, tmp_path: Path) -> Iterator[Engine]:
    """A database without any table."""
    with fresh_database(backend, tmp_path) as engine:
        yield engine


@pytest.fixture(scope="session")
def migrated_engine(backend: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A database at the newest revision, shared by the tests of this process."""
    with fresh_database(backend, tmp_path_factory.mktemp("db")) as engine:
        migrations.upgrade(engine)
        yield engine


@pytest.fixture
def engine(migrated_engine: Engine) -> Iterator[Engine]:
    """The shared database, emptied after the test."""
    yield migrated_engine
    with migrated_engine.begin() as connection:
        for table in METADATA.sorted_tables:
            connection.execute(table.delete())


@pytest.fixture
def store(engine: Engine) -> DatabaseStore:
    """The store on it; ``jobs:queued`` has a default limit of 32."""
    return DatabaseStore(engine, SystemClock(), RandomIds(), {"jobs:queued": 32, "gpus": -1})
