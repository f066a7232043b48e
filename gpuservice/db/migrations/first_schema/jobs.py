# SPDX-License-Identifier: Apache-2.0
"""What is to be done: queues, jobs and their array elements."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from gpuservice.db.types import Json, JsonTuple, UtcDateTime, exact_string

#: The tables of this module, in the order in which they are made.
TABLES = (
    "queues",
    "jobs",
    "job_labels",
    "job_elements",
)


def create() -> None:
    """Make the tables and their indexes."""
    _queues()
    _jobs()
    _indexes_of_jobs()
    _job_labels()
    _job_elements()


def _queues() -> None:
    op.create_table(
        "queues",
        sa.Column("id", exact_string(64), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("project_id", exact_string(64), nullable=True),
        sa.Column("name", exact_string(255), nullable=False),
        sa.Column("projects", JsonTuple(), nullable=False),
        sa.Column("pool_ids", JsonTuple(), nullable=False),
        sa.Column("status", exact_string(32), nullable=False),
        sa.Column("weight", sa.Integer(), nullable=False),
        sa.Column("cohort", exact_string(255), nullable=True),
        sa.Column("nominal", Json(), nullable=False),
        sa.Column("borrowing_limit", Json(), nullable=False),
        sa.Column("lending_limit", Json(), nullable=False),
        sa.Column("preemption", exact_string(255), nullable=False),
        sa.Column("max_priority", sa.Integer(), nullable=False),
        sa.Column("kinds", Json(), nullable=False),
        sa.Column("placement", exact_string(255), nullable=False),
        sa.Column("name_key", exact_string(340), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_queues")),
        sa.UniqueConstraint("name_key", name=op.f("uq_queues_name_key")),
    )
    op.create_index(
        op.f("ix_queues_project_id_created_at_id"),
        "queues",
        ["project_id", "created_at", "id"],
        unique=False,
    )


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", exact_string(64), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("project_id", exact_string(64), nullable=False),
        sa.Column("user_id", exact_string(64), nullable=False),
        sa.Column("name", exact_string(255), nullable=False),
        sa.Column("queue_id", exact_string(64), nullable=False),
        sa.Column("kind", exact_string(32), nullable=False),
        sa.Column("status", exact_string(32), nullable=False),
        sa.Column("status_reason", exact_string(255), nullable=True),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("spec", Json(), nullable=False),
        sa.Column("labels", Json(), nullable=False),
        sa.Column("preemptible", sa.Boolean(), nullable=False),
        sa.Column("max_runtime_s", sa.Integer(), nullable=True),
        sa.Column("deadline_at", UtcDateTime(), nullable=True),
        sa.Column("on_hold", sa.Boolean(), nullable=False),
        sa.Column("array_size", sa.Integer(), nullable=True),
        sa.Column("array_max_running", sa.Integer(), nullable=True),
        sa.Column("array_max_failures", sa.Integer(), nullable=True),
        sa.Column("next_index", sa.Integer(), nullable=False),
        sa.Column("waiting_elements", sa.Integer(), nullable=False),
        sa.Column("live_elements", sa.Integer(), nullable=False),
        sa.Column("succeeded_elements", sa.Integer(), nullable=False),
        sa.Column("failed_elements", sa.Integer(), nullable=False),
        sa.Column("cancelled_elements", sa.Integer(), nullable=False),
        sa.Column("timed_out_elements", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("not_before", UtcDateTime(), nullable=True),
        sa.Column("queued_at", UtcDateTime(), nullable=False),
        sa.Column("started_at", UtcDateTime(), nullable=True),
        sa.Column("ended_at", UtcDateTime(), nullable=True),
        sa.Column("failure_class", exact_string(255), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("evidence", Json(), nullable=True),
        sa.Column("waiting_code", exact_string(255), nullable=True),
        sa.Column("waiting_summary", sa.Text(), nullable=True),
        sa.Column("waiting_position", sa.Integer(), nullable=True),
        sa.Column("waiting_estimated_start_at", UtcDateTime(), nullable=True),
        sa.Column("delete_requested", sa.Boolean(), nullable=False),
        sa.Column("open", sa.Integer(), nullable=True),
        sa.CheckConstraint(
            "waiting_elements >= 0 AND live_elements >= 0", name=op.f("ck_jobs_elements")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )


def _indexes_of_jobs() -> None:
    op.create_index(op.f("ix_jobs_created_at_id"), "jobs", ["created_at", "id"], unique=False)
    op.create_index("ix_jobs_deadline", "jobs", ["open", "deadline_at"], unique=False)
    op.create_index("ix_jobs_open", "jobs", ["open", "waiting_elements"], unique=False)
    op.create_index(
        op.f("ix_jobs_project_id_created_at_id"),
        "jobs",
        ["project_id", "created_at", "id"],
        unique=False,
    )
    op.create_index("ix_jobs_name", "jobs", ["project_id", "name"], unique=False)
    op.create_index("ix_jobs_queue", "jobs", ["queue_id", "open"], unique=False)
    op.create_index(
        "ix_jobs_status", "jobs", ["project_id", "status", "created_at", "id"], unique=False
    )


def _job_labels() -> None:
    op.create_table(
        "job_labels",
        sa.Column("job_id", exact_string(64), nullable=False),
        sa.Column("label", exact_string(255), nullable=False),
        sa.Column("value", exact_string(255), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "label", name=op.f("pk_job_labels")),
    )
    op.create_index("ix_job_labels_value", "job_labels", ["label", "value"], unique=False)


def _job_elements() -> None:
    op.create_table(
        "job_elements",
        sa.Column("job_id", exact_string(64), nullable=False),
        sa.Column("element_index", sa.Integer(), nullable=False),
        sa.Column("project_id", exact_string(64), nullable=False),
        sa.Column("status", exact_string(32), nullable=False),
        sa.Column("status_reason", exact_string(255), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("not_before", UtcDateTime(), nullable=True),
        sa.Column("queued_at", UtcDateTime(), nullable=False),
        sa.Column("started_at", UtcDateTime(), nullable=True),
        sa.Column("ended_at", UtcDateTime(), nullable=True),
        sa.Column("failure_class", exact_string(255), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "element_index", name=op.f("pk_job_elements")),
    )
    op.create_index("ix_job_elements_status", "job_elements", ["status", "job_id"], unique=False)
