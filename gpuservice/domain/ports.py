# SPDX-License-Identifier: Apache-2.0
"""What the use cases need of the world besides the store: clock, ids, hints, drivers, planning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, BinaryIO, Protocol, runtime_checkable

from gpuservice.domain.inventory import Flavor
from gpuservice.domain.ports_store import UnitOfWork
from gpuservice.domain.work import Attempt, Job, Task


class Clock(Protocol):
    """Where the time comes from."""

    def now(self) -> datetime:
        """Aware UTC."""

    def monotonic(self) -> float:
        """Seconds that never go back."""


class Ids(Protocol):
    """Where identifiers and secrets come from."""

    def new(self) -> str:
        """A fresh UUID."""

    def secret(self) -> str:
        """256 fresh random bits, hex."""


@dataclass(frozen=True, slots=True)
class Hint:
    """A wake-up: ``kind`` is jobs, nodes, pools, attempts, logs or simulations. Never carries the
    truth."""

    kind: str
    ids: tuple[str, ...] = ()


class Hints(Protocol):
    """Sends and receives wake-ups. Losing all of them costs latency only."""

    def send(self, hint: Hint) -> None:
        """Tell every process, best effort, never raises, never blocks for long."""

    def subscribe(
        self, kinds: Iterable[str], listener: Callable[[Hint], None]
    ) -> Callable[[], None]:
        """Call ``listener`` (quick, thread-safe) for each hint; returns the unsubscriber."""


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Bytes of a stream: they start at ``offset``; ``end`` when closed and nothing follows."""

    data: bytes
    offset: int
    next_offset: int
    end: bool


class LogStore(Protocol):
    """Keeps task logs. ``key`` is ``{job_id}/{attempt_id}/{task_id}/{stream}``."""

    def append(self, key: str, offset: int, data: bytes, max_bytes: int) -> tuple[int, bool]:
        """(next offset wanted, cap reached). Overlap is ignored, a gap raises ``LogGap``."""

    def read(self, key: str, offset: int, limit: int) -> LogPiece:
        """From ``offset`` (negative: from the end; beyond: empty)."""

    def close(self, key: str) -> None:
        """Nothing more will come."""

    def delete(self, prefix: str) -> None:
        """Remove every stream below a prefix."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """What a put object is: bytes and digest."""

    size: int
    sha256: str


class ObjectStore(Protocol):
    """Keeps artifacts and checkpoints under slash-separated keys."""

    def put(self, key: str, stream: BinaryIO, max_bytes: int) -> StoredObject:
        """Store atomically; raises ``TooLarge``, leaving nothing behind."""

    def open(self, key: str) -> BinaryIO:
        """Raises ``NotFound``."""

    def names(self, prefix: str) -> Sequence[str]:
        """What lies directly below a prefix: the next part of each key there."""

    def sizes(self, prefix: str) -> Mapping[str, int]:
        """Bytes by name of the objects directly below a prefix, with those still being put."""

    def delete(self, prefix: str) -> None:
        """Remove everything below a prefix."""


@dataclass(frozen=True, slots=True)
class CloudDevice:
    """A device as the cloud driver knows it."""

    address: str
    gpu_type: str
    vendor: str
    memory_mib: int
    ordinal: int
    product_id: str | None = None
    uuid: str | None = None
    numa_node: int | None = None
    link_group: str | None = None
    healthy: bool = True
    health_reason: str | None = None


@dataclass(frozen=True, slots=True)
class CloudHost:
    """A host with its devices as the cloud driver knows it."""

    name: str
    kind: str
    up: bool
    vcpus: int
    memory_mib: int
    devices: tuple[CloudDevice, ...]
    rack: str | None = None
    zone: str | None = None
    link_domain: str | None = None
    address: str | None = None


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """What to build. ``device_addresses`` on ``host_name`` were claimed in the database."""

    node_id: str
    name: str
    project_id: str
    flavor: Flavor
    host_name: str | None
    device_addresses: tuple[str, ...]
    image: str | None
    networks: tuple[str, ...]
    key_name: str | None
    user_data: str = field(repr=False)
    #: SHA-256 of the bootstrap token in ``user_data``: kept by the cloud beside the node id.
    bootstrap_hash: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class CloudNode:
    """A built (or building) node: ``state`` is building, active, error, off or gone."""

    node_id: str
    server_id: str
    state: str
    address: str | None
    host_name: str | None
    created_at: datetime
    fault: str | None = None
    #: What its :class:`NodeRequest` said (None: the cloud does not keep it).
    bootstrap_hash: str | None = field(default=None, repr=False)


@runtime_checkable
class Cloud(Protocol):
    """A cloud driver. Calls may be slow and fail with ``CloudError``; never in a transaction."""

    @property
    def capabilities(self) -> frozenset[str]:
        """Of: ``power_off`` (can confirm a node off), ``places`` (we choose host and devices)."""

    def inventory(self) -> list[CloudHost]:
        """Every host with its devices, now."""

    def gpu_types(self) -> list[dict[str, Any]]:
        """GPU types it knows of, as bodies of the API."""

    def create_node(self, request: NodeRequest) -> CloudNode:
        """Ask for a node; returns at once while it builds."""

    def find_nodes(self, node_ids: Sequence[str] | None = None) -> list[CloudNode]:
        """Our nodes, oldest first (several per id are possible after a crash)."""

    def delete_node(self, server_id: str) -> None:
        """Ask for deletion; absent is fine."""

    def power_off(self, server_id: str) -> bool:
        """True once confirmed off; only with the capability."""


class Engine(Protocol):
    """An engine driver: who carries an attempt's tasks once they are committed."""

    def start(self, attempt: Attempt, tasks: Sequence[Task]) -> None:
        """Hand the tasks over (idempotent)."""

    def stop(self, attempt: Attempt, tasks: Sequence[Task]) -> None:
        """Ask for their end (idempotent)."""


class QuotaDriver(Protocol):
    """Where limits come from. The ledger of use is always the database's."""

    def limit(self, uow: UnitOfWork, project_id: str, name: str) -> int:
        """The limit in the unit of the name, -1 unlimited."""

    def limits(self, uow: UnitOfWork, project_id: str) -> dict[str, int]:
        """All limits with defaults filled in."""


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a job would meet: ``status`` is starts_now, waits or impossible.

    ``placement``: where it would start, now or when it is promised to; ``start_basis``: whether
    ``estimated_start_at`` is now, promised or estimated. ``cost``: ``gpu_milli_seconds`` by its
    limit and the ``price`` (least and most, minor currency units) where there are prices.
    ``preempts``: whom it would stop (``count``, own ``jobs`` by name, how many ``others``).
    """

    status: str
    placement: tuple[dict[str, Any], ...] = ()
    explanation: dict[str, Any] | None = None
    estimated_start_at: datetime | None = None
    start_basis: str | None = None
    cost: dict[str, Any] = field(default_factory=lambda: {"gpu_milli_seconds": None, "price": None})
    preempts: dict[str, Any] = field(default_factory=lambda: {"count": 0, "jobs": [], "others": 0})


class Planning(Protocol):
    """The way from use cases to the planner, bound by bootstrap (503 ``Busy`` when overrun)."""

    def dry_run(self, job: Job) -> DryRun:
        """Plan one hypothetical job on the last committed snapshot."""
