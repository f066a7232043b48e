# SPDX-License-Identifier: Apache-2.0
"""The store as use cases see it: units of work and repositories, as Protocols.

``Store.write`` runs a unit of work in one transaction and re-runs it whole (five times at most,
with jitter) on deadlock, serialisation failure or a busy database; so a unit of work must have
no effect outside ``uow``. ``Store.read`` gives one consistent read-only view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol, TypeVar

from gpuservice.domain.inventory import Device, Flavor, GpuType, Host, Node, Pool
from gpuservice.domain.ports_quota import QuotaRepository
from gpuservice.domain.ports_scheduling import SchedulingReads
from gpuservice.domain.ports_usage import UsageRepository
from gpuservice.domain.simulations import Simulation
from gpuservice.domain.work import (
    Allocation,
    Artifact,
    Attempt,
    CheckpointSet,
    Cohort,
    Event,
    Explanation,
    IdempotencyRecord,
    Job,
    JobElement,
    Queue,
    ServiceRecord,
    Task,
)

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Where:
    """One condition of a query: ``op`` is eq, ne, in, notin, lt, le, gt, ge, null, notnull, or due
    (null or le)."""

    field: str
    op: str
    value: Any = None


@dataclass(frozen=True, slots=True)
class Delta:
    """In the values of a change: add this to the column instead of setting it."""

    amount: int


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a list: conditions, sort keys (``("created_at", "desc")``), marker id, size.

    The id is always the last sort key. ``labels`` holds label conditions (jobs only).
    """

    where: tuple[Where, ...] = ()
    sort: tuple[tuple[str, str], ...] = (("created_at", "asc"),)
    limit: int = 100
    marker: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


#: Whether rows that are read are locked until the unit of work ends: for a change of them, or
#: (``share``) only against being changed or removed by others, as what a new row refers to.
Lock = bool | Literal["share"]


class Repository(Protocol[T]):
    """What can be done with the rows of one noun. Ids are UUID strings."""

    def get(self, ident: str, *, lock: bool = False) -> T | None:
        """The row, or None; ``lock`` takes a row lock until the unit of work ends."""

    def get_many(
        self, idents: Iterable[str], *, lock: bool = False, skip_locked: bool = False
    ) -> list[T]:
        """The rows that exist, ordered by id (which is the lock order)."""

    def find(
        self,
        *where: Where,
        limit: int | None = None,
        lock: Lock = False,
        skip_locked: bool = False,
        order: Sequence[tuple[str, str]] = (),
    ) -> list[T]:
        """All rows that meet every condition."""

    def page(self, page: Page) -> list[T]:
        """One page; a vanished marker raises ``Invalid`` with pointer ``marker``."""

    def count(self, *where: Where, labels: Mapping[str, str] | None = None) -> int:
        """How many rows meet every condition."""

    def add(self, item: T) -> None:
        """Insert; a taken unique name raises ``NameTaken``."""

    def add_many(self, items: Sequence[T]) -> None:
        """Insert all in one statement."""

    def change(
        self, ident: str, values: Mapping[str, Any], *where: Where, edit: bool = False
    ) -> bool:
        """Update one row if it meets ``where``; bumps ``version``/``updated_at`` (and
        ``generation`` with ``edit``). A value may be a :class:`Delta`. False if no row
        matched."""

    def change_each(
        self,
        changes: Sequence[tuple[str, Mapping[str, Any]]],
        *where: Where,
        silent: bool = False,
        counted: bool = True,
    ) -> int:
        """Other values for each of many rows (all with the same keys, one executemany); values
        may be :class:`Delta`. How many rows matched in all.

        :param counted: if not, conditions cost no statement a row, and every row counts.
        :param silent: a note beside the row: ``version`` and ``updated_at`` stay.
        """

    def change_many(self, idents: Sequence[str], values: Mapping[str, Any], *where: Where) -> int:
        """The same values for many rows; how many rows matched."""

    def remove(self, ident: str, *where: Where) -> bool:
        """Delete one row if it meets ``where``."""

    def remove_where(self, *where: Where) -> int:
        """Delete every row that meets ``where`` (which must say something); how many."""


@dataclass(frozen=True, slots=True)
class Share:
    """``milli`` of one device wanted by a task."""

    device_id: str
    milli: int


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """What a task takes of a node besides devices."""

    node_id: str
    vcpus: int
    memory_mib: int
    tasks: int = 1


class DeviceRepository(Repository[Device], Protocol):
    """Devices, with guarded shares."""

    def take(self, shares: Sequence[Share], project_id: str) -> bool:
        """Take all shares in set-wise conditional updates (grouped by equal milli, devices by
        id), each device healthy, with room, and free of another project. False if any failed:
        the caller must then raise ``CommitConflict`` so that all is rolled back."""

    def give_back(self, shares: Sequence[Share]) -> None:
        """Return shares; clears the occupant where nothing is left."""

    def claim_for_node(self, node_id: str, device_ids: Sequence[str]) -> bool:
        """Give whole free devices to a node (``node_id`` null before). All or False."""

    def release_node(self, node_id: str) -> int:
        """Take a node's devices from it; how many."""


class NodeRepository(Repository[Node], Protocol):
    """Nodes, with guarded capacity and leases."""

    def take(self, loads: Sequence[NodeLoad], project_id: str, *, isolation_node: bool) -> bool:
        """Take CPU, memory and task counts of ready nodes, bump ``revision``; with
        ``isolation_node`` only where no other project is. All or False."""

    def give_back(self, loads: Sequence[NodeLoad]) -> None:
        """Return capacity; at 0 live tasks clears the occupant and sets ``idle_since``."""

    def epochs(self, node_ids: Sequence[str]) -> dict[str, int]:
        """The present epoch of nodes."""

    def bump_revision(self, node_ids: Sequence[str]) -> None:
        """Have their next sync send the task list again."""

    def by_secret(self, secret_hash: str) -> Node | None:
        """One indexed read: the node of an agent's bearer secret."""

    def renew(self, node_id: str, epoch: int, instance: str) -> bool:
        """Write lease renewal and last-seen now (database time)."""

    def fence(self, node_id: str, epoch: int, cutoff: datetime) -> bool:
        """Raise the epoch if the last renewal is before ``cutoff``."""


class EventRepository(Protocol):
    """The events, append-only."""

    def add(self, event: Event) -> None:
        """Append one."""

    def add_many(self, events: Sequence[Event]) -> None:
        """Append all in one statement."""

    def page(self, page: Page) -> list[Event]:
        """One page, by ``seq``."""

    def count(self, *where: Where, labels: Mapping[str, str] | None = None) -> int:
        """How many events meet every condition."""


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """How a task ended, as its node (or the service itself, for a lost node) says."""

    task_id: str
    exit_code: int | None = None
    signal: int | None = None
    oom: bool = False
    timed_out: bool = False
    stopped: bool = False
    failure_class: str | None = None
    failure_evidence: str | None = None
    claimed_started_at: datetime | None = None
    claimed_ended_at: datetime | None = None


class TaskRepository(Repository[Task], Protocol):
    """Tasks; their end frees what they hold in the same transaction."""

    def of_node(self, node_id: str) -> list[Task]:
        """All tasks of a node that are not gone (one indexed read)."""

    def of_attempts(self, attempt_ids: Sequence[str]) -> list[Task]:
        """Every task of these attempts, by attempt and rank."""

    def gone(self, ends: Sequence[TaskEnd], now: datetime) -> int:
        """Mark tasks gone (those that are not yet), release their allocations (device shares,
        node CPU/memory/task count, the project's counted GPUs), set ``attention`` on their
        attempts, bump their nodes' ``revision``: all set-wise. Locks attempts and tasks first
        (by whose state it is known what there is to free), then quota, devices and nodes. How
        many tasks went."""


class ElementRepository(Protocol):
    """Array elements, keyed by (job, index)."""

    def get(self, job_id: str, index: int, *, lock: bool = False) -> JobElement | None:
        """One element row, or None if it never started."""

    def of_job(
        self, job_id: str, *where: Where, limit: int | None = None, after: int | None = None
    ) -> list[JobElement]:
        """Element rows of a job by index."""

    def of_keys(self, keys: Sequence[tuple[str, int]]) -> list[JobElement]:
        """Element rows of many (job, index)."""

    def add_many(self, elements: Sequence[JobElement]) -> None:
        """Insert."""

    def change(self, job_id: str, index: int, values: Mapping[str, Any], *where: Where) -> bool:
        """Conditional update of one."""

    def change_where(self, job_id: str, values: Mapping[str, Any], *where: Where) -> int:
        """Conditional update of all of a job in one statement; how many."""

    def remove_of(self, job_id: str) -> None:
        """Delete all of a job."""

    def held(self) -> dict[str, int]:
        """How many elements of each job are suspended on their own."""

    def backing_off(self, now: datetime) -> dict[str, int]:
        """How many elements of each job wait for the end of a retry's backoff."""


class UnitOfWork(Protocol):
    """All repositories on one transaction. Further, special-purpose read models hang here too."""

    gpu_types: Repository[GpuType]
    hosts: Repository[Host]
    devices: DeviceRepository
    flavors: Repository[Flavor]
    pools: Repository[Pool]
    nodes: NodeRepository
    cohorts: Repository[Cohort]
    queues: Repository[Queue]
    jobs: Repository[Job]
    elements: ElementRepository
    attempts: Repository[Attempt]
    tasks: TaskRepository
    allocations: Repository[Allocation]
    artifacts: Repository[Artifact]
    checkpoints: Repository[CheckpointSet]
    services: Repository[ServiceRecord]
    simulations: Repository[Simulation]
    quotas: QuotaRepository
    events: EventRepository
    scheduling: SchedulingReads
    usage: UsageRepository

    def now(self) -> datetime:
        """The database's own time (aware UTC), read once per unit of work."""

    def explanation(self, job_id: str) -> Explanation | None:
        """The newest explanation of a job."""

    def explanation_digests(self, job_ids: Sequence[str]) -> dict[str, str]:
        """Digest by job: what need not be written again."""

    def save_explanations(self, items: Sequence[Explanation]) -> None:
        """Insert or replace."""

    def drop_explanations(self, job_ids: Sequence[str]) -> None:
        """Forget (the job started or ended)."""

    def lease_ports(self, ports: Sequence[int], wanted: Mapping[str, str]) -> dict[str, int]:
        """For each attempt (id -> address) the first of ``ports`` free at its address, leased
        until ``release_ports``; an attempt for which none is left is missing."""

    def release_ports(self, attempt_ids: Sequence[str]) -> None:
        """Free the ports of ended attempts."""

    def idempotency(
        self, project_id: str, user_id: str, path: str, key: str
    ) -> IdempotencyRecord | None:
        """The record of a key, or None."""

    def save_idempotency(self, record: IdempotencyRecord) -> bool:
        """Insert; False if the key exists."""

    def finish_idempotency(self, record: IdempotencyRecord) -> None:
        """Write the answer of a key inserted before in the same or an earlier transaction."""

    def purge_idempotency(self, before: datetime) -> int:
        """Forget keys older than ``before``."""

    def raise_epoch(self, shard: str, leader: str) -> int:
        """A new leader: raise and return the shard's epoch."""

    def check_epoch(self, shard: str, epoch: int) -> None:
        """First statement of each plan commit: conditional update; raises ``StaleEpoch``."""

    def claim(self, kind: str, ident: str, owner: str, seconds: float) -> str | None:
        """A lease on a piece of conductor work: a token, or None while another holds it."""

    def renew(self, kind: str, ident: str, token: str, seconds: float) -> bool:
        """Hold the lease for longer; whether it was still ours (nobody else took it)."""

    def holds(self, kind: str, ident: str, token: str) -> bool:
        """Whether the lease is still ours: the guard of what the work writes (locks the row)."""

    def unclaim(self, kind: str, ident: str, token: str) -> None:
        """Give the lease back."""


class Store(Protocol):
    """The database, as units of work."""

    def write(self, work: Callable[[UnitOfWork], R]) -> R:
        """Run in one transaction, re-run whole on a transient conflict, commit, return."""

    def read(self, work: Callable[[UnitOfWork], R]) -> R:
        """Run on a read-only view."""
