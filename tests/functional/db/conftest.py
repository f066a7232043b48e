# SPDX-License-Identifier: Apache-2.0
"""Databases for these tests: SQLite always, PostgreSQL and MariaDB where their URLs are given.

A database that is not configured is not collected. Each test process makes a database of its own
on the server and drops it at the end, so that processes may run side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from database_rows import RandomIds, SystemClock
from fresh_databases import configured, fresh_database
from sqlalchemy import Engine

from gpuservice.db import migrations
from gpuservice.db.store import DatabaseStore
from gpuservice.db.tables import METADATA


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames:
        metafunc.parametrize("backend", configured(), scope="session")


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
        for table in reversed(METADATA.sorted_tables):
            connection.execute(table.delete())


@pytest.fixture
def store(engine: Engine) -> DatabaseStore:
    """The store on it; ``jobs:queued`` has a default limit of 32."""
    return DatabaseStore(engine, SystemClock(), RandomIds(), {"jobs:queued": 32, "gpus": -1})
