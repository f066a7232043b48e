# SPDX-License-Identifier: Apache-2.0
"""What is counted and told: quotas, events, explanations of waiting, kept answers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from gpuservice.db.types import Json, UtcDateTime, exact_string

#: The tables of this module, in the order in which they are made.
TABLES = (
    "quota_limits",
    "quota_usage",
    "events",
    "explanations",
    "idempotency_keys",
)


def create() -> None:
    """Make the tables and their indexes."""
    _quota_limits()
    _quota_usage()
    _events()
    _explanations()
    _idempotency_keys()


def _quota_limits() -> None:
    op.create_table(
        "quota_limits",
        sa.Column("project_id", exact_string(64), nullable=False),
        sa.Column("name", exact_string(128), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "name", name=op.f("pk_quota_limits")),
    )


def _quota_usage() -> None:
    op.create_table(
        "quota_usage",
        sa.Column("project_id", exact_string(64), nullable=False),
        sa.Column("name", exact_string(128), nullable=False),
        sa.Column("in_use", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("in_use >= 0", name=op.f("ck_quota_usage_in_use")),
        sa.PrimaryKeyConstraint("project_id", "name", name=op.f("pk_quota_usage")),
    )


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("id", exact_string(64), nullable=False),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.Column("project_id", exact_string(64), nullable=True),
        sa.Column("actor", exact_string(255), nullable=False),
        sa.Column("action", exact_string(255), nullable=False),
        sa.Column("target_type", exact_string(255), nullable=False),
        sa.Column("target_id", exact_string(64), nullable=False),
        sa.Column("outcome", exact_string(32), nullable=False),
        sa.Column("reason", exact_string(255), nullable=True),
        sa.Column("request_id", exact_string(64), nullable=True),
        sa.Column("global_request_id", exact_string(64), nullable=True),
        sa.Column("detail", Json(), nullable=False),
        sa.Column(
            "seq",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_events")),
        sa.UniqueConstraint("id", name="uq_events_id"),
    )
    op.create_index("ix_events_project", "events", ["project_id", "seq"], unique=False)
    op.create_index("ix_events_target", "events", ["target_id", "seq"], unique=False)


def _explanations() -> None:
    op.create_table(
        "explanations",
        sa.Column("job_id", exact_string(64), nullable=False),
        sa.Column("digest", exact_string(64), nullable=False),
        sa.Column("body", Json(), nullable=False),
        sa.Column("evaluated_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_explanations")),
    )


def _idempotency_keys() -> None:
    op.create_table(
        "idempotency_keys",
        sa.Column("scope", exact_string(64), nullable=False),
        sa.Column("project_id", exact_string(64), nullable=False),
        sa.Column("user_id", exact_string(64), nullable=False),
        sa.Column("path", exact_string(255), nullable=False),
        sa.Column("key", exact_string(255), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("body", Json(), nullable=True),
        sa.Column("headers", Json(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("scope", name=op.f("pk_idempotency_keys")),
    )
    op.create_index(
        op.f("ix_idempotency_keys_created_at"),
        "idempotency_keys",
        ["created_at"],
        unique=False,
    )
