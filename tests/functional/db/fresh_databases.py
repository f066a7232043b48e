# SPDX-License-Identifier: Apache-2.0
"""Databases of a test's own on the servers that are there."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.engine import make_url

from gpuservice.db.engine import create_engine

#: Backend -> the environment variable that holds the URL of its server (None: always there).
SERVERS = {
    "sqlite": None,
    "postgresql": "GPUSERVICE_TEST_POSTGRESQL_URL",
    "mariadb": "GPUSERVICE_TEST_MARIADB_URL",
}


def configured() -> list[str]:
    """The backends that can be tested here."""
    return [name for name, variable in SERVERS.items() if variable is None or os.getenv(variable)]


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
