# SPDX-License-Identifier: Apache-2.0
"""What there is: GPU types, hosts and their devices, flavors, pools and their nodes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from gpuservice.db.types import Json, JsonTuple, UtcDateTime, exact_string

#: The tables of this module, in the order in which they are made.
TABLES = (
    "gpu_types",
    "hosts",
    "devices",
    "flavors",
    "pools",
    "nodes",
)


def create() -> None:
    """Make the tables and their indexes."""
    _gpu_types()
    _hosts()
    _devices()
    _flavors()
    _pools()
    _nodes()
    _indexes_of_nodes()


def _gpu_types() -> None:
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


def _hosts() -> None:
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


def _devices() -> None:
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


def _flavors() -> None:
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


def _pools() -> None:
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


def _nodes() -> None:
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


def _indexes_of_nodes() -> None:
    op.create_index(op.f("ix_nodes_bootstrap_hash"), "nodes", ["bootstrap_hash"], unique=False)
    op.create_index(op.f("ix_nodes_pool_id_status"), "nodes", ["pool_id", "status"], unique=False)
    op.create_index(
        op.f("ix_nodes_project_id_created_at_id"),
        "nodes",
        ["project_id", "created_at", "id"],
        unique=False,
    )
    op.create_index(op.f("ix_nodes_status"), "nodes", ["status"], unique=False)
