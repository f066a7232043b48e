# SPDX-License-Identifier: Apache-2.0
"""``world``: a conductor on a fresh SQLite database and an empty simulated cloud."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conductor_world import World

from gpuservice.db.engine import create_engine
from gpuservice.db.tables import METADATA


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database file with every table and no row, to be copied."""
    path = tmp_path_factory.mktemp("template") / "empty.db"
    engine = create_engine(f"sqlite:///{path}")
    METADATA.create_all(engine)
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    engine.dispose()
    return path


@pytest.fixture
def make_world(
    tmp_path_factory: pytest.TempPathFactory, empty_database: Path
) -> Iterator[Callable[..., World]]:
    """Worlds with options of their own; what always holds is checked at the end."""
    made: list[World] = []

    def make(**overrides: Any) -> World:
        made.append(World(tmp_path_factory.mktemp("world"), empty_database, **overrides))
        return made[-1]

    yield make
    for world in made:
        world.check()
        world.engine.dispose()


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """A world with the usual options."""
    return make_world()
