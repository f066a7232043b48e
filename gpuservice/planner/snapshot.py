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
    """One queue with its candidate pools and its place in the sharing.

    ``nominal``, ``borrowing_limit`` and ``lending_limit`` are milli-GPUs by GPU type (absent: no
    bound); queues of one ``cohort`` use each other's idle nominal. ``preemption``: none,
    lower_priority, reclaim or both. ``spread``: put tasks on the emptiest nodes.
    """

    id: str
    pool_ids: tuple[str, ...]
    open: bool = True
    weight: float = 1.0
    cohort: str | None = None
    nominal: Mapping[str, int] = field(default_factory=dict)
    borrowing_limit: Mapping[str, int] = field(default_factory=dict)
    lending_limit: Mapping[str, int] = field(default_factory=dict)
    preemption: str = "none"
    spread: bool = False
    default_runtime_s: int | None = None


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes that only jobs of one queue (or of one project) may use from start to end."""

    id: str
    node_ids: tuple[str, ...]
    starts_at: float
    ends_at: float
    queue_id: str | None = None
    project_id: str | None = None


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
class TaskPlacement:
    """One rank on one node, with its shares of devices."""

    rank: int
    node_id: str
    devices: Shares
    vcpus: int = 0
    memory_mib: int = 0


@dataclass(frozen=True, slots=True)
class Promise:
    """A waiting job's start that lower jobs must not delay."""

    job_id: str
    start: float
    end: float
    project_id: str
    tasks: tuple[TaskPlacement, ...]


@dataclass(frozen=True, slots=True)
class PendingJob:
    """A job with ``elements`` waiting (arrays: that may start now).

    ``blocked`` is the reason code that keeps it from being tried at all, with ``facts``. ``due``:
    from when on it is promised a start (None: the plan says it, see ``Plan.due``). ``promised``:
    when it first got a promise, which ranks it before all without, and ``promise`` the last one
    that it was told: it starts there, or sooner; ``claimed``: something is being preempted for
    it. ``preempted``: how often it lost its place already. ``deadline``: the latest end that is of
    use.
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
    kind: str = "training"
    preemptible: bool = False
    deadline: float | None = None
    due: float | None = None
    promised: float | None = None
    claimed: bool = False
    preempted: int = 0
    promise: Promise | None = None


@dataclass(frozen=True, slots=True)
class RunningGang:
    """A live attempt. ``promised_end`` is None when it has no limit.

    ``gang_id`` names the attempt (an array has several); ``preempting``: it was told to go and
    ends within its grace. ``protected_s``: how long it may not be preempted after its start.
    """

    job_id: str
    project_id: str
    tasks: tuple[TaskPlacement, ...]
    promised_end: float | None
    gang_id: str = ""
    queue_id: str = ""
    user_id: str = ""
    priority: int = 0
    started_at: float = 0.0
    preemptible: bool = False
    preempting: bool = False
    preempted: int = 0
    protected_s: float = 0.0
    request: Request | None = None
    max_runtime_s: int | None = None


#: (queue, project, user)
UsageKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a plan depends on. ``headroom``: (project, quota name) -> what is left of a
    limited quota (GPUs in milli); unlimited names are absent.

    ``usage``: decayed milli-GPU-seconds that (queue, project, user) had, what runs included up to
    now (half-life ``Policy.usage_half_life_s``). ``limit_ratio``: how long ended jobs ran, summed,
    over the sum of their limits: 1 where limits are true.
    """

    now: float
    nodes: tuple[NodeState, ...]
    pools: tuple[PoolState, ...]
    queues: tuple[QueueState, ...]
    pending: tuple[PendingJob, ...]
    running: tuple[RunningGang, ...] = ()
    headroom: Mapping[tuple[str, str], int] = field(default_factory=dict)
    usage: Mapping[UsageKey, float] = field(default_factory=dict)
    reservations: tuple[Reservation, ...] = ()
    limit_ratio: float = 1.0


@dataclass(frozen=True, slots=True)
class DueTimes:
    """How long a waiting job waits before it is promised a start. Work is limit x GPUs over all
    GPUs, times ``Snapshot.limit_ratio``: the time that the whole cluster needs for it.

    A gang (more GPUs than the largest node has):
    ``S x (gang_least + gang_backlog x P**2 + gang_alike x A**3) + gang_limit x its own limit``.
    S is the waiting work of jobs no larger than itself when it came and P its share of all GPUs. A
    says how alike limits are, 0..1: the short ones of what waits over the long ones of what waits
    and runs. Any other job:
    ``small_backlog x W x W / (W + calm x R) + small_running x R``, W the work that waits now and R
    what is left of the work that runs.
    """

    gang_least: float = 0.1
    gang_backlog: float = 1.5
    gang_alike: float = 8.0
    gang_limit: float = 0.0
    small_backlog: float = 3.0
    small_running: float = 0.5
    calm: float = 0.6


@dataclass(frozen=True, slots=True)
class Weights:
    """The weighted sum of ``order = multifactor`` (Slurm's priority/multifactor): each factor is
    0..1; ``age_max_s`` is the age that counts as 1."""

    age: float = 1000.0
    fairshare: float = 1000.0
    size: float = 100.0
    priority: float = 10000.0
    age_max_s: float = 7 * 86400.0


@dataclass(frozen=True, slots=True)
class Policy:
    """How to plan.

    ``order``: fair, fifo or multifactor. ``backfill``: whether anything may pass a job that does
    not fit (False: strict, its head blocks). ``promises``: how many waiting gangs get a promised
    start that backfill must respect (1: EASY, -1: all, 0: none), ``small_promises`` how many other
    jobs do when ``due`` is given (without it the first jobs of the line get promises whatever
    their size, at once). ``backfill_order``: line, short_first or area_slowdown.

    ``preempt``: of priority, reclaim, due_gangs, short_jobs. ``protected_s``: the least run time
    before preemption; ``max_preemptions`` bounds how often one job loses its place; ``lost_s`` is
    what a preemption is reckoned to cost a victim. ``defragment``: move preemptible jobs when that
    starts a waiting gang.

    ``explain``: whether to explain what waits; ``counterfactuals``/``estimates``: for how many
    waiting shapes/jobs. ``focus``: explain this job alone, with changes and estimate whatever
    those numbers are (a dry run).
    """

    order: str = "fair"
    backfill: bool = True
    promises: int = 8
    small_promises: int = 1
    due: DueTimes | None = DueTimes()
    backfill_order: str = "area_slowdown"
    preempt: frozenset[str] = frozenset({"priority", "reclaim"})
    protected_s: float = 1800.0
    max_preemptions: int = 5
    lost_s: float = 600.0
    defragment: bool = False
    usage_half_life_s: float = 7 * 86400.0
    weights: Weights = Weights()
    explain: bool = True
    counterfactuals: int = 5
    estimates: int = 20
    focus: str | None = None
