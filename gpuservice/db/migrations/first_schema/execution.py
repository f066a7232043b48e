# SPDX-License-Identifier: Apache-2.0
"""What runs and what it left: attempts, tasks, their devices and ports, their results."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from gpuservice.db.types import Json, JsonTuple, UtcDateTime, exact_string

#: The tables of this module, in the order in which they are made.
TABLES = (
    "attempts",
    "tasks",
    "allocations",
    "port_leases",
    "artifacts",
    "checkpoints",
)


def create() -> None:
    """Make the tables and their indexes."""
    _attempts()
    _tasks()
    _allocations()
    _port_leases()
    _artifacts()
    _checkpoints()


def _attempts() -> None:
    op.create_table(
        "attempts",
        sa.Column("id", exact_string(64), nullable=False),
        sa.Column("job_id", exact_string(64), nullable=False),
        sa.Column("element_index", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("project_id", exact_string(64), nullable=False),
        sa.Column("queue_id", exact_string(64), nullable=False),
        sa.Column("pool_id", exact_string(64), nullable=False),
        sa.Column("status", exact_string(32), nullable=False),
        sa.Column("outcome", exact_string(32), nullable=True),
        sa.Column("live", sa.Integer(), nullable=True),
        sa.Column("attention", sa.Boolean(), nullable=False),
        sa.Column("due_at", UtcDateTime(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("started_at", UtcDateTime(), nullable=True),
        sa.Column("ended_at", UtcDateTime(), nullable=True),
        sa.Column("stop_reason", exact_string(255), nullable=True),
        sa.Column("stop_requested_at", UtcDateTime(), nullable=True),
        sa.Column("failure_class", exact_string(255), nullable=True),
        sa.Column("evidence", Json(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("tasks_count", sa.Integer(), nullable=False),
        sa.Column("gang_secret", exact_string(64), nullable=False),
        sa.Column("master_address", exact_string(64), nullable=True),
        sa.Column("master_port", sa.Integer(), nullable=True),
        sa.Column("promised_end_at", UtcDateTime(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempts")),
        sa.UniqueConstraint("job_id", "element_index", "live", name="uq_attempts_live"),
        sa.UniqueConstraint("job_id", "element_index", "number", name="uq_attempts_number"),
    )
    op.create_index("ix_attempts_attention", "attempts", ["live", "attention"], unique=False)
    op.create_index("ix_attempts_due", "attempts", ["live", "due_at"], unique=False)


def _tasks() -> None:
    op.create_table(
        "tasks",
        sa.Column("id", exact_string(64), nullable=False),
        sa.Column("attempt_id", exact_string(64), nullable=False),
        sa.Column("job_id", exact_string(64), nullable=False),
        sa.Column("element_index", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("task_rank", sa.Integer(), nullable=False),
        sa.Column("project_id", exact_string(64), nullable=False),
        sa.Column("node_id", exact_string(64), nullable=False),
        sa.Column("node_epoch", sa.Integer(), nullable=False),
        sa.Column("status", exact_string(32), nullable=False),
        sa.Column("action", exact_string(255), nullable=False),
        sa.Column("gpu_milli", sa.Integer(), nullable=False),
        sa.Column("counted_gpus", Json(), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_mib", sa.Integer(), nullable=False),
        sa.Column("address", exact_string(64), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("signal_number", sa.Integer(), nullable=True),
        sa.Column("oom", sa.Boolean(), nullable=False),
        sa.Column("timed_out", sa.Boolean(), nullable=False),
        sa.Column("failure_class", exact_string(255), nullable=True),
        sa.Column("failure_evidence", sa.Text(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("claimed_started_at", UtcDateTime(), nullable=True),
        sa.Column("claimed_ended_at", UtcDateTime(), nullable=True),
        sa.Column("gone_at", UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tasks")),
        sa.UniqueConstraint("attempt_id", "task_rank", name="uq_tasks_rank"),
    )
    op.create_index("ix_tasks_node", "tasks", ["node_id", "status"], unique=False)


def _allocations() -> None:
    op.create_table(
        "allocations",
        sa.Column("id", exact_string(64), nullable=False),
        sa.Column("task_id", exact_string(64), nullable=False),
        sa.Column("device_id", exact_string(64), nullable=False),
        sa.Column("node_id", exact_string(64), nullable=False),
        sa.Column("job_id", exact_string(64), nullable=False),
        sa.Column("project_id", exact_string(64), nullable=False),
        sa.Column("milli", sa.Integer(), nullable=False),
        sa.Column("allocated_at", UtcDateTime(), nullable=False),
        sa.Column("released_at", UtcDateTime(), nullable=True),
        sa.Column("held", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_allocations")),
    )
    op.create_index("ix_allocations_held", "allocations", ["held", "device_id"], unique=False)
    op.create_index("ix_allocations_task", "allocations", ["task_id"], unique=False)


def _port_leases() -> None:
    op.create_table(
        "port_leases",
        sa.Column("address", exact_string(64), nullable=False),
        sa.Column("port", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt_id", exact_string(64), nullable=False),
        sa.PrimaryKeyConstraint("address", "port", name=op.f("pk_port_leases")),
    )
    op.create_index(op.f("ix_port_leases_attempt_id"), "port_leases", ["attempt_id"], unique=False)


def _artifacts() -> None:
    op.create_table(
        "artifacts",
        sa.Column("id", exact_string(64), nullable=False),
        sa.Column("job_id", exact_string(64), nullable=False),
        sa.Column("attempt_id", exact_string(64), nullable=False),
        sa.Column("task_id", exact_string(64), nullable=False),
        sa.Column("element_index", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("task_rank", sa.Integer(), nullable=False),
        sa.Column("project_id", exact_string(64), nullable=False),
        sa.Column("path", exact_string(512), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("sha256", exact_string(64), nullable=False),
        sa.Column("object_key", exact_string(1000), nullable=False),
        sa.Column("published", sa.Boolean(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_artifacts")),
        sa.UniqueConstraint("task_id", "path", name="uq_artifacts_path"),
    )
    op.create_index("ix_artifacts_attempt", "artifacts", ["attempt_id"], unique=False)
    op.create_index(
        "ix_artifacts_job",
        "artifacts",
        ["job_id", "element_index", "attempt", "task_rank", "path"],
        unique=False,
    )


def _checkpoints() -> None:
    op.create_table(
        "checkpoints",
        sa.Column("id", exact_string(64), nullable=False),
        sa.Column("job_id", exact_string(64), nullable=False),
        sa.Column("element_index", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("task_rank", sa.Integer(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("project_id", exact_string(64), nullable=False),
        sa.Column("files", JsonTuple(), nullable=False),
        sa.Column("object_prefix", exact_string(255), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_checkpoints")),
        sa.UniqueConstraint(
            "job_id", "element_index", "attempt", "task_rank", "seq", name="uq_checkpoints_seq"
        ),
    )
