# SPDX-License-Identifier: Apache-2.0
"""Schema migrations (alembic): ``upgrade``, ``downgrade``, ``version``."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Engine

from gpuservice.domain.errors import Misconfigured


def _config(engine: Engine) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["engine"] = engine
    return config


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Bring the schema up to a revision.

    :raises Misconfigured: when the schema is of a release that this one does not know.
    """
    try:
        command.upgrade(_config(engine), revision)
    except CommandError as error:
        raise Misconfigured(
            f"the schema is at version {version(engine)}, which this release does not know; use "
            f"the release that made it, or a newer one ({error})"
        ) from error


def downgrade(engine: Engine, revision: str) -> None:
    """Take the schema back (for tests; production restores a backup)."""
    command.downgrade(_config(engine), revision)


def version(engine: Engine) -> str | None:
    """The revision of the schema, or None for an empty database."""
    with engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def newest() -> str:
    """The revision that this code works with."""
    revision = ScriptDirectory(str(Path(__file__).parent)).get_current_head()
    if revision is None:
        raise RuntimeError("there are no migrations")
    return revision
