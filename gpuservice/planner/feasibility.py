# SPDX-License-Identifier: Apache-2.0
"""Whether a request fits at all: on the present pools, at their largest, idle and healthy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from gpuservice.planner.building import build
from gpuservice.planner.capacity import Candidates, candidates, task_slots
from gpuservice.planner.ledger import NOBODY, Ledger
from gpuservice.planner.placement import place
from gpuservice.planner.snapshot import DeviceState, NodeState, PoolState, Request

#: Levels that a node yet to be built may still come to share with any other.
_OUTER = ("link_domain", "rack", "zone")


def idle(nodes: Sequence[NodeState], pools: Iterable[PoolState], widest: int) -> Ledger:
    """Every pool at ``max_nodes``, all ready, healthy and free.

    Of nodes yet to be built there are at most ``widest``, the tasks of the widest gang in
    question: more make no difference to whether one gang fits.
    """
    present = _present(nodes)
    everything = [
        replace(node, devices=tuple(replace(one, healthy=True) for one in node.devices))
        for node in nodes
    ]
    for pool in pools:
        everything.extend(new_nodes(pool, min(pool.max_nodes - present.get(pool.id, 0), widest)))
    ledger = build(everything)
    return emptied(ledger)


def emptied(ledger: Ledger) -> Ledger:
    """A ledger of the same nodes, all ready, healthy and free."""
    ledger = ledger.copy()
    layout = ledger.layout
    ledger.free = np.where(layout.device_type == NOBODY, 0, 1000)
    ledger.whole = (ledger.free >= 1000).sum(axis=1)
    ledger.cpus = np.array([node.vcpus for node in layout.nodes], dtype=np.int64)
    ledger.memory = np.array([node.memory_mib for node in layout.nodes], dtype=np.int64)
    ledger.ready = np.ones(len(layout.nodes), dtype=np.bool_)
    ledger.occupant = np.full(len(layout.nodes), NOBODY, dtype=np.int64)
    ledger.tasks = np.zeros(len(layout.nodes), dtype=np.int64)
    ledger.device_occupant = np.full_like(layout.device_type, NOBODY)
    return ledger


def _present(nodes: Iterable[NodeState]) -> Mapping[str, int]:
    present: dict[str, int] = {}
    for node in nodes:
        present[node.pool_id] = present.get(node.pool_id, 0) + 1
    return present


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

    def __init__(
        self, nodes: Sequence[NodeState], pools: Sequence[PoolState], present_state: Ledger
    ) -> None:
        self._nodes = nodes
        self._present_state = present_state
        self._pools = pools
        self._ledger: Ledger | None = None
        self._widest = 0
        self._answers: dict[tuple[Request, tuple[str, ...]], bool] = {}
        count = _present(nodes)
        self._growing = frozenset(
            pool.id for pool in pools if pool.max_nodes > count.get(pool.id, 0)
        )

    def possible(self, request: Request, pools: tuple[str, ...]) -> bool:
        """Whether some state of the pools holds the request."""
        key = (request, pools)
        if key not in self._answers:
            self._answers[key] = self._fits(request, pools)
        return self._answers[key]

    def possible_uncrowded(self, request: Request, pools: tuple[str, ...]) -> bool:
        """The same if a node might have any number of tasks."""
        ledger = self.ledger(request.count)
        return place(ledger.boundless(), request, candidates(ledger, pools, "")) is not None

    def _fits(self, request: Request, pools: tuple[str, ...]) -> bool:
        ledger = self.ledger(request.count)
        if not self._enough(ledger, request, pools):
            return False
        everywhere = candidates(ledger, pools, "")
        if not request.required:  # any places do: to count them is enough
            return any(self._count(ledger, request, one) >= request.min_count for one in everywhere)
        if place(ledger, request, everywhere) is not None:
            return True
        growing = tuple(pool for pool in pools if pool in self._growing)
        if not growing or request.within not in _OUTER:
            return False
        anywhere = replace(request, within=None, required=False)
        return place(ledger, anywhere, candidates(ledger, growing, "")) is not None

    @staticmethod
    def _count(ledger: Ledger, request: Request, where: Candidates) -> int:
        """The tasks that a pool holds, as far as they count for one gang."""
        slots = task_slots(ledger, request, where.rows, where.project)
        return int(np.minimum(slots, request.count).sum())

    @staticmethod
    def _enough(ledger: Ledger, request: Request, pools: tuple[str, ...]) -> bool:
        """Whether any pool has that many whole GPUs at all: quick to say no."""
        if not request.whole:
            return True
        rows = ledger.layout.pool_rows
        most = max((int(ledger.whole[rows[pool]].sum()) for pool in pools if pool in rows),
                   default=0)  # fmt: skip
        return most >= request.whole * request.min_count

    def gpus_of(self, pool_id: str) -> int:
        """All GPUs of a pool at its largest."""
        here = [node for node in self._nodes if node.pool_id == pool_id]
        count = sum(len(node.devices) for node in here)
        for pool in self._pools:
            if pool.id == pool_id:
                count += max(pool.max_nodes - len(here), 0) * pool.template.gpu_count
        return count

    def ledger(self, widest: int = 1) -> Ledger:
        """The idle ledger, built when first asked for, with room for gangs that wide."""
        if self._ledger is None or (widest > self._widest and self._growing):
            self._widest = max(widest, 2 * self._widest)
            self._ledger = (
                idle(self._nodes, self._pools, self._widest)
                if self._growing
                else emptied(self._present_state)
            )
        return self._ledger

    def candidates(self, pools: tuple[str, ...], widest: int = 1) -> tuple[Candidates, ...]:
        """Every node of the pools in the idle ledger."""
        return candidates(self.ledger(widest), pools, "")
