# SPDX-License-Identifier: Apache-2.0
"""Which process is there and which one does what."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from gpuservice.db.types import UtcDateTime, exact_string

#: The tables of this module, in the order in which they are made.
TABLES = (
    "services",
    "scheduler_shards",
    "work_leases",
)


def create() -> None:
    """Make the tables and their indexes."""
    _services()
    _scheduler_shards()
    _work_leases()


def _services() -> None:
    op.create_table(
        "services",
        sa.Column("id", exact_string(64), nullable=False),
        sa.Column("binary", exact_string(255), nullable=False),
        sa.Column("host", exact_string(255), nullable=False),
        sa.Column("status", exact_string(32), nullable=False),
        sa.Column("seen_at", UtcDateTime(), nullable=False),
        sa.Column("started_at", UtcDateTime(), nullable=False),
        sa.Column("version", exact_string(255), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_services")),
    )


def _scheduler_shards() -> None:
    op.create_table(
        "scheduler_shards",
        sa.Column("shard", exact_string(64), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("leader", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("shard", name=op.f("pk_scheduler_shards")),
    )


def _work_leases() -> None:
    op.create_table(
        "work_leases",
        sa.Column("kind", exact_string(32), nullable=False),
        sa.Column("ident", exact_string(64), nullable=False),
        sa.Column("owner", exact_string(255), nullable=False),
        sa.Column("token", exact_string(64), nullable=False),
        sa.Column("expires_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "ident", name=op.f("pk_work_leases")),
    )
