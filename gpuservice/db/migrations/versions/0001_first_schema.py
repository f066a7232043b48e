# SPDX-License-Identifier: Apache-2.0
"""First schema"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from gpuservice.db.types import Json, JsonTuple, UtcDateTime, exact_string

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
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
    op.create_table(
        "devices",
        sa.Column("id", exact_string(64), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("host_id", exact_string(64), nullable=False),
        sa.Column("address", exact_string(64), nullable=False),
        sa.Column("gpu_type", exact_string(255), nullable=False),
        sa.Column("memory_mib", sa.Integer(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("uuid", exact_string(255), nullable=True),
        sa.Column("serial", exact_string(255), nullable=True),
        sa.Column("vendor", exact_string(255), nullable=False),
        sa.Column("product_id", exact_string(64), nullable=True),
        sa.Column("numa_node", sa.Integer(), nullable=True),
        sa.Column("link_group", exact_string(64), nullable=True),
        sa.Column("mode", exact_string(32), nullable=False),
        sa.Column("health", exact_string(32), nullable=False),
        sa.Column("health_reason", exact_string(255), nullable=True),
        sa.Column("node_id", exact_string(64), nullable=True),
        sa.Column("used_milli", sa.Integer(), nullable=False),
        sa.Column("occupant_project_id", exact_string(64), nullable=True),
        sa.CheckConstraint(
            "used_milli >= 0 AND used_milli <= 1000", name=op.f("ck_devices_used_milli")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_devices")),
        sa.UniqueConstraint("host_id", "address", name=op.f("uq_devices_host_id_address")),
    )
    op.create_index(op.f("ix_devices_node_id"), "devices", ["node_id"], unique=False)

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

    op.create_table(
        "explanations",
        sa.Column("job_id", exact_string(64), nullable=False),
        sa.Column("digest", exact_string(64), nullable=False),
        sa.Column("body", Json(), nullable=False),
        sa.Column("evaluated_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_explanations")),
    )
    op.create_table(
        "flavors",
        sa.Column("id", exact_string(64), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("name", exact_string(255), nullable=False),
        sa.Column("gpu_type", exact_string(255), nullable=False),
        sa.Column("gpu_count", sa.Integer(), nullable=False),
        sa.Column("mode", exact_string(32), nullable=False),
        sa.Column("partition", exact_string(255), nullable=True),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_mib", sa.Integer(), nullable=False),
        sa.Column("disk_gib", sa.Integer(), nullable=False),
        sa.Column("numa_policy", exact_string(255), nullable=True),
        sa.Column("public", sa.Boolean(), nullable=False),
        sa.Column("projects", JsonTuple(), nullable=False),
        sa.Column("price_per_hour", sa.Integer(), nullable=True),
        sa.Column("status", exact_string(32), nullable=False),
        sa.Column("realised_as", Json(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_flavors")),
        sa.UniqueConstraint("name", name=op.f("uq_flavors_name")),
    )
    op.create_table(
        "gpu_types",
        sa.Column("id", exact_string(64), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("name", exact_string(255), nullable=False),
        sa.Column("vendor", exact_string(255), nullable=False),
        sa.Column("memory_mib", sa.Integer(), nullable=False),
        sa.Column("pci_ids", JsonTuple(), nullable=False),
        sa.Column("architecture", exact_string(255), nullable=True),
        sa.Column("interconnect", exact_string(255), nullable=True),
        sa.Column("partitions", JsonTuple(), nullable=False),
        sa.Column("resource_class", exact_string(255), nullable=True),
        sa.Column("traits", JsonTuple(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_gpu_types")),
        sa.UniqueConstraint("name", name=op.f("uq_gpu_types_name")),
    )
    op.create_table(
        "hosts",
        sa.Column("id", exact_string(64), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("name", exact_string(255), nullable=False),
        sa.Column("kind", exact_string(32), nullable=False),
        sa.Column("state", exact_string(32), nullable=False),
        sa.Column("status", exact_string(32), nullable=False),
        sa.Column("status_reason", exact_string(255), nullable=True),
        sa.Column("drain_deadline_at", UtcDateTime(), nullable=True),
        sa.Column("rack", exact_string(255), nullable=True),
        sa.Column("zone", exact_string(255), nullable=True),
        sa.Column("link_domain", exact_string(255), nullable=True),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_mib", sa.Integer(), nullable=False),
        sa.Column("address", exact_string(255), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_hosts")),
        sa.UniqueConstraint("name", name=op.f("uq_hosts_name")),
    )
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

    op.create_table(
        "job_labels",
        sa.Column("job_id", exact_string(64), nullable=False),
        sa.Column("label", exact_string(255), nullable=False),
        sa.Column("value", exact_string(255), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "label", name=op.f("pk_job_labels")),
    )
    op.create_index("ix_job_labels_value", "job_labels", ["label", "value"], unique=False)

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

    op.create_table(
        "nodes",
        sa.Column("id", exact_string(64), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("pool_id", exact_string(64), nullable=False),
        sa.Column("project_id", exact_string(64), nullable=False),
        sa.Column("name", exact_string(255), nullable=False),
        sa.Column("flavor_id", exact_string(64), nullable=False),
        sa.Column("host_id", exact_string(64), nullable=True),
        sa.Column("server_id", exact_string(255), nullable=True),
        sa.Column("baremetal_id", exact_string(255), nullable=True),
        sa.Column("address", exact_string(64), nullable=True),
        sa.Column("status", exact_string(32), nullable=False),
        sa.Column("status_reason", exact_string(255), nullable=True),
        sa.Column("status_changed_at", UtcDateTime(), nullable=False),
        sa.Column("fault", Json(), nullable=True),
        sa.Column("gpu_type", exact_string(255), nullable=False),
        sa.Column("gpu_count", sa.Integer(), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_mib", sa.Integer(), nullable=False),
        sa.Column("used_vcpus", sa.Integer(), nullable=False),
        sa.Column("used_memory_mib", sa.Integer(), nullable=False),
        sa.Column("live_tasks", sa.Integer(), nullable=False),
        sa.Column("occupant_project_id", exact_string(64), nullable=True),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("bootstrap_hash", exact_string(64), nullable=True),
        sa.Column("bootstrap_expires_at", UtcDateTime(), nullable=True),
        sa.Column("secret_hash", exact_string(64), nullable=True),
        sa.Column("instance", exact_string(255), nullable=True),
        sa.Column("last_renewal_at", UtcDateTime(), nullable=True),
        sa.Column("last_seen_at", UtcDateTime(), nullable=True),
        sa.Column("lease_s", sa.Integer(), nullable=True),
        sa.Column("idle_since", UtcDateTime(), nullable=True),
        sa.Column("drain_deadline_at", UtcDateTime(), nullable=True),
        sa.Column("build_attempts", sa.Integer(), nullable=False),
        sa.Column("intent_at", UtcDateTime(), nullable=True),
        sa.Column("capabilities", Json(), nullable=False),
        sa.CheckConstraint("live_tasks >= 0", name=op.f("ck_nodes_live_tasks")),
        sa.CheckConstraint(
            "used_memory_mib >= 0 AND used_memory_mib <= memory_mib",
            name=op.f("ck_nodes_used_memory"),
        ),
        sa.CheckConstraint(
            "used_vcpus >= 0 AND used_vcpus <= vcpus", name=op.f("ck_nodes_used_vcpus")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_nodes")),
        sa.UniqueConstraint("secret_hash", name=op.f("uq_nodes_secret_hash")),
    )
    op.create_index(op.f("ix_nodes_bootstrap_hash"), "nodes", ["bootstrap_hash"], unique=False)
    op.create_index(op.f("ix_nodes_pool_id_status"), "nodes", ["pool_id", "status"], unique=False)
    op.create_index(
        op.f("ix_nodes_project_id_created_at_id"),
        "nodes",
        ["project_id", "created_at", "id"],
        unique=False,
    )
    op.create_index(op.f("ix_nodes_status"), "nodes", ["status"], unique=False)

    op.create_table(
        "pools",
        sa.Column("id", exact_string(64), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("project_id", exact_string(64), nullable=False),
        sa.Column("name", exact_string(255), nullable=False),
        sa.Column("flavor_id", exact_string(64), nullable=False),
        sa.Column("min_nodes", sa.Integer(), nullable=False),
        sa.Column("max_nodes", sa.Integer(), nullable=False),
        sa.Column("target_nodes", sa.Integer(), nullable=False),
        sa.Column("wanted_nodes", sa.Integer(), nullable=True),
        sa.Column("autoscale", sa.Boolean(), nullable=False),
        sa.Column("idle_timeout_s", sa.Integer(), nullable=False),
        sa.Column("on_shortage", exact_string(255), nullable=False),
        sa.Column("image", exact_string(255), nullable=True),
        sa.Column("networks", JsonTuple(), nullable=False),
        sa.Column("key_name", exact_string(255), nullable=True),
        sa.Column("engine", exact_string(32), nullable=False),
        sa.Column("engine_options", Json(), nullable=False),
        sa.Column("shared_with", JsonTuple(), nullable=False),
        sa.Column("isolation", exact_string(255), nullable=False),
        sa.Column("reservation", exact_string(255), nullable=True),
        sa.Column("status", exact_string(32), nullable=False),
        sa.Column("fault", Json(), nullable=True),
        sa.Column("waiting", Json(), nullable=True),
        sa.Column("credential_status", exact_string(255), nullable=True),
        sa.Column("name_key", exact_string(340), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pools")),
        sa.UniqueConstraint("name_key", name=op.f("uq_pools_name_key")),
    )
    op.create_index(
        op.f("ix_pools_project_id_created_at_id"),
        "pools",
        ["project_id", "created_at", "id"],
        unique=False,
    )
    op.create_index(op.f("ix_pools_status"), "pools", ["status"], unique=False)

    op.create_table(
        "port_leases",
        sa.Column("address", exact_string(64), nullable=False),
        sa.Column("port", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt_id", exact_string(64), nullable=False),
        sa.PrimaryKeyConstraint("address", "port", name=op.f("pk_port_leases")),
    )
    op.create_index(op.f("ix_port_leases_attempt_id"), "port_leases", ["attempt_id"], unique=False)

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

    op.create_table(
        "quota_limits",
        sa.Column("project_id", exact_string(64), nullable=False),
        sa.Column("name", exact_string(128), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "name", name=op.f("pk_quota_limits")),
    )
    op.create_table(
        "quota_usage",
        sa.Column("project_id", exact_string(64), nullable=False),
        sa.Column("name", exact_string(128), nullable=False),
        sa.Column("in_use", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("in_use >= 0", name=op.f("ck_quota_usage_in_use")),
        sa.PrimaryKeyConstraint("project_id", "name", name=op.f("pk_quota_usage")),
    )
    op.create_table(
        "scheduler_shards",
        sa.Column("shard", exact_string(64), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("leader", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("shard", name=op.f("pk_scheduler_shards")),
    )
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

    op.create_table(
        "work_leases",
        sa.Column("kind", exact_string(32), nullable=False),
        sa.Column("ident", exact_string(64), nullable=False),
        sa.Column("owner", exact_string(255), nullable=False),
        sa.Column("token", exact_string(64), nullable=False),
        sa.Column("expires_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "ident", name=op.f("pk_work_leases")),
    )


def downgrade() -> None:
    """Take back."""
    op.drop_table("work_leases")

    op.drop_table("tasks")
    op.drop_table("services")
    op.drop_table("scheduler_shards")
    op.drop_table("quota_usage")
    op.drop_table("quota_limits")

    op.drop_table("queues")

    op.drop_table("port_leases")

    op.drop_table("pools")

    op.drop_table("nodes")

    op.drop_table("jobs")

    op.drop_table("job_labels")

    op.drop_table("job_elements")

    op.drop_table("idempotency_keys")
    op.drop_table("hosts")
    op.drop_table("gpu_types")
    op.drop_table("flavors")
    op.drop_table("explanations")

    op.drop_table("events")

    op.drop_table("devices")
    op.drop_table("checkpoints")

    op.drop_table("attempts")

    op.drop_table("artifacts")

    op.drop_table("allocations")
