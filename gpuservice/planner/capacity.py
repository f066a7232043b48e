# SPDX-License-Identifier: Apache-2.0
"""How many tasks of a request fit where: one vectorised count per shape, not per job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gpuservice.planner.ledger import NOBODY, Bools, Ints, Ledger
from gpuservice.planner.snapshot import Request

#: More tasks than any gang has: the capacity of a node for tasks that take nothing.
PLENTY = 1 << 30


@dataclass(frozen=True, slots=True)
class Candidates:
    """Where a job may look: ``nodes`` (N,) and the number of its project."""

    nodes: Bools
    project: int


def candidates(
    ledger: Ledger,
    pool_ids: frozenset[str],
    project_id: str,
    own: frozenset[str],
    request: Request,
    headroom: Mapping[tuple[str, str], int],
) -> Candidates:
    """Ready nodes of the pools; other projects' pools only while the project's quota lasts.

    :param own: pools whose GPUs do not count against the job's project.
    """
    layout = ledger.layout
    project = layout.projects.of(project_id)
    mask = np.array([pool in pool_ids for pool in layout.pool], dtype=np.bool_) & ledger.ready
    free = (ledger.occupant == NOBODY) | (ledger.occupant == project)
    mask &= ~layout.isolation_node | free
    need = _milli(request) * request.min_count
    if need and headroom:
        foreign = np.array([pool not in own for pool in layout.pool], dtype=np.bool_)
        if headroom.get((project_id, "gpus"), need) < need:
            mask &= ~foreign
        for name, left in headroom.items():
            if name[0] == project_id and name[1].startswith("gpus:") and left < need:
                number = layout.types.of(name[1].removeprefix("gpus:"))
                has = (layout.device_type == number).any(axis=1)
                mask &= ~(foreign & has)
    return Candidates(mask, project)


def _milli(request: Request) -> int:
    """Milli-GPUs of a task, at most (a share by memory counts as one GPU here)."""
    return 1000 if request.gpu_memory_mib is not None else request.gpu_milli


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
    """(N,): tasks by CPU and memory alone."""
    slots = np.full(ledger.cpus.shape, PLENTY, dtype=np.int64)
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
    return np.where(where.nodes, slots, 0)


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
    return np.where(where.nodes[:, None], slots, 0)
