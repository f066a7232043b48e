# SPDX-License-Identifier: Apache-2.0
"""The ledger of nodes as a snapshot tells of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from gpuservice.planner.ledger import NOBODY, Ints, Journal, Layout, Ledger, Numbering
from gpuservice.planner.snapshot import NodeState


def _grid(rows: int, width: int, fill: int = 0) -> Ints:
    return np.full((rows, width), fill, dtype=np.int64)


def _levels(nodes: Sequence[NodeState]) -> dict[str, Ints]:
    domains: dict[str, Ints] = {"node": np.arange(len(nodes), dtype=np.int64)}
    for level in ("link_domain", "rack", "zone"):
        numbers = Numbering()
        domains[level] = np.array(
            [numbers.of(getattr(node, level)) for node in nodes], dtype=np.int64
        )
    return domains


def _by_pool(nodes: Iterable[NodeState]) -> tuple[tuple[NodeState, ...], dict[str, slice]]:
    """The nodes, those of a pool together, and where each pool's are."""
    members: dict[str, list[NodeState]] = {}
    for node in nodes:
        members.setdefault(node.pool_id, []).append(node)
    rows: dict[str, slice] = {}
    at = 0
    for pool, theirs in members.items():
        rows[pool] = slice(at, at + len(theirs))
        at += len(theirs)
    return tuple(node for theirs in members.values() for node in theirs), rows


def _devices(layout: Layout) -> tuple[Ints, Ints]:
    """Write down what each device is; (what of it is free, whose tasks are on it)."""
    projects, types = layout.projects, layout.types
    free = np.zeros_like(layout.device_type)
    occupants = np.full_like(layout.device_type, NOBODY)
    for row, node in enumerate(layout.nodes):
        groups = Numbering()
        for column, device in enumerate(node.devices):
            cell = (row, column)
            layout.device_cell[device.id] = cell
            layout.device_type[cell] = types.of(device.gpu_type)
            layout.device_memory[cell] = device.memory_mib
            layout.device_group[cell] = groups.of(device.link_group)
            layout.healthy[cell] = device.healthy
            free[cell] = 1000 - device.used_milli if device.healthy else 0
            occupants[cell] = projects.of(device.occupant)
    return free, occupants


def build(nodes: Iterable[NodeState]) -> Ledger:
    """The ledger of nodes as they are."""
    ordered, pool_rows = _by_pool(nodes)
    rows, width = len(ordered), max((len(node.devices) for node in ordered), default=0)
    projects, types = Numbering(), Numbering()
    domains = _levels(ordered)
    layout = Layout(
        nodes=ordered,
        node_row={node.id: row for row, node in enumerate(ordered)},
        device_cell={},
        projects=projects,
        types=types,
        device_type=_grid(rows, width, NOBODY),
        device_memory=_grid(rows, width),
        device_group=_grid(rows, width, NOBODY),
        healthy=np.zeros((rows, width), dtype=np.bool_),
        pool=[node.pool_id for node in ordered],
        pool_rows=pool_rows,
        domains=domains,
        labelled={
            (pool, level): bool((numbers[where] != NOBODY).any())
            for level, numbers in domains.items()
            for pool, where in pool_rows.items()
        },
        isolation_node=np.array([node.isolation_node for node in ordered], dtype=np.bool_),
        alone={
            pool: any(node.isolation_node for node in ordered[where])
            for pool, where in pool_rows.items()
        },
        most_gpus=width,
        devices=[[device.id for device in node.devices] for node in ordered],
        groups=[],
        kinds=[],
        wholes=[[(device.id, 1000) for device in node.devices] for node in ordered],
        one_group=[len({device.link_group for device in node.devices}) == 1 for node in ordered],
    )
    free, occupants = _devices(layout)
    layout.groups = layout.device_group.tolist()
    both = zip(layout.device_type.tolist(), layout.device_memory.tolist(), strict=True)
    layout.kinds = [list(zip(*row, strict=True)) for row in both]
    return Ledger(
        layout,
        free,
        np.array([node.vcpus - node.used_vcpus for node in ordered], dtype=np.int64),
        np.array([node.memory_mib - node.used_memory_mib for node in ordered], dtype=np.int64),
        np.array([node.ready for node in ordered], dtype=np.bool_),
        np.array([projects.of(node.occupant) for node in ordered], dtype=np.int64),
        np.array([node.live_tasks for node in ordered], dtype=np.int64),
        occupants,
        (free >= 1000).sum(axis=1),
        {pool: Journal() for pool in pool_rows},
    )
