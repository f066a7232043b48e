# SPDX-License-Identifier: Apache-2.0
"""Why a job waits: the stable codes of explanations."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """One code for each thing that can keep a job waiting."""

    EVALUATING = "evaluating"
    HELD = "held"
    DEPENDENCY = "dependency"
    RETRY_BACKOFF = "retry_backoff"
    ARRAY_LIMIT = "array_limit"
    QUEUE_CLOSED = "queue_closed"
    PROJECT_QUOTA = "project_quota"
    QUEUE_QUOTA = "queue_quota"
    BUDGET = "budget"
    INSUFFICIENT_GPUS = "insufficient_gpus"
    FRAGMENTED = "fragmented"
    TOPOLOGY = "topology"
    GPU_TYPE_UNAVAILABLE = "gpu_type_unavailable"
    GPU_MEMORY = "gpu_memory"
    HOST_RESOURCES = "host_resources"
    ISOLATION = "isolation"
    BEHIND_HIGHER_PRIORITY = "behind_higher_priority"
    BEHIND_PROMISE = "behind_promise"
    BEHIND_RESERVATION = "behind_reservation"
    BACKFILL_WOULD_DELAY = "backfill_would_delay"
    POOL_GROWING = "pool_growing"
    POOL_AT_MAX = "pool_at_max"
    NODE_UNAVAILABLE = "node_unavailable"
    ENGINE_UNAVAILABLE = "engine_unavailable"
    PREEMPTING_OTHERS = "preempting_others"
    DEADLINE_UNREACHABLE = "deadline_unreachable"
    IMPOSSIBLE = "impossible"
