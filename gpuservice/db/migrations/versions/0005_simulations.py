# SPDX-License-Identifier: Apache-2.0
"""What-if simulations"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from gpuservice.db.types import Json, JsonTuple, UtcDateTime, exact_string

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "simulations",
        sa.Column("id", exact_string(64), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("name", exact_string(255), nullable=False),
        sa.Column("user_id", exact_string(64), nullable=False),
        sa.Column("status", exact_string(32), nullable=False),
        sa.Column("status_reason", sa.Text(), nullable=True),
        sa.Column("progress", sa.Integer(), nullable=False),
        sa.Column("request", Json(), nullable=False),
        sa.Column("workload", JsonTuple(), nullable=False),
        sa.Column("resolved", Json(), nullable=False),
        sa.Column("result", Json(), nullable=True),
        sa.Column("started_at", UtcDateTime(), nullable=True),
        sa.Column("ended_at", UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_simulations")),
    )
    op.create_index(
        op.f("ix_simulations_status_created_at_id"),
        "simulations",
        ["status", "created_at", "id"],
        unique=False,
    )
    op.create_index(
        op.f("ix_simulations_created_at_id"), "simulations", ["created_at", "id"], unique=False
    )


def downgrade() -> None:
    """Take back."""
    op.drop_table("simulations")
