# SPDX-License-Identifier: Apache-2.0
"""Connections that the server closed while they were idle."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine, text

from gpuservice.db import engine as engine_module
from gpuservice.db.engine import create_engine


def close_all_of(engine: Engine) -> None:
    """Have the server close every connection to the database, as a restart does."""
    other = create_engine(engine.url.render_as_string(hide_password=False), pool_size=1)
    with other.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            )
        elif engine.dialect.name != "sqlite":
            found = connection.execute(
                text(
                    "SELECT id FROM information_schema.processlist "
                    "WHERE db = database() AND id <> connection_id()"
                )
            )
            for (ident,) in found.all():
                connection.execute(text(f"KILL {int(ident)}"))
    other.dispose()


def test_idle_connections_that_were_closed_cost_nothing(
    empty_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "IDLE_S", 0.0)
    with empty_engine.connect() as one, empty_engine.connect() as two:
        assert one.execute(text("SELECT 1")).scalar() == two.execute(text("SELECT 1")).scalar()
    close_all_of(empty_engine)
    with empty_engine.connect() as one, empty_engine.connect() as two:
        assert one.execute(text("SELECT 1")).scalar() == 1
        assert two.execute(text("SELECT 1")).scalar() == 1


def test_a_connection_in_use_is_not_tried_each_time(
    empty_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "IDLE_S", 3600.0)
    tried: list[object] = []
    monkeypatch.setattr(empty_engine.dialect, "do_ping", tried.append)
    for _ in range(3):
        with empty_engine.connect() as connection:
            assert connection.execute(text("SELECT 1")).scalar() == 1
    assert not tried
