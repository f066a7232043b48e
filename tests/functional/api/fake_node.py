# SPDX-License-Identifier: Apache-2.0
"""A node's agent as tests play it, and the two halves of the service around it.

``place`` commits a job to nodes as the scheduler would; ``conduct`` moves attempts on as the
conductor would.
"""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from api_world import Client, Cluster, World
from werkzeug.test import TestResponse

from gpuservice.conductor.attempts import Attempts
from gpuservice.conductor.deps import Deps
from gpuservice.domain.inventory import Node
from gpuservice.domain.ports_store import Where
from gpuservice.domain.work import Attempt, Task
from gpuservice.drivers.logs.file import FileLogStore
from gpuservice.drivers.objects.file import FileObjectStore
from gpuservice.planner.plan_types import Start
from gpuservice.planner.snapshot import TaskPlacement
from gpuservice.scheduler.commit import CommitSettings, Committer, Outcome

TOKEN = "one-time-token-of-the-node"


def conduct(world: World) -> int:
    """Move every attempt on that wants attention."""
    return Attempts(
        Deps(
            world.store, world.hints, world.clock, world.ids, world.conf,
            None,  # type: ignore[arg-type]  # attempts never ask the cloud
            FileLogStore(world.conf), FileObjectStore(world.conf), "test",
        )
    ).step()  # fmt: skip


def place(
    world: World, cluster: Cluster, job_id: str, nodes: Sequence[Node], gpus: int = 1
) -> None:
    """Start one element of a job: one rank on each node, with the first free devices there."""
    assert commit(world, cluster, job_id, nodes, gpus).started == [job_id]


def commit(
    world: World,
    cluster: Cluster,
    job_id: str,
    nodes: Sequence[Node],
    gpus: int = 1,
    meanwhile: Callable[[], object] = lambda: None,
) -> Outcome:
    """Try that; the database decides. ``meanwhile`` happens between snapshot and commit."""
    epoch = world.store.write(lambda uow: uow.raise_epoch("test", "test"))
    ranks: list[TaskPlacement] = []
    for rank, node in enumerate(nodes):
        free = world.store.read(
            lambda uow, node=node: uow.devices.find(
                Where("node_id", "eq", node.id),
                Where("used_milli", "eq", 0),
                limit=gpus,
                order=(("ordinal", "asc"),),
            )
        )
        ranks.append(TaskPlacement(rank, node.id, tuple((one.id, 1000) for one in free), 1, 1024))
    committer = Committer(
        world.store, world.hints, world.ids, "test", CommitSettings(300, tuple(range(20000, 20100)))
    )
    rows, pools = world.store.read(
        lambda uow: (
            uow.nodes.get_many([node.id for node in cluster.nodes]),
            uow.pools.get_many([cluster.pool.id]),
        )
    )
    meanwhile()
    return committer.commit(
        epoch,
        [Start(job_id, tuple(ranks))],
        {node.id: node for node in rows},
        {pool.id: pool for pool in pools},
    )


def attempt_of(world: World, job_id: str, number: int = 1) -> Attempt:
    """An attempt of the job's element 0."""
    (found,) = world.store.read(
        lambda uow: uow.attempts.find(
            Where("job_id", "eq", job_id), Where("index", "eq", 0), Where("number", "eq", number)
        )
    )
    return found


def tasks_of(world: World, job_id: str, number: int = 1) -> list[Task]:
    """The tasks of an attempt by rank."""
    attempt = attempt_of(world, job_id, number)
    return world.store.read(lambda uow: uow.tasks.of_attempts([attempt.id]))


@dataclass
class FakeNode:
    """One node's agent. Make it with :func:`bootable`, then ``register``."""

    world: World
    node: Node
    devices: list[dict[str, Any]]
    secret: str
    instance: str = field(default_factory=lambda: str(uuid.uuid4()))
    epoch: int = 1
    revision: int = 0

    @property
    def client(self) -> Client:
        return Client(
            self.world.app,
            {
                "Authorization": f"Bearer {self.secret}",
                "OpenStack-GPU-Node-Epoch": str(self.epoch),
            },
        )

    def register(self, **changed: Any) -> TestResponse:
        """Report for duty."""
        body = {
            "bootstrap": TOKEN + self.node.id, "secret": self.secret, "instance": self.instance,
            "agent_version": "1", "devices": self.devices, "vcpus": 32, "memory_mib": 262144,
            "capabilities": {"own_uid": True, "namespaces": ["mount", "pid"]},
        }  # fmt: skip
        answer = self.client.post("/agent/register", {**body, **changed})
        if answer.status_code == 200:
            self.epoch = answer.get_json()["epoch"]
        return answer

    def sync(self, *tasks: dict[str, Any], wait_s: int = 0, **changed: Any) -> TestResponse:
        """One exchange; applies the revision of the answer."""
        body = {
            "epoch": self.epoch, "revision": self.revision, "instance": self.instance,
            "tasks": list(tasks), "devices": [], "telemetry": {}, "wait_s": wait_s,
        }  # fmt: skip
        answer = self.client.post("/agent/sync", {**body, **changed})
        if answer.status_code == 200:
            self.revision = answer.get_json()["revision"]
        return answer

    def orders(self, *tasks: dict[str, Any], **changed: Any) -> list[dict[str, Any]]:
        """The tasks of a sync's answer."""
        answer = self.sync(*tasks, **changed)
        assert answer.status_code == 200, answer.text
        return answer.get_json()["tasks"]

    def send_log(self, task_id: str, offset: int, data: bytes) -> TestResponse:
        """A piece of stdout by the log call."""
        return self.client.raw(
            "POST", f"/v1/agent/tasks/{task_id}/logs?stream=stdout&offset={offset}", data=data
        )

    def put(self, task_id: str, where: str, data: bytes) -> TestResponse:
        """A file below a task."""
        return self.client.raw("PUT", f"/v1/agent/tasks/{task_id}/{where}", data=data)


def bootable(world: World, node: Node, **values: Any) -> FakeNode:
    """A node that waits for its agent's registration."""
    token = hashlib.sha256((TOKEN + node.id).encode()).hexdigest()
    given = {
        "status": "configuring", "bootstrap_hash": token,
        "bootstrap_expires_at": datetime.now(UTC) + timedelta(minutes=5), **values,
    }  # fmt: skip
    world.store.write(lambda uow: uow.nodes.change(node.id, given))
    devices = world.store.read(lambda uow: uow.devices.find(Where("node_id", "eq", node.id)))
    told = [
        {"address": one.address, "vendor": one.vendor, "product_id": "20b5", "uuid": None,
         "memory_mib": one.memory_mib, "index": one.ordinal, "numa_node": None,
         "link_group": None}
        for one in devices
    ]  # fmt: skip
    return FakeNode(world, node, told, world.ids.secret())


def ready(world: World, node: Node) -> FakeNode:
    """A registered node that takes tasks."""
    fake = bootable(world, node)
    assert fake.register().status_code == 200
    world.store.write(lambda uow: uow.nodes.change(node.id, {"status": "ready"}))
    return fake


def report(task_id: str, state: str, **more: Any) -> dict[str, Any]:
    """What an agent says of a task."""
    return {"task_id": task_id, "state": state, **more}


def piece(offset: int, data: bytes, end: bool = False) -> dict[str, Any]:
    """A piece of a log that rides in a sync."""
    return {"offset": offset, "data_b64": base64.b64encode(data).decode(), "end": end}
