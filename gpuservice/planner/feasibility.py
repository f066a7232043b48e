# SPDX-License-Identifier: Apache-2.0
"""Whether a request fits at all: on the present pools, at their largest, idle and healthy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gpuservice.planner.capacity import Candidates
from gpuservice.planner.ledger import Ledger, build
from gpuservice.planner.placement import place
from gpuservice.planner.promises import future_candidates
from gpuservice.planner.snapshot import (
    DeviceState,
    NodeState,
    PoolState,
    Request,
    Snapshot,
)


def idle(snapshot: Snapshot) -> Ledger:
    """Every pool at ``max_nodes``, all ready, healthy and free."""
    nodes = [_idle(node) for node in snapshot.nodes]
    present: dict[str, int] = {}
    for node in nodes:
        present[node.pool_id] = present.get(node.pool_id, 0) + 1
    for pool in snapshot.pools:
        nodes.extend(new_nodes(pool, pool.max_nodes - present.get(pool.id, 0)))
    return build(replace(snapshot, nodes=tuple(nodes)))


def new_nodes(pool: PoolState, count: int) -> Iterable[NodeState]:
    """Nodes that a pool could still have, each where topology is concerned on its own."""
    template = pool.template
    for number in range(max(count, 0)):
        name = f"new-{pool.id}-{number}"
        devices = tuple(
            DeviceState(f"{name}-{gpu}", template.gpu_type, template.gpu_memory_mib,
                        link_group="new")
            for gpu in range(template.gpu_count))
        yield NodeState(name, pool.id, template.vcpus, template.memory_mib, devices,
                        isolation_node=pool.isolation_node)


def _idle(node: NodeState) -> NodeState:
    devices = tuple(
        replace(device, used_milli=0, healthy=True, occupant=None) for device in node.devices)
    return replace(node, devices=devices, used_vcpus=0, used_memory_mib=0, live_tasks=0,
                   ready=True, occupant=None)


class Feasibility:
    """Answers, once per shape, whether a request could ever start."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._ledger: Ledger | None = None
        self._answers: dict[tuple[Request, frozenset[str]], bool] = {}

    def possible(self, request: Request, pools: frozenset[str]) -> bool:
        """Whether some state of the pools holds the request."""
        key = (request, pools)
        if key not in self._answers:
            ledger = self.ledger()
            where = future_candidates(ledger, pools, 0)
            self._answers[key] = place(ledger, request, where) is not None
        return self._answers[key]

    def ledger(self) -> Ledger:
        """The idle ledger, built when first asked for."""
        if self._ledger is None:
            self._ledger = idle(self._snapshot)
        return self._ledger

    def candidates(self, pools: frozenset[str]) -> Candidates:
        """Every node of the pools in the idle ledger."""
        return future_candidates(self.ledger(), pools, 0)
