# SPDX-License-Identifier: Apache-2.0
"""What GPUs there are: types, hosts, devices, flavors, pools and nodes, as rows of the truth.

Every noun is a frozen dataclass with the fields of its table; ``version`` is the private
compare-and-swap counter, ``generation`` counts changes of what a client may write.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

#: Live tasks that a node has at most, whatever they take of it: each one costs its agent open
#: files, reports and processes, also where it asks for no GPU, CPU or memory.
MAX_TASKS_PER_NODE = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What every stored noun has. ``created_at``/``updated_at`` are aware UTC."""

    id: str
    created_at: datetime
    updated_at: datetime
    generation: int = 1
    version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuType(Row):
    """A model of GPU, vendor-neutral. ``partitions``: dicts as in the API."""

    name: str
    vendor: str
    memory_mib: int
    pci_ids: tuple[str, ...] = ()
    architecture: str | None = None
    interconnect: str | None = None
    partitions: tuple[dict[str, Any], ...] = ()
    resource_class: str | None = None
    traits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Host(Row):
    """A machine that has GPUs: hypervisor, bare metal, or stand-alone.

    ``drain_deadline_at``: until then work may go on there while it is drained (null: to its end).
    """

    name: str
    kind: str = "hypervisor"
    state: str = "up"
    status: str = "enabled"
    status_reason: str | None = None
    drain_deadline_at: datetime | None = None
    rack: str | None = None
    zone: str | None = None
    link_domain: str | None = None
    vcpus: int = 0
    memory_mib: int = 0
    address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Device(Row):
    """One GPU (or partition). ``node_id``: the pool node that holds it.

    ``used_milli`` (0..1000) is what live allocations of tasks take of it; ``occupant_project_id``
    is the project whose tasks are on it (null when ``used_milli`` is 0). ``health_source``: who
    said that it is not healthy (``cloud``, ``node``, ``operator``).
    """

    host_id: str
    address: str
    gpu_type: str
    memory_mib: int
    ordinal: int = 0
    uuid: str | None = None
    serial: str | None = None
    vendor: str = "nvidia"
    product_id: str | None = None
    numa_node: int | None = None
    link_group: str | None = None
    mode: str = "passthrough"
    health: str = "unknown"
    health_reason: str | None = None
    health_source: str | None = None
    node_id: str | None = None
    used_milli: int = 0
    occupant_project_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavor(Row):
    """One tenant-facing offer. Money: ``price_per_hour`` in minor currency units."""

    name: str
    gpu_type: str
    gpu_count: int
    mode: str = "passthrough"
    partition: str | None = None
    vcpus: int = 1
    memory_mib: int = 1024
    disk_gib: int = 0
    numa_policy: str | None = None
    public: bool = True
    projects: tuple[str, ...] = ()
    price_per_hour: int | None = None
    status: str = "active"
    realised_as: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool(Row):
    """A project's nodes of one flavor.

    ``target_nodes`` is what the user wants (fixed pools), ``wanted_nodes`` what the scheduler
    wants (autoscaled); ``fault`` and ``waiting`` are ``{"code"/"class", "summary", ...}`` or null.
    """

    project_id: str
    name: str
    flavor_id: str
    min_nodes: int
    max_nodes: int
    target_nodes: int
    wanted_nodes: int | None = None
    autoscale: bool = False
    idle_timeout_s: int = 600
    on_shortage: str = "wait"
    image: str | None = None
    networks: tuple[str, ...] = ()
    key_name: str | None = None
    engine: str = "agent"
    engine_options: dict[str, Any] = field(default_factory=dict)
    shared_with: tuple[str, ...] = ()
    isolation: str = "node"
    reservation: str | None = None
    status: str = "creating"
    fault: dict[str, Any] | None = None
    waiting: dict[str, Any] | None = None
    credential_status: str | None = None
    name_key: str | None = None  # project/name while undeleted, null after: carries uniqueness

    @property
    def size(self) -> int:
        """How many nodes the pool should have now, within its bounds."""
        wanted = self.wanted_nodes if self.autoscale else self.target_nodes
        if wanted is None:
            wanted = self.target_nodes
        return max(self.min_nodes, min(self.max_nodes, wanted))


@dataclass(frozen=True, slots=True, kw_only=True)
class Node(Row):
    """One node of a pool: where tasks run.

    ``epoch`` is raised when the node is given up (fencing); ``revision`` whenever the list of its
    tasks changes. ``used_vcpus``/``used_memory_mib``/``live_tasks`` are kept by guarded updates.
    Hashes are SHA-256 hex of the token or secret; the secrets themselves are never stored.
    ``device_faults``: what its agent said last of its bad devices, address -> reason; null:
    nothing, or to be said again; ``device_faults_at``: when that changed last.
    """

    pool_id: str
    project_id: str
    name: str
    flavor_id: str
    host_id: str | None = None
    server_id: str | None = None
    baremetal_id: str | None = None
    address: str | None = None
    status: str = "requested"
    status_reason: str | None = None
    status_changed_at: datetime
    fault: dict[str, Any] | None = None
    gpu_type: str
    gpu_count: int
    vcpus: int
    memory_mib: int
    used_vcpus: int = 0
    used_memory_mib: int = 0
    live_tasks: int = 0
    occupant_project_id: str | None = None
    epoch: int = 1
    revision: int = 1
    bootstrap_hash: str | None = field(default=None, repr=False)
    bootstrap_expires_at: datetime | None = None
    secret_hash: str | None = field(default=None, repr=False)
    instance: str | None = None
    last_renewal_at: datetime | None = None
    last_seen_at: datetime | None = None
    lease_s: int | None = None
    idle_since: datetime | None = None
    drain_deadline_at: datetime | None = None
    build_attempts: int = 0
    intent_at: datetime | None = None
    capabilities: dict[str, Any] = field(default_factory=dict)
    device_faults: dict[str, Any] | None = None
    device_faults_at: datetime | None = None
