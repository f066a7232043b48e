# SPDX-License-Identifier: Apache-2.0
"""How many tasks of a request fit where: one vectorised count per shape, not per job."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gpuservice.domain.inventory import MAX_TASKS_PER_NODE
from gpuservice.planner.ledger import NOBODY, Bools, Ints, Ledger
from gpuservice.planner.snapshot import Request

#: More tasks than any gang has: what bounds nothing.
PLENTY = 1 << 30


@dataclass(frozen=True, slots=True)
class Candidates:
    """Where a job may look: the ``nodes`` (N,) of one pool, the number of its project, and how
    many tasks its quota lets it have there. A gang stays within one pool."""

    nodes: Bools
    project: int
    most: int = PLENTY


def candidates(ledger: Ledger, pool_ids: Iterable[str], project_id: str) -> tuple[Candidates, ...]:
    """The pools that have nodes, in the order given, whatever the project's quota says."""
    layout = ledger.layout
    project = layout.projects.of(project_id)
    return tuple(
        Candidates(layout.pool_nodes[pool], project)
        for pool in pool_ids
        if pool in layout.pool_nodes
    )


def usable(ledger: Ledger, where: Candidates) -> Bools:
    """(N,): candidate nodes that are ready and, where one project is alone, not another's."""
    free = (ledger.occupant == NOBODY) | (ledger.occupant == where.project)
    may: Bools = where.nodes & ledger.ready & (~ledger.layout.isolation_node | free)
    return may


def fitting_devices(ledger: Ledger, request: Request, project: int) -> Bools:
    """(N, D): devices of the right kind on which the project may have something."""
    layout = ledger.layout
    fit: Bools = layout.device_type != NOBODY
    if request.gpu_types:
        fit &= np.isin(layout.device_type, [layout.types.of(name) for name in request.gpu_types])
    if request.min_gpu_memory_mib:
        fit &= layout.device_memory >= request.min_gpu_memory_mib
    fit &= (ledger.device_occupant == NOBODY) | (ledger.device_occupant == project)
    return fit


def share_milli(ledger: Ledger, request: Request) -> Ints:
    """(N, D): milli of each device that a task of a sharing request takes."""
    layout = ledger.layout
    if request.gpu_memory_mib is None:
        return np.full(layout.device_memory.shape, request.gpu_milli, dtype=np.int64)
    memory = np.maximum(layout.device_memory, 1)
    return -(-1000 * request.gpu_memory_mib // memory)


def device_slots(ledger: Ledger, request: Request, project: int) -> Ints:
    """(N, D): tasks of a sharing request, or 1 for each whole free device."""
    fit = fitting_devices(ledger, request, project)
    if request.shared:
        milli = share_milli(ledger, request)
        slots = np.where(milli <= 1000, np.maximum(ledger.free, 0) // np.maximum(milli, 1), 0)
        return np.where(fit, slots, 0)
    return (fit & (ledger.free >= 1000)).astype(np.int64)


def host_slots(ledger: Ledger, request: Request) -> Ints:
    """(N,): tasks by CPU, memory and the number of tasks that a node may have."""
    slots: Ints = np.maximum(MAX_TASKS_PER_NODE - ledger.tasks, 0)
    if request.vcpus:
        slots = np.minimum(slots, np.maximum(ledger.cpus, 0) // request.vcpus)
    if request.memory_mib:
        slots = np.minimum(slots, np.maximum(ledger.memory, 0) // request.memory_mib)
    return slots


def node_capacity(ledger: Ledger, request: Request, where: Candidates) -> Ints:
    """(N,): how many tasks of the request each candidate node takes now."""
    slots = host_slots(ledger, request)
    if request.shared or request.whole:
        per_device = device_slots(ledger, request, where.project)
        gpus = per_device.sum(axis=1)
        slots = np.minimum(slots, gpus if request.shared else gpus // request.whole)
    return np.where(usable(ledger, where), slots, 0)


def group_capacity(ledger: Ledger, request: Request, where: Candidates) -> Ints:
    """(N, G): how many tasks each link group of each node takes (devices without a group are
    not in one)."""
    groups = ledger.layout.device_group
    count = int(groups.max(initial=NOBODY)) + 1
    per_device = device_slots(ledger, request, where.project)
    slots = np.zeros((groups.shape[0], max(count, 1)), dtype=np.int64)
    for group in range(count):
        gpus = np.where(groups == group, per_device, 0).sum(axis=1)
        slots[:, group] = gpus if request.shared or not request.whole else gpus // request.whole
    slots = np.minimum(slots, host_slots(ledger, request)[:, None])
    return np.where(usable(ledger, where)[:, None], slots, 0)
