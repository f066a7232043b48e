# SPDX-License-Identifier: Apache-2.0
"""Rows for the database tests, and the two transactions that most of them are about.

``cluster`` sets up a pool with ready nodes and healthy devices, quota included; ``start`` commits
a job's only element to devices and ``end`` ends it, in the lock order of the service.
"""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from gpuservice.domain.errors import CommitConflict
from gpuservice.domain.inventory import Device, Host, Node, Pool
from gpuservice.domain.jobspec import normalise
from gpuservice.domain.ports_store import NodeLoad, Share, TaskEnd, UnitOfWork
from gpuservice.domain.quota import of_nodes
from gpuservice.domain.work import Allocation, Attempt, Event, Job, Task

#: Microseconds that a database with whole seconds would lose.
THEN = datetime(2026, 3, 4, 5, 6, 7, 123456, tzinfo=UTC)
OWNER = "owner"
#: A request as it is kept: with every default filled in.
SPEC = normalise({"name": "train", "queue": "q", "command": ["python", "train.py"]}, {}, 3600)


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


class RandomIds:
    """Random UUIDs."""

    def new(self) -> str:
        return str(uuid.uuid4())

    def secret(self) -> str:
        return secrets.token_hex(32)


def new_id() -> str:
    return str(uuid.uuid4())


def at(seconds: float) -> datetime:
    return THEN + timedelta(seconds=seconds)


def host(**values: Any) -> Host:
    ident = new_id()
    row: dict[str, Any] = {"id": ident, "created_at": THEN, "updated_at": THEN, "name": ident}
    return Host(**{**row, **values})


def device(host_id: str, ordinal: int = 0, **values: Any) -> Device:
    row: dict[str, Any] = {
        "id": new_id(), "created_at": THEN, "updated_at": THEN, "host_id": host_id,
        "address": f"0000:{ordinal:02x}:00.0", "gpu_type": "h200", "memory_mib": 143771,
        "ordinal": ordinal, "health": "healthy",
    }  # fmt: skip
    return Device(**{**row, **values})


def pool(**values: Any) -> Pool:
    ident = new_id()
    row: dict[str, Any] = {
        "id": ident, "created_at": THEN, "updated_at": THEN, "project_id": OWNER, "name": ident,
        "flavor_id": "flavor", "min_nodes": 0, "max_nodes": 9, "target_nodes": 1,
        "status": "active", "name_key": f"{OWNER}/{ident}",
    }  # fmt: skip
    return Pool(**{**row, **values})


def node(pool_id: str, gpu_count: int = 4, **values: Any) -> Node:
    ident = new_id()
    row: dict[str, Any] = {
        "id": ident, "created_at": THEN, "updated_at": THEN, "pool_id": pool_id,
        "project_id": OWNER, "name": ident, "flavor_id": "flavor", "status": "ready",
        "status_changed_at": THEN, "gpu_type": "h200", "gpu_count": gpu_count, "vcpus": 64,
        "memory_mib": 262144,
    }  # fmt: skip
    return Node(**{**row, **values})


def job(project_id: str = "tenant", **values: Any) -> Job:
    row: dict[str, Any] = {
        "id": new_id(), "created_at": THEN, "updated_at": THEN, "project_id": project_id,
        "user_id": "user", "name": "train", "queue_id": "queue", "kind": "batch",
        "status": "queued", "priority": 500, "spec": SPEC, "queued_at": THEN,
    }  # fmt: skip
    return Job(**{**row, **values})


def attempt(of: Job, number: int = 1, **values: Any) -> Attempt:
    row: dict[str, Any] = {
        "id": new_id(), "job_id": of.id, "index": 0, "number": number,
        "project_id": of.project_id, "queue_id": of.queue_id, "pool_id": "pool",
        "status": "starting", "created_at": THEN, "tasks_count": 1, "gang_secret": "0" * 64,
    }  # fmt: skip
    return Attempt(**{**row, **values})


def task(of: Attempt, node_id: str, rank: int = 0, **values: Any) -> Task:
    row: dict[str, Any] = {
        "id": new_id(), "attempt_id": of.id, "job_id": of.job_id, "index": of.index,
        "attempt": of.number, "rank": rank, "project_id": of.project_id, "node_id": node_id,
        "node_epoch": 1, "status": "assigned", "created_at": THEN,
    }  # fmt: skip
    return Task(**{**row, **values})


def event(target_id: str, **values: Any) -> Event:
    row: dict[str, Any] = {
        "id": new_id(), "at": THEN, "project_id": "tenant", "actor": "user:user",
        "action": "job.create", "target_type": "job", "target_id": target_id,
    }  # fmt: skip
    return Event(**{**row, **values})


@dataclass(frozen=True)
class Cluster:
    """Nodes with the ids of their devices."""

    pool: Pool
    nodes: list[Node]
    devices: dict[str, list[str]]

    @property
    def all_devices(self) -> list[str]:
        return [one for mine in self.devices.values() for one in mine]


def cluster(uow: UnitOfWork, nodes: int = 1, gpus: int = 4, **values: Any) -> Cluster:
    """A pool of ``nodes`` ready nodes with ``gpus`` devices each."""
    mine = pool()
    made = [node(mine.id, gpus, **values) for _ in range(nodes)]
    hosts = [host() for _ in made]
    devices: dict[str, list[str]] = {}
    rows = []
    for one, its_host in zip(made, hosts, strict=True):
        its = [device(its_host.id, at, node_id=one.id) for at in range(gpus)]
        devices[one.id] = [each.id for each in its]
        rows.extend(its)
    uow.quotas.take(OWNER, {"pools": 1, **of_nodes("h200", gpus, nodes)})
    uow.hosts.add_many(hosts)
    uow.devices.add_many(rows)
    uow.pools.add(mine)
    uow.nodes.add_many(made)
    return Cluster(mine, made, devices)


def submit(uow: UnitOfWork, project_id: str = "tenant", **values: Any) -> Job:
    """A queued job, counted."""
    made = job(project_id, **values)
    uow.quotas.take(project_id, {"jobs:queued": made.waiting_elements})
    uow.jobs.add(made)
    uow.events.add(event(made.id, project_id=project_id))
    return made


def start(
    uow: UnitOfWork, of: Job, placed: Sequence[tuple[str, Sequence[Share]]], number: int = 1
) -> Attempt:
    """Commit a gang: one task on each (node, shares) given."""
    locked = uow.jobs.get(of.id, lock=True)
    if locked is None or locked.status != "queued":
        raise CommitConflict("job")
    milli = sum(share.milli for _, shares in placed for share in shares)
    uow.quotas.take(of.project_id, {"jobs:running": 1, "gpus": milli, "gpus:h200": milli})
    uow.quotas.give_back(of.project_id, {"jobs:queued": 1})
    shares = [share for _, mine in placed for share in mine]
    if shares and not uow.devices.take(shares, of.project_id):
        raise CommitConflict("devices")
    loads = [NodeLoad(node_id, 1, 1024) for node_id, _ in placed]
    if not uow.nodes.take(loads, of.project_id, isolation_node=False):
        raise CommitConflict("nodes")
    made = attempt(of, number, tasks_count=len(placed))
    uow.attempts.add(made)
    for rank, (node_id, mine) in enumerate(placed):
        amount = sum(share.milli for share in mine)
        one = task(
            made, node_id, rank, vcpus=1, memory_mib=1024, gpu_milli=amount,
            counted_gpus={"gpus": amount, "gpus:h200": amount},
        )  # fmt: skip
        uow.tasks.add(one)
        uow.allocations.add_many([
            Allocation(
                id=new_id(), task_id=one.id, device_id=share.device_id, node_id=node_id,
                job_id=of.id, project_id=of.project_id, milli=share.milli, allocated_at=THEN,
            )
            for share in mine
        ])  # fmt: skip
    uow.jobs.change(of.id, {"status": "starting", "waiting_elements": 0, "live_elements": 1})
    return made


def end(uow: UnitOfWork, of: Attempt) -> int:
    """Every task of the attempt goes; the attempt and its job end with it."""
    gone = uow.tasks.gone(
        [TaskEnd(one.id, exit_code=0) for one in uow.tasks.of_attempts([of.id])], uow.now()
    )
    if gone:
        uow.quotas.give_back(of.project_id, {"jobs:running": 1})
        uow.attempts.change(of.id, {"status": "ended", "live": None})
        uow.jobs.change(of.job_id, {"status": "succeeded", "live_elements": 0})
    return gone
