# SPDX-License-Identifier: Apache-2.0
"""Short words for planner snapshots in tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from gpuservice.planner.plan_types import Plan, Waiting
from gpuservice.planner.snapshot import (
    DeviceState,
    NodeState,
    NodeTemplate,
    PendingJob,
    Policy,
    PoolState,
    QueueState,
    Request,
    RunningGang,
    Snapshot,
    TaskPlacement,
)

NOW = 1000.0
#: EASY backfill: the first of the line that does not fit is promised a start, at once.
EASY = Policy(promises=1, due=None, backfill_order="line")
A100 = "a100-80gb"


def node(
    name: str,
    gpus: int = 8,
    pool: str = "pool",
    gpu_type: str = A100,
    memory: int = 81920,
    groups: int = 2,
    **more: Any,
) -> NodeState:
    """A free node: ``gpus`` in ``groups`` link groups of equal size."""
    devices = tuple(
        DeviceState(f"{name}/{gpu}", gpu_type, memory, link_group=f"g{gpu * groups // gpus}")
        for gpu in range(gpus)
    )
    settings: dict[str, Any] = {"vcpus": 64, "memory_mib": 65536, **more}
    return NodeState(name, pool, devices=devices, **settings)


def job(name: str, project: str = "red", **more: Any) -> PendingJob:
    """A job of the queue ``queue``; arguments of the request and of the job may be mixed."""
    asked = {key: more.pop(key) for key in list(more) if key in Request.__dataclass_fields__}
    if "count" in asked:
        asked.setdefault("min_count", asked["count"])
    order = int("".join(letter for letter in name if letter.isdigit()) or 0)
    settings: dict[str, Any] = {
        "user_id": "user",
        "queue_id": "queue",
        "priority": 500,
        "queued_at": float(order),
        "sequence": order,
        "max_runtime_s": 100,
        **more,
    }
    return PendingJob(name, project, request=Request(**asked), **settings)


def gang(
    name: str,
    places: Mapping[str, Iterable[int]],
    ends: float | None = 1100.0,
    project: str = "red",
    milli: int = 1000,
) -> RunningGang:
    """A running job: node name -> device numbers, one task a node."""
    tasks = tuple(
        TaskPlacement(rank, where, tuple((f"{where}/{gpu}", milli) for gpu in gpus))
        for rank, (where, gpus) in enumerate(places.items())
    )
    return RunningGang(name, project, tasks, ends)


def snapshot(
    nodes: Iterable[NodeState],
    pending: Iterable[PendingJob] = (),
    running: Iterable[RunningGang] = (),
    headroom: Mapping[tuple[str, str], int] | None = None,
    pools: Iterable[PoolState] | None = None,
    pool_ids: tuple[str, ...] | None = None,
    queue_open: bool = True,
) -> Snapshot:
    """A snapshot whose nodes carry what ``running`` holds. One queue over all pools."""
    gangs = tuple(running)
    placed = tuple(_loaded(one, gangs) for one in nodes)
    names = list(dict.fromkeys(one.pool_id for one in placed))
    if pools is None:
        pools = [pool(name, sum(one.pool_id == name for one in placed)) for name in names]
    pools = tuple(pools)
    ids = pool_ids or tuple(one.id for one in pools)
    return Snapshot(
        NOW,
        placed,
        pools,
        (QueueState("queue", ids, queue_open),),
        tuple(pending),
        gangs,
        dict(headroom or {}),
    )


def pool(name: str = "pool", size: int = 0, **more: Any) -> PoolState:
    """A pool of the operator whose new nodes are like :func:`node`'s."""
    settings: dict[str, Any] = {
        "project_id": "operator",
        "max_nodes": size,
        "template": NodeTemplate(A100, 8, 81920, 64, 65536),
        **more,
    }
    return PoolState(name, size=size, **settings)


def _loaded(one: NodeState, gangs: tuple[RunningGang, ...]) -> NodeState:
    used: dict[str, int] = {}
    owner: dict[str, str] = {}
    tasks = 0
    for running in gangs:
        for task in running.tasks:
            if task.node_id != one.id:
                continue
            tasks += 1
            owner[one.id] = running.project_id
            for device, milli in task.devices:
                used[device] = used.get(device, 0) + milli
                owner[device] = running.project_id
    devices = tuple(
        replace(device, used_milli=used.get(device.id, 0), occupant=owner.get(device.id))
        for device in one.devices
    )
    tasks += one.live_tasks
    return replace(one, devices=devices, live_tasks=tasks, occupant=owner.get(one.id))


def places(made: Plan) -> dict[str, list[str]]:
    """Job -> the devices it got, by rank."""
    found: dict[str, list[str]] = {}
    for start in made.starts:
        devices = [device for task in start.tasks for device, _ in task.devices]
        found.setdefault(start.job_id, []).extend(devices)
    return found


def node_names(made: Plan, job_id: str) -> list[str]:
    """The nodes of a job's tasks, by rank."""
    return [task.node_id for start in made.starts if start.job_id == job_id for task in start.tasks]


def why(made: Plan, job_id: str) -> Waiting:
    """The explanation of a waiting job."""
    return next(one for one in made.waiting if one.job_id == job_id)


def codes(made: Plan, job_id: str) -> list[str]:
    """The reason codes of a waiting job."""
    return [str(one.code) for one in why(made, job_id).reasons]
