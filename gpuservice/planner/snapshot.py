# SPDX-License-Identifier: Apache-2.0
"""What the planner is told: frozen facts of one moment.

Times are seconds since the epoch, GPU amounts milli-GPUs, memory MiB. Ids are opaque strings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Topology levels, inner to outer.
LEVELS = ("link_group", "node", "link_domain", "rack", "zone")

Shares = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class DeviceState:
    """One GPU of a node. ``occupant``: the project whose tasks are on it, or None."""

    id: str
    gpu_type: str
    memory_mib: int
    used_milli: int = 0
    healthy: bool = True
    link_group: str | None = None
    occupant: str | None = None


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node. ``isolation_node``: one project at a time on it (``occupant``); ``unproved``: what
    its agent lacks for more, where its pool asks for more."""

    id: str
    pool_id: str
    vcpus: int
    memory_mib: int
    devices: tuple[DeviceState, ...]
    used_vcpus: int = 0
    used_memory_mib: int = 0
    live_tasks: int = 0
    ready: bool = True
    isolation_node: bool = False
    unproved: tuple[str, ...] = ()
    occupant: str | None = None
    link_domain: str | None = None
    rack: str | None = None
    zone: str | None = None


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """What a new node of a pool would be."""

    gpu_type: str
    gpu_count: int
    gpu_memory_mib: int
    vcpus: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class PoolState:
    """One pool. ``coming``: nodes that are being built."""

    id: str
    project_id: str
    max_nodes: int
    template: NodeTemplate
    autoscale: bool = False
    size: int = 0
    coming: int = 0
    isolation_node: bool = False


@dataclass(frozen=True, slots=True)
class QueueState:
    """One queue with its candidate pools."""

    id: str
    pool_ids: tuple[str, ...]
    open: bool = True


@dataclass(frozen=True, slots=True)
class Request:
    """What one gang wants: the shape. Equal requests are tried once.

    ``gpu_milli`` is per task: a multiple of 1000 (whole GPUs) or 1..999 (a share of one device);
    ``gpu_memory_mib`` instead asks for a share by memory.
    """

    count: int = 1
    min_count: int = 1
    gpu_milli: int = 1000
    gpu_memory_mib: int | None = None
    gpu_types: tuple[str, ...] = ()
    min_gpu_memory_mib: int = 0
    vcpus: int = 0
    memory_mib: int = 0
    within: str | None = None
    required: bool = False

    @property
    def whole(self) -> int:
        """Whole GPUs a task takes, 0 for shares and for none."""
        return self.gpu_milli // 1000 if self.gpu_memory_mib is None else 0

    @property
    def shared(self) -> bool:
        """Whether a task takes a share of one device."""
        return self.gpu_memory_mib is not None or 0 < self.gpu_milli < 1000


@dataclass(frozen=True, slots=True)
class PendingJob:
    """A job with ``elements`` waiting (arrays: that may start now).

    ``blocked`` is the reason code that keeps it from being tried at all, with ``facts``.
    """

    job_id: str
    project_id: str
    user_id: str
    queue_id: str
    request: Request
    priority: int
    queued_at: float
    sequence: int
    max_runtime_s: int | None = None
    elements: int = 1
    blocked: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskPlacement:
    """One rank on one node, with its shares of devices."""

    rank: int
    node_id: str
    devices: Shares
    vcpus: int = 0
    memory_mib: int = 0


@dataclass(frozen=True, slots=True)
class RunningGang:
    """A live attempt. ``promised_end`` is None when it has no limit."""

    job_id: str
    project_id: str
    tasks: tuple[TaskPlacement, ...]
    promised_end: float | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a plan depends on. ``headroom``: (project, quota name) -> what is left of a
    limited quota (GPUs in milli); unlimited names are absent."""

    now: float
    nodes: tuple[NodeState, ...]
    pools: tuple[PoolState, ...]
    queues: tuple[QueueState, ...]
    pending: tuple[PendingJob, ...]
    running: tuple[RunningGang, ...] = ()
    headroom: Mapping[tuple[str, str], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Policy:
    """How to plan.

    ``promises``: how many waiting jobs get a promised start that backfill must respect (1: EASY,
    -1: all). ``explain``: whether to explain what waits; ``counterfactuals``/``estimates``: for
    how many waiting shapes/jobs. ``focus``: explain this job alone, with changes and estimate
    whatever those numbers are (a dry run).
    """

    promises: int = 1
    explain: bool = True
    counterfactuals: int = 5
    estimates: int = 20
    focus: str | None = None
