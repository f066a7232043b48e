# SPDX-License-Identifier: Apache-2.0
"""The scheduler and its dry runs over the API's world: what a job is told by the real planner."""

from __future__ import annotations

from typing import Any

from api_world import Client, Cluster, World
from fake_node import conduct, place

from gpuservice.conf import quota
from gpuservice.domain.inventory import Node
from gpuservice.domain.work import Job
from gpuservice.scheduler.collect import Collector, CollectSettings
from gpuservice.scheduler.commit import CommitSettings, Committer
from gpuservice.scheduler.leadership import Leadership
from gpuservice.scheduler.loop import SHARD, Scheduler
from gpuservice.scheduler.planning import SnapshotPlanning
from gpuservice.scheduler.policy import policy_of
from gpuservice.scheduler.preempting import Preempting

GPU_TYPE = "a100-80gb"


class Planned:
    """A cluster with its scheduler; ada works for vision, mallory for speech."""

    def __init__(self, world: World, cluster: Cluster, **scheduler: Any) -> None:
        for name, value in scheduler.items():
            world.conf.set_override(name, value, "scheduler")
        self.world, self.cluster = world, cluster
        self.admin = world.admin
        self.ada = world.client("vision")
        self.mallory = world.client("speech", user="mallory")
        settings = CollectSettings(protected_s=world.conf.scheduler.min_runtime_s, leads=True)
        self._scheduler = Scheduler(
            world.store,
            world.hints,
            world.clock,
            world.conf,
            Collector(quota.defaults(world.conf), settings),
            Committer(
                world.store,
                world.hints,
                world.ids,
                SHARD,
                CommitSettings(300, tuple(range(20000, 20100))),
            ),
            Preempting(world.store, world.hints, world.ids, SHARD),
            Leadership(world.store, SHARD, "test"),
        )

    def plan(self) -> None:
        """One pass that explains."""
        self._scheduler._explain_from = self._scheduler._numbers_from = float("-inf")
        self._scheduler._reasons_from = float("-inf")
        self._scheduler.step()

    def conduct(self) -> None:
        """The conductor looks at attempts."""
        conduct(self.world)

    def submit(self, client: Client, gpus: int = 4, **body: Any) -> str:
        """A job of one task with so many GPUs."""
        given = {
            "name": "a job", "command": ["true"], "resources": {"gpus": gpus},
            "max_runtime_s": 3600, **body,
        }  # fmt: skip
        given["name"] = given["name"].replace(" ", "-")
        answer = client.post("/jobs", {"job": given})
        assert answer.status_code == 202, answer.text
        return str(answer.get_json()["job"]["id"])

    def runs(self, client: Client, *nodes: Node, gpus: int = 4, **body: Any) -> str:
        """A job that runs on these nodes."""
        ident = self.submit(client, gpus, tasks={"count": len(nodes)}, **body)
        place(self.world, self.cluster, ident, nodes, gpus)
        return ident

    def full(self, client: Client, **body: Any) -> list[str]:
        """Every node runs a job."""
        return [self.runs(client, node, **body) for node in self.cluster.nodes]

    def queue(self, **values: Any) -> None:
        """Change the queue ``default``."""
        path = f"/queues/{self.cluster.queue.id}"
        answer = self.admin.patch(path, {"queue": values})
        assert answer.status_code == 200, answer.text

    def explain(self, client: Client, ident: str) -> dict[str, Any]:
        """What the job is told."""
        answer = client.get(f"/jobs/{ident}/explain")
        assert answer.status_code == 200, answer.text
        return dict(answer.get_json()["explanation"])


class RealPlanning:
    """The port ``Planning`` with the real planner, whose policy is read at the first use."""

    def __init__(self, world: World) -> None:
        self._world, self._made = world, None

    def dry_run(self, job: Job) -> Any:
        if self._made is None:
            conf = self._world.conf
            collector = Collector(
                quota.defaults(conf), CollectSettings(protected_s=conf.scheduler.min_runtime_s)
            )
            self._made = SnapshotPlanning(
                self._world.store, collector, policy_of(conf), fresh_s=0.0
            )
        return self._made.dry_run(job)
