# SPDX-License-Identifier: Apache-2.0
"""Whether a request fits at all: on the present pools, at their largest, idle and healthy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from gpuservice.planner.capacity import Candidates, candidates
from gpuservice.planner.ledger import NOBODY, Ledger, build
from gpuservice.planner.placement import place
from gpuservice.planner.snapshot import (
    DeviceState,
    NodeState,
    PoolState,
    Request,
    Snapshot,
)

#: Levels that a node yet to be built may still come to share with any other.
_OUTER = ("link_domain", "rack", "zone")


def idle(snapshot: Snapshot) -> Ledger:
    """Every pool at ``max_nodes``, all ready, healthy and free.

    Of nodes yet to be built there are as many as the widest waiting gang has tasks: more make
    no difference to whether one gang fits.
    """
    widest = max((job.request.count for job in snapshot.pending), default=1)
    present: dict[str, int] = {}
    for node in snapshot.nodes:
        present[node.pool_id] = present.get(node.pool_id, 0) + 1
    nodes = list(snapshot.nodes)
    for pool in snapshot.pools:
        nodes.extend(new_nodes(pool, min(pool.max_nodes - present.get(pool.id, 0), widest)))
    ledger = build(replace(snapshot, nodes=tuple(nodes)))
    ledger.free = np.where(ledger.layout.device_type == NOBODY, 0, 1000)
    ledger.cpus = np.array([node.vcpus for node in nodes], dtype=np.int64)
    ledger.memory = np.array([node.memory_mib for node in nodes], dtype=np.int64)
    ledger.ready = np.ones(len(nodes), dtype=np.bool_)
    ledger.occupant = np.full(len(nodes), NOBODY, dtype=np.int64)
    ledger.tasks = np.zeros(len(nodes), dtype=np.int64)
    ledger.device_occupant = np.full_like(ledger.layout.device_type, NOBODY)
    return ledger


def new_nodes(pool: PoolState, count: int) -> Iterable[NodeState]:
    """Nodes that a pool could still have, each where topology is concerned on its own."""
    template = pool.template
    for number in range(max(count, 0)):
        name = f"new-{pool.id}-{number}"
        devices = tuple(
            DeviceState(
                f"{name}-{gpu}", template.gpu_type, template.gpu_memory_mib, link_group="new"
            )
            for gpu in range(template.gpu_count)
        )
        yield NodeState(
            name,
            pool.id,
            template.vcpus,
            template.memory_mib,
            devices,
            isolation_node=pool.isolation_node,
        )


class Feasibility:
    """Answers, once per shape, whether a request could ever start."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._ledger: Ledger | None = None
        self._answers: dict[tuple[Request, tuple[str, ...]], bool] = {}
        present: dict[str, int] = {}
        for node in snapshot.nodes:
            present[node.pool_id] = present.get(node.pool_id, 0) + 1
        self._growing = frozenset(
            pool.id for pool in snapshot.pools if pool.max_nodes > present.get(pool.id, 0)
        )

    def possible(self, request: Request, pools: tuple[str, ...]) -> bool:
        """Whether some state of the pools holds the request."""
        key = (request, pools)
        if key not in self._answers:
            self._answers[key] = self._fits(request, pools)
        return self._answers[key]

    def possible_uncrowded(self, request: Request, pools: tuple[str, ...]) -> bool:
        """The same if a node might have any number of tasks."""
        where = candidates(self.ledger(), pools, "")
        return place(self.ledger().boundless(), request, where) is not None

    def _fits(self, request: Request, pools: tuple[str, ...]) -> bool:
        if place(self.ledger(), request, self.candidates(pools)) is not None:
            return True
        growing = tuple(pool for pool in pools if pool in self._growing)
        if not growing or not request.required or request.within not in _OUTER:
            return False
        anywhere = replace(request, within=None, required=False)
        return place(self.ledger(), anywhere, self.candidates(growing)) is not None

    def ledger(self) -> Ledger:
        """The idle ledger, built when first asked for."""
        if self._ledger is None:
            self._ledger = idle(self._snapshot)
        return self._ledger

    def candidates(self, pools: tuple[str, ...]) -> tuple[Candidates, ...]:
        """Every node of the pools in the idle ledger."""
        return candidates(self.ledger(), pools, "")
