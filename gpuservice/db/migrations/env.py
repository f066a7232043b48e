# SPDX-License-Identifier: Apache-2.0
"""How alembic reaches the database: by the engine it is handed."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Engine

from gpuservice.db import tables

engine: Engine = context.config.attributes["engine"]

with engine.connect() as connection:
    context.configure(
        connection=connection,
        target_metadata=tables.JOBS.metadata,
        render_as_batch=engine.dialect.name == "sqlite",
    )
    with context.begin_transaction():
        context.run_migrations()
    connection.commit()
