# SPDX-License-Identifier: Apache-2.0
"""Cohorts, promises and preemption of jobs, and what the scheduler reckons over time"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

from gpuservice.db.types import JsonTuple, UtcDateTime, exact_string

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

#: (table, column, type) of columns that may be empty.
_COLUMNS = (
    ("jobs", "promised_since", UtcDateTime()),
    ("jobs", "promised_start_at", UtcDateTime()),
    ("jobs", "due_at", UtcDateTime()),
    ("attempts", "preempted_for", exact_string(64)),
    ("allocations", "queue_id", exact_string(64)),
    ("allocations", "user_id", exact_string(64)),
)
#: (table, column, type, what the rows of before get)
_FILLED = (
    ("jobs", "preempted_count", sa.Integer(), sa.text("0")),
    ("jobs", "claimed", sa.Boolean(), sa.false()),
    ("job_elements", "preempted_count", sa.Integer(), sa.text("0")),
    ("tasks", "stopped", sa.Boolean(), sa.false()),
)


def upgrade() -> None:
    """Apply."""
    _cohorts()
    for table, name, kind in _COLUMNS:
        op.add_column(table, sa.Column(name, kind, nullable=True))
    for table, name, kind, filled in _FILLED:
        op.add_column(table, sa.Column(name, kind, nullable=False, server_default=filled))
    op.execute(
        "UPDATE allocations SET "
        "queue_id = (SELECT jobs.queue_id FROM jobs WHERE jobs.id = allocations.job_id), "
        "user_id = (SELECT jobs.user_id FROM jobs WHERE jobs.id = allocations.job_id)"
    )
    op.create_index("ix_attempts_ended", "attempts", ["ended_at", "id"], unique=False)
    op.create_index("ix_allocations_released", "allocations", ["released_at", "id"], unique=False)
    _usage()


def _cohorts() -> None:
    """The cohorts that queues named so far get rows, to which the queues then refer."""
    cohorts = op.create_table(
        "cohorts",
        sa.Column("id", exact_string(64), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("name", exact_string(255), nullable=False),
        sa.Column("projects", JsonTuple(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cohorts")),
        sa.UniqueConstraint("name", name=op.f("uq_cohorts_name")),
    )
    now = datetime.now(UTC)
    named = sa.text("SELECT DISTINCT cohort FROM queues WHERE cohort IS NOT NULL ORDER BY cohort")
    rows = [
        {
            "id": str(uuid.uuid4()),
            "created_at": now,
            "updated_at": now,
            "generation": 1,
            "version": 1,
            "name": name,
            "projects": ("*",),
        }
        for (name,) in op.get_bind().execute(named)
    ]
    if rows:
        op.bulk_insert(cohorts, rows)
    op.create_index(op.f("ix_queues_cohort"), "queues", ["cohort"], unique=False)
    with op.batch_alter_table("queues") as batch:
        batch.create_foreign_key(
            "fk_queues_cohort", "cohorts", ["cohort"], ["name"], onupdate="CASCADE"
        )


def _usage() -> None:
    op.create_table(
        "usage_decayed",
        sa.Column("queue_id", exact_string(64), nullable=False),
        sa.Column("project_id", exact_string(64), nullable=False),
        sa.Column("user_id", exact_string(64), nullable=False),
        sa.Column("milli_gpu_seconds", sa.Double(), nullable=False),
        sa.Column("as_of", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("queue_id", "project_id", "user_id", name=op.f("pk_usage_decayed")),
    )
    op.create_table(
        "limit_history",
        sa.Column("queue_id", exact_string(64), nullable=False),
        sa.Column("user_id", exact_string(64), nullable=False),
        sa.Column("kind", exact_string(32), nullable=False),
        sa.Column("runs", sa.Double(), nullable=False),
        sa.Column("run_s", sa.Double(), nullable=False),
        sa.Column("limit_s", sa.Double(), nullable=False),
        sa.Column("as_of", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("queue_id", "user_id", "kind", name=op.f("pk_limit_history")),
    )
    op.create_table(
        "usage_marks",
        sa.Column("name", exact_string(32), nullable=False),
        sa.Column("ended_at", UtcDateTime(), nullable=False),
        sa.Column("ident", exact_string(64), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_usage_marks")),
    )


def downgrade() -> None:
    """Take back."""
    for table in ("usage_marks", "limit_history", "usage_decayed"):
        op.drop_table(table)
    op.drop_index("ix_allocations_released", "allocations")
    op.drop_index("ix_attempts_ended", "attempts")
    for table, name, *_ in reversed((*_COLUMNS, *_FILLED)):
        op.drop_column(table, name)
    with op.batch_alter_table("queues") as batch:
        batch.drop_constraint("fk_queues_cohort", type_="foreignkey")
    op.drop_index(op.f("ix_queues_cohort"), "queues")
    op.drop_table("cohorts")
