# SPDX-License-Identifier: Apache-2.0
"""What there is: nodes, queues, quotas, outages and reservations; the spec of a plain one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuservice.planner.snapshot import (
    DeviceState,
    NodeState,
    NodeTemplate,
    PoolState,
    QueueState,
    Reservation,
)
from gpuservice.simulation.faults import InputFault

#: What a host of a plain spec has: more than any job can ask for.
BOUNDLESS = (1 << 31) - 1

_PART = re.compile(r"(?P<hosts>\d+)x(?P<gpus>\d+)(?::(?P<type>[A-Za-z0-9][A-Za-z0-9._-]*))?")
_SIZE = re.compile(r"-(\d+)gb$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Outage:
    """A node is away for a while."""

    node: str
    at_s: float
    for_s: float


@dataclass(frozen=True, slots=True)
class Cluster:
    """Everything that stands before the first job comes.

    ``queues``: as the file names them, without pools (they may use all). ``headroom``: limits of
    projects, GPUs in milli. ``members``: the projects of a queue that is not everybody's.
    ``protected``: seconds that a gang of a queue runs before it may be preempted. ``owned``: pools
    with owners, where queues say which of them they use.
    """

    nodes: tuple[NodeState, ...]
    queues: tuple[QueueState, ...] = ()
    headroom: Mapping[tuple[str, str], int] = field(default_factory=dict)
    outages: tuple[Outage, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    members: Mapping[str, frozenset[str]] = field(default_factory=dict)
    protected: Mapping[str, float] = field(default_factory=dict)
    owned: tuple[PoolState, ...] = ()

    @property
    def host_gpus(self) -> int:
        """GPUs of the largest node."""
        return max(len(node.devices) for node in self.nodes)

    def pools(self) -> tuple[PoolState, ...]:
        """One pool for each GPU type, which nobody owns, unless it was said; none grows."""
        if self.owned:
            return self.owned
        found: dict[str, list[NodeState]] = {}
        for node in self.nodes:
            found.setdefault(node.pool_id, []).append(node)
        return tuple(_pool(name, nodes) for name, nodes in found.items())


def _pool(name: str, nodes: list[NodeState]) -> PoolState:
    largest = max(nodes, key=lambda node: len(node.devices))
    device = largest.devices[0] if largest.devices else DeviceState("", "", 0)
    template = NodeTemplate(
        device.gpu_type,
        len(largest.devices),
        device.memory_mib,
        largest.vcpus,
        largest.memory_mib,
    )
    return PoolState(name, "", len(nodes), template, size=len(nodes))


def pool_of(gpu_type: str, gpus: int) -> str:
    """The pool of nodes of a GPU type."""
    return gpu_type if gpus else "no-gpu"


def memory_of(gpu_type: str) -> int:
    """MiB of a GPU by its type's name (``-80gb``); a name that does not say it bounds nothing."""
    found = _SIZE.search(gpu_type)
    return int(found.group(1)) * 1024 if found else BOUNDLESS


def from_spec(spec: str) -> Cluster:
    """``8x8:a100-80gb`` (hosts x GPUs : type), several joined by ``+`` or ``,``.

    :raises InputFault: if it is none.
    """
    nodes: list[NodeState] = []
    for part in re.split(r"[+,]", spec):
        found = _PART.fullmatch(part.strip())
        if found is None or int(found["hosts"]) < 1:
            raise InputFault(
                f"--cluster {spec}: '{part}' is neither a file nor hosts x GPUs : type, "
                "such as 8x8:a100-80gb (several joined by + or ,)"
            )
        gpu_type = found["type"] or "gpu"
        for _ in range(int(found["hosts"])):
            nodes.append(plain_node(f"n{len(nodes):04d}", int(found["gpus"]), gpu_type))
    return Cluster(tuple(nodes))


def plain_node(name: str, gpus: int, gpu_type: str) -> NodeState:
    """A host with GPUs of one type, and more of all else than can be asked for."""
    memory = memory_of(gpu_type)
    devices = tuple(
        DeviceState(f"{name}/{index}", gpu_type, memory, link_group="0") for index in range(gpus)
    )
    return NodeState(name, pool_of(gpu_type, gpus), BOUNDLESS, BOUNDLESS, devices)
