# SPDX-License-Identifier: Apache-2.0
"""The tables. Capacity rules that code keeps by guarded updates stand here as constraints too."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    ForeignKeyConstraint,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from gpuservice.db.mapping import METADATA, Mapper, table_of
from gpuservice.db.types import Json, UtcDateTime, exact_string
from gpuservice.domain import inventory, simulations, work

GPU_TYPES = table_of(inventory.GpuType, "gpu_types", UniqueConstraint("name"))
HOSTS = table_of(inventory.Host, "hosts", UniqueConstraint("name"))
DEVICES = table_of(
    inventory.Device,
    "devices",
    UniqueConstraint("host_id", "address"),
    CheckConstraint("used_milli >= 0 AND used_milli <= 1000", name="used_milli"),
    Index(None, "node_id"),
    lengths={"address": 64, "link_group": 64, "health_source": 32},
)
FLAVORS = table_of(inventory.Flavor, "flavors", UniqueConstraint("name"))
POOLS = table_of(
    inventory.Pool,
    "pools",
    UniqueConstraint("name_key"),
    Index(None, "project_id", "created_at", "id"),
    Index(None, "status"),
    lengths={"name_key": 340, "image": 255},
)
NODES = table_of(
    inventory.Node,
    "nodes",
    UniqueConstraint("secret_hash"),
    CheckConstraint("used_vcpus >= 0 AND used_vcpus <= vcpus", name="used_vcpus"),
    CheckConstraint("used_memory_mib >= 0 AND used_memory_mib <= memory_mib", name="used_memory"),
    CheckConstraint("live_tasks >= 0", name="live_tasks"),
    Index(None, "pool_id", "status"),
    Index(None, "status"),
    Index(None, "bootstrap_hash"),
    Index(None, "project_id", "created_at", "id"),
    lengths={"address": 64},
)
COHORTS = table_of(work.Cohort, "cohorts", UniqueConstraint("name"))
QUEUES = table_of(
    work.Queue,
    "queues",
    UniqueConstraint("name_key"),
    ForeignKeyConstraint(["cohort"], ["cohorts.name"], name="fk_queues_cohort", onupdate="CASCADE"),
    Index(None, "cohort"),
    Index(None, "project_id", "created_at", "id"),
    lengths={"name_key": 340},
)
#: ``open`` is 1 until the job ended, then null: the marker by which scans of live jobs never
#: touch history (partial indexes do not exist everywhere).
JOBS = table_of(
    work.Job,
    "jobs",
    Column("open", Integer, nullable=True),
    CheckConstraint("waiting_elements >= 0 AND live_elements >= 0", name="elements"),
    Index(None, "project_id", "created_at", "id"),
    Index(None, "created_at", "id"),
    Index("ix_jobs_name", "project_id", "name"),
    Index("ix_jobs_status", "project_id", "status", "created_at", "id"),
    Index("ix_jobs_open", "open", "waiting_elements"),
    Index("ix_jobs_deadline", "open", "deadline_at"),
    Index("ix_jobs_queue", "queue_id", "open"),
    lengths={"waiting_summary": 4096, "status_reason": 255},
)
JOB_LABELS = Table(
    "job_labels",
    METADATA,
    Column("job_id", exact_string(64), primary_key=True),
    Column("label", exact_string(255), primary_key=True),
    Column("value", exact_string(255), nullable=False),
    Index("ix_job_labels_value", "label", "value"),
)
ELEMENTS = table_of(
    work.JobElement,
    "job_elements",
    Index("ix_job_elements_status", "status", "job_id"),
    key=("job_id", "index"),
)
ATTEMPTS = table_of(
    work.Attempt,
    "attempts",
    UniqueConstraint("job_id", "index", "live", name="uq_attempts_live"),
    UniqueConstraint("job_id", "index", "number", name="uq_attempts_number"),
    Index("ix_attempts_attention", "live", "attention"),
    Index("ix_attempts_due", "live", "due_at"),
    Index("ix_attempts_ended", "ended_at", "id"),
    lengths={"master_address": 64, "preempted_for": 64},
)
TASKS = table_of(
    work.Task,
    "tasks",
    UniqueConstraint("attempt_id", "rank", name="uq_tasks_rank"),
    Index("ix_tasks_node", "node_id", "status"),
    lengths={"address": 64, "failure_evidence": 4096},
)
ALLOCATIONS = table_of(
    work.Allocation,
    "allocations",
    Column("held", Integer, nullable=True),
    Index("ix_allocations_task", "task_id"),
    Index("ix_allocations_held", "held", "device_id"),
    Index("ix_allocations_released", "released_at", "id"),
)
EVENTS = table_of(
    work.Event,
    "events",
    UniqueConstraint("id", name="uq_events_id"),
    Index("ix_events_project", "project_id", "seq"),
    Index("ix_events_target", "target_id", "seq"),
    auto="seq",
)
EXPLANATIONS = table_of(work.Explanation, "explanations", key=("job_id",))
ARTIFACTS = table_of(
    work.Artifact,
    "artifacts",
    UniqueConstraint("task_id", "path", name="uq_artifacts_path"),
    Index("ix_artifacts_job", "job_id", "index", "attempt", "rank", "path"),
    Index("ix_artifacts_attempt", "attempt_id"),
    lengths={"path": 512, "object_key": 1000},
    big=("size",),
)
CHECKPOINTS = table_of(
    work.CheckpointSet,
    "checkpoints",
    UniqueConstraint("job_id", "index", "attempt", "rank", "seq", name="uq_checkpoints_seq"),
    big=("seq",),
)
SERVICES = table_of(work.ServiceRecord, "services")
SIMULATIONS = table_of(
    simulations.Simulation,
    "simulations",
    Index(None, "status", "created_at", "id"),
    Index(None, "created_at", "id"),
    lengths={"status_reason": 4096},
)

QUOTA_LIMITS = Table(
    "quota_limits",
    METADATA,
    Column("project_id", exact_string(64), primary_key=True),
    Column("name", exact_string(128), primary_key=True),
    Column("value", BigInteger, nullable=False),
)
QUOTA_USAGE = Table(
    "quota_usage",
    METADATA,
    Column("project_id", exact_string(64), primary_key=True),
    Column("name", exact_string(128), primary_key=True),
    Column("in_use", BigInteger, nullable=False),
    CheckConstraint("in_use >= 0", name="in_use"),
)
PORT_LEASES = Table(
    "port_leases",
    METADATA,
    Column("address", exact_string(64), primary_key=True),
    Column("port", Integer, primary_key=True, autoincrement=False),
    Column("attempt_id", exact_string(64), nullable=False, index=True),
)
IDEMPOTENCY = Table(
    "idempotency_keys",
    METADATA,
    Column("scope", exact_string(64), primary_key=True),
    Column("project_id", exact_string(64), nullable=False),
    Column("user_id", exact_string(64), nullable=False),
    Column("path", exact_string(255), nullable=False),
    Column("key", exact_string(255), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("status", Integer, nullable=True),
    Column("body", Json, nullable=True),
    Column("headers", Json, nullable=False),
    Column("created_at", UtcDateTime, nullable=False, index=True),
)
SCHEDULER_SHARDS = Table(
    "scheduler_shards",
    METADATA,
    Column("shard", exact_string(64), primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("leader", Text, nullable=False),
)
#: What the leading scheduler reckons from what has ended: decayed sums as of a moment, and how far
#: it has come.
USAGE_DECAYED = Table(
    "usage_decayed",
    METADATA,
    Column("queue_id", exact_string(64), primary_key=True),
    Column("project_id", exact_string(64), primary_key=True),
    Column("user_id", exact_string(64), primary_key=True),
    Column("milli_gpu_seconds", Double, nullable=False),
    Column("as_of", UtcDateTime, nullable=False),
)
LIMIT_HISTORY = Table(
    "limit_history",
    METADATA,
    Column("queue_id", exact_string(64), primary_key=True),
    Column("user_id", exact_string(64), primary_key=True),
    Column("kind", exact_string(32), primary_key=True),
    Column("runs", Double, nullable=False),
    Column("run_s", Double, nullable=False),
    Column("limit_s", Double, nullable=False),
    Column("as_of", UtcDateTime, nullable=False),
)
USAGE_MARKS = Table(
    "usage_marks",
    METADATA,
    Column("name", exact_string(32), primary_key=True),
    Column("ended_at", UtcDateTime, nullable=False),
    Column("ident", exact_string(64), nullable=False),
)
WORK_LEASES = Table(
    "work_leases",
    METADATA,
    Column("kind", exact_string(32), primary_key=True),
    Column("ident", exact_string(64), primary_key=True),
    Column("owner", exact_string(255), nullable=False),
    Column("token", exact_string(64), nullable=False),
    Column("expires_at", UtcDateTime, nullable=False),
)

GPU_TYPE_ROWS = Mapper(inventory.GpuType, GPU_TYPES)
HOST_ROWS = Mapper(inventory.Host, HOSTS)
DEVICE_ROWS = Mapper(inventory.Device, DEVICES)
FLAVOR_ROWS = Mapper(inventory.Flavor, FLAVORS)
POOL_ROWS = Mapper(inventory.Pool, POOLS)
NODE_ROWS = Mapper(inventory.Node, NODES)
COHORT_ROWS = Mapper(work.Cohort, COHORTS)
QUEUE_ROWS = Mapper(work.Queue, QUEUES)
JOB_ROWS = Mapper(work.Job, JOBS)
ELEMENT_ROWS = Mapper(work.JobElement, ELEMENTS)
ATTEMPT_ROWS = Mapper(work.Attempt, ATTEMPTS)
TASK_ROWS = Mapper(work.Task, TASKS)
ALLOCATION_ROWS = Mapper(work.Allocation, ALLOCATIONS)
EVENT_ROWS = Mapper(work.Event, EVENTS)
EXPLANATION_ROWS = Mapper(work.Explanation, EXPLANATIONS)
ARTIFACT_ROWS = Mapper(work.Artifact, ARTIFACTS)
CHECKPOINT_ROWS = Mapper(work.CheckpointSet, CHECKPOINTS)
SERVICE_ROWS = Mapper(work.ServiceRecord, SERVICES)
SIMULATION_ROWS = Mapper(simulations.Simulation, SIMULATIONS)
