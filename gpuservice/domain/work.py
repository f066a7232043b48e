# SPDX-License-Identifier: Apache-2.0
"""Queues, jobs, array elements, attempts, tasks and what they hold, as rows of the truth."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from gpuservice.domain.inventory import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Cohort(Row):
    """Queues that use each other's idle GPUs. ``projects``: whose queues may be in it (or ``*``);
    the operator's cloud-wide ones may be in any."""

    name: str
    projects: tuple[str, ...] = ("*",)

    def takes(self, project_id: str | None) -> bool:
        """Whether a queue of ``project_id`` (None: a cloud-wide one) may be in it."""
        return project_id is None or "*" in self.projects or project_id in self.projects


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue(Row):
    """Where jobs wait. ``project_id`` null: the operator's, open to ``projects`` (or ``*``).

    ``cohort`` is the name of one; ``nominal``, ``borrowing_limit`` and ``lending_limit`` are GPUs
    by type (absent: no bound).
    """

    project_id: str | None
    name: str
    projects: tuple[str, ...] = ()
    pool_ids: tuple[str, ...] = ()
    status: str = "open"
    weight: int = 1
    cohort: str | None = None
    nominal: dict[str, int] = field(default_factory=dict)
    borrowing_limit: dict[str, int] = field(default_factory=dict)
    lending_limit: dict[str, int] = field(default_factory=dict)
    preemption: str = "none"
    max_priority: int = 500
    kinds: dict[str, Any] = field(default_factory=dict)
    placement: str = "pack"
    name_key: str | None = None  # project/name, carries uniqueness (null project: "*/name")

    @property
    def counted_types(self) -> frozenset[str]:
        """The GPU types of which it says how many are its own, lent or borrowed."""
        return frozenset({*self.nominal, *self.borrowing_limit, *self.lending_limit})

    def open_to(self, project_id: str) -> bool:
        """Whether jobs of ``project_id`` may be put here."""
        if self.project_id == project_id:
            return True
        return "*" in self.projects or project_id in self.projects


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Row):
    """A job: one row, also for an array of ten thousand.

    ``spec`` is the normalised request (the body of the API, every default filled in).
    ``waiting_elements`` and ``live_elements`` count elements that wait or run (a job without an
    array has one element, 0); both, and the ``*_elements`` of ended ones, change by relative
    updates. ``next_index`` is the first array element that never started.

    ``due_at``: from when on it is promised a start; ``promised_since``, ``promised_start_at``: when
    it first got a promise, and of which start; ``claimed``: something is being preempted for it;
    ``preempted_count``: how often it lost its place (of an array: its elements together).
    """

    project_id: str
    user_id: str
    name: str
    queue_id: str
    kind: str
    status: str
    status_reason: str | None = None
    priority: int
    spec: dict[str, Any]
    labels: dict[str, str] = field(default_factory=dict)
    preemptible: bool = True
    max_runtime_s: int | None = None
    deadline_at: datetime | None = None
    on_hold: bool = False
    array_size: int | None = None
    array_max_running: int | None = None
    array_max_failures: int | None = None
    next_index: int = 0
    waiting_elements: int = 1
    live_elements: int = 0
    succeeded_elements: int = 0
    failed_elements: int = 0
    cancelled_elements: int = 0
    timed_out_elements: int = 0
    attempt: int = 0
    not_before: datetime | None = None
    queued_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    failure_class: str | None = None
    exit_code: int | None = None
    evidence: dict[str, Any] | None = None
    waiting_code: str | None = None
    waiting_summary: str | None = None
    waiting_position: int | None = None
    waiting_estimated_start_at: datetime | None = None
    delete_requested: bool = False
    preempted_count: int = 0
    promised_since: datetime | None = None
    promised_start_at: datetime | None = None
    due_at: datetime | None = None
    claimed: bool = False

    @property
    def is_array(self) -> bool:
        """Whether the job has elements of its own rows."""
        return self.array_size is not None

    @property
    def elements(self) -> int:
        """How many elements the job has in all."""
        return 1 if self.array_size is None else self.array_size


@dataclass(frozen=True, slots=True, kw_only=True)
class JobElement:
    """One array element that has started, ended, or waits for another attempt."""

    job_id: str
    index: int
    project_id: str
    status: str
    status_reason: str | None = None
    attempt: int = 0
    not_before: datetime | None = None
    queued_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    failure_class: str | None = None
    exit_code: int | None = None
    preempted_count: int = 0
    version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try of one element. ``live`` is 1 until it ended, then null: at most one is live.

    ``attention`` is set whenever a report or a request changed something that the conductor
    must look at; ``due_at`` is the next moment at which time alone changes something (start
    time-out, time limit, end of grace).
    """

    id: str
    job_id: str
    index: int
    number: int
    project_id: str
    queue_id: str
    pool_id: str
    status: str
    outcome: str | None = None
    live: int | None = 1
    attention: bool = False
    due_at: datetime | None = None
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    stop_reason: str | None = None
    stop_requested_at: datetime | None = None
    failure_class: str | None = None
    evidence: dict[str, Any] | None = None
    exit_code: int | None = None
    tasks_count: int
    gang_secret: str = field(repr=False)
    master_address: str | None = None
    master_port: int | None = None
    promised_end_at: datetime | None = None
    preempted_for: str | None = None  # the job that it has to make room for
    version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One rank of an attempt on one node.

    ``action`` is what the node is told (``run`` or ``stop``); ``status`` what it last said.
    ``counted_gpus`` are the milli-GPUs that count against the job's project (0 on its own pool).
    Times ``claimed_*`` are the agent's own; ``gone_at`` is the server's. ``stopped``: it
    ended after it was told to.
    """

    id: str
    attempt_id: str
    job_id: str
    index: int
    attempt: int
    rank: int
    project_id: str
    node_id: str
    node_epoch: int
    status: str
    action: str = "run"
    gpu_milli: int = 0
    counted_gpus: dict[str, int] = field(default_factory=dict)
    vcpus: int = 0
    memory_mib: int = 0
    address: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    oom: bool = False
    timed_out: bool = False
    stopped: bool = False
    failure_class: str | None = None
    failure_evidence: str | None = None
    created_at: datetime
    claimed_started_at: datetime | None = None
    claimed_ended_at: datetime | None = None
    gone_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """A share of one device held by one task. ``released_at`` null while held.

    Kept when its job is deleted, since it is the account: so queue and user stand here too.
    """

    id: str
    task_id: str
    device_id: str
    node_id: str
    job_id: str
    project_id: str
    milli: int
    allocated_at: datetime
    released_at: datetime | None = None
    queue_id: str | None = None
    user_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What happened, why, on whose account. ``seq`` is given by the database."""

    id: str
    at: datetime
    project_id: str | None
    actor: str
    action: str
    target_type: str
    target_id: str
    outcome: str = "success"
    reason: str | None = None
    request_id: str | None = None
    global_request_id: str | None = None
    detail: dict[str, Any] = field(default_factory=dict)
    seq: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The newest explanation of a waiting job: the body of ``explain`` plus its digest."""

    job_id: str
    digest: str
    body: dict[str, Any]
    evaluated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One kept result file. Hidden until ``published`` (when its attempt ended)."""

    id: str
    job_id: str
    attempt_id: str
    task_id: str
    index: int
    attempt: int
    rank: int
    project_id: str
    path: str
    size: int
    sha256: str
    object_key: str
    published: bool = False
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSet:
    """A completed set of checkpoint files of one rank. Only complete sets are restored."""

    id: str
    job_id: str
    index: int
    attempt: int
    rank: int
    seq: int
    project_id: str
    files: tuple[dict[str, Any], ...]
    object_prefix: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaState:
    """One limit with what is used of it, both in the unit of the name (GPUs: milli)."""

    project_id: str
    name: str
    limit: int
    in_use: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyRecord:
    """The first answer to a creating request; ``status`` null while it still runs."""

    project_id: str
    user_id: str
    path: str
    key: str
    digest: str
    status: int | None
    body: dict[str, Any] | None
    headers: dict[str, str] = field(default_factory=dict)
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRecord:
    """One of the service's own processes. ``seen_at`` is its last heartbeat; ``ended_at``: when it
    was stopped in good order (the row stays a while, as the proof that somebody could be heard)."""

    id: str
    binary: str
    host: str
    status: str = "enabled"
    seen_at: datetime
    started_at: datetime
    ended_at: datetime | None = None
    version: str
