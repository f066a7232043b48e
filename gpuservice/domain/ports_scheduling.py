# SPDX-License-Identifier: Apache-2.0
"""What the scheduler reads of the store: light rows of waiting jobs and live tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job with waiting elements (``id`` to ``version`` as in ``domain.work.Job``)."""

    id: str
    project_id: str
    user_id: str
    queue_id: str
    kind: str
    status: str
    priority: int
    preemptible: bool
    max_runtime_s: int | None
    deadline_at: datetime | None
    on_hold: bool
    array_size: int | None
    array_max_running: int | None
    waiting_elements: int
    live_elements: int
    not_before: datetime | None
    queued_at: datetime
    created_at: datetime
    version: int
    preempted_count: int
    due_at: datetime | None
    promised_since: datetime | None
    claimed: bool


@dataclass(frozen=True, slots=True)
class LiveTask:
    """A task that holds something; ``shares`` are (device id, milli)."""

    id: str
    attempt_id: str
    job_id: str
    project_id: str
    queue_id: str
    node_id: str
    rank: int
    vcpus: int
    memory_mib: int
    counted_gpus: dict[str, int]
    promised_end_at: datetime | None
    started_at: datetime
    shares: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class LiveGang:
    """A live attempt. ``preempted_count`` is its element's (or its job's, without an array)."""

    attempt_id: str
    job_id: str
    project_id: str
    queue_id: str
    user_id: str
    status: str
    priority: int
    preemptible: bool
    max_runtime_s: int | None
    created_at: datetime
    started_at: datetime | None
    promised_end_at: datetime | None
    stop_requested_at: datetime | None
    preempted_for: str | None
    preempted_count: int


@dataclass(frozen=True, slots=True)
class NodeUse:
    """What tasks take of a node, and of its devices: (milli, occupant) by device."""

    node_id: str
    epoch: int
    used_vcpus: int
    used_memory_mib: int
    live_tasks: int
    occupant: str | None
    devices: dict[str, tuple[int, str | None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Marks:
    """What tells whether rows that a reader keeps are still as they were: equal marks, equal rows.

    ``nodes``: (version, revision): what only tasks changed has another revision alone. ``gangs``:
    (version of the attempt, of its job, number of tasks left).

    ``ground``: of pools, flavors, GPU types, hosts, queues and devices, each table as a whole (what
    tasks take of a device, its node tells). ``nodes`` by id, ``gangs`` by live attempt and
    ``waiting`` (versions) by job with elements that wait, held ones too. ``quota``: (project,
    name) -> (own limit or None, in use), for every project known.
    """

    ground: dict[str, tuple[int, int, datetime | None]] = field(default_factory=dict)
    nodes: dict[str, tuple[int, int]] = field(default_factory=dict)
    gangs: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    quota: dict[tuple[str, str], tuple[int | None, int]] = field(default_factory=dict)


class SchedulingReads(Protocol):
    """Read models for the planner's snapshot; nothing of history is touched."""

    def marks(self) -> Marks:
        """What has to be read each time, in one statement."""

    def waiting(self, job_ids: Sequence[str] | None = None) -> list[WaitingJob]:
        """Those jobs, all or some of them, in order of submission."""

    def submitted(self, job_ids: Sequence[str]) -> list[tuple[WaitingJob, dict[str, Any]]]:
        """Those of the jobs that wait, in order of submission, with their specs."""

    def lock_waiting(self, job_ids: Sequence[str]) -> set[str]:
        """Which of the jobs have elements that wait; locks their rows, in order of id."""

    def use(self, node_ids: Sequence[str]) -> list[NodeUse]:
        """What is taken of nodes."""

    def specs(self, job_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The specs of jobs."""

    def live_gangs(self, attempt_ids: Sequence[str] | None = None) -> list[LiveGang]:
        """Every live attempt, or some of them."""

    def notes(self) -> dict[str, tuple[datetime | None, datetime | None]]:
        """(due, promised since) of the waiting jobs that have either: what is noted with a job
        does not change its version."""

    def most_preempted(self) -> dict[str, int]:
        """How often the waiting element of an array that was preempted the most was."""

    def live_tasks(self, attempt_ids: Sequence[str] | None = None) -> list[LiveTask]:
        """Every task that holds something, or those of some attempts."""

    def quota(self) -> dict[tuple[str, str], tuple[int | None, int]]:
        """The quota of the marks, alone."""
