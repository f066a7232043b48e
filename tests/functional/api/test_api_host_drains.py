# SPDX-License-Identifier: Apache-2.0
"""A host is drained over the API; the conductor moves its work away when the notice is over."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from api_world import Client, Cluster, World
from fake_node import FakeNode, conduct, place, report

from gpuservice.conductor.deps import Deps
from gpuservice.conductor.drains import Drains
from gpuservice.conductor.pools import Pools


@pytest.fixture
def job_id(world: World, cluster: Cluster, ada: Client, node: FakeNode) -> str:
    """A job that runs on the node, and whose attempts must not be spent."""
    body = {"name": "train", "command": ["true"], "retry": {"max_attempts": 1}}
    ident = ada.post("/jobs", {"job": body}).get_json()["job"]["id"]
    place(world, cluster, ident, cluster.nodes[:1])
    (order,) = node.orders()
    node.sync(tasks=[report(order["task_id"], "running")])
    conduct(world)
    assert status_of(ada, ident) == "running"
    return ident


def status_of(client: Client, ident: str) -> str:
    return client.get(f"/jobs/{ident}").get_json()["job"]["status"]


def conductor(world: World, kind: Any) -> Any:
    return kind(
        Deps(
            world.store, world.hints, world.clock, world.ids, world.conf,
            None, world.services.job_logs._deps.logs, None, "test",
        )
    )  # fmt: skip


def shown(world: World, cluster: Cluster) -> tuple[dict, dict]:
    host = world.admin.get(f"/hosts/{cluster.hosts[0].id}").get_json()["host"]
    node = world.admin.get(f"/nodes/{cluster.nodes[0].id}").get_json()["node"]
    return host, node


def act(world: World, cluster: Cluster, action: str, **details: Any) -> dict:
    answer = world.admin.post(f"/hosts/{cluster.hosts[0].id}/action", {action: details})
    assert answer.status_code == 200, answer.text
    return answer.get_json()["host"]


def pass_over(world: World, cluster: Cluster) -> None:
    """The notice is over."""
    late = datetime.now(UTC) - timedelta(seconds=1)
    for noun, ident in (("hosts", cluster.hosts[0].id), ("nodes", cluster.nodes[0].id)):
        world.store.write(
            lambda uow, noun=noun, ident=ident: getattr(uow, noun).change(
                ident, {"drain_deadline_at": late}
            )
        )


def test_work_goes_on_until_the_notice_is_over_then_elsewhere(world, cluster, node, ada, job_id):
    act(world, cluster, "drain", reason="new driver", notice_s=600)
    host, row = shown(world, cluster)
    assert (host["status"], row["status"]) == ("draining", "draining")  # at once
    assert host["drain_deadline_at"] == row["drain_deadline_at"]
    left = datetime.fromisoformat(host["drain_deadline_at"]) - datetime.now(UTC)
    assert 590 < left.total_seconds() <= 600
    assert conductor(world, Drains).step() == 0
    assert status_of(ada, job_id) == "running"

    pass_over(world, cluster)
    assert conductor(world, Drains).step() == 1
    assert conductor(world, Drains).step() == 0  # asked once
    conduct(world)
    (order,) = node.orders()
    assert order["action"] == "stop"
    node.sync(tasks=[report(order["task_id"], "gone", signal=15)])
    conduct(world)
    assert status_of(ada, job_id) == "queued"
    (attempt,) = ada.get(f"/jobs/{job_id}/attempts").get_json()["attempts"]
    assert (attempt["outcome"], attempt["failure_class"]) == ("preempted", "preempted")
    assert attempt["stop_reason"] == "drained"

    conductor(world, Pools).step()
    host, row = shown(world, cluster)
    assert (row["status"], row["live_tasks"], row["drain_deadline_at"]) == ("cordoned", 0, None)
    assert row["status_reason"] == "host_draining"

    act(world, cluster, "uncordon")
    host, row = shown(world, cluster)
    assert (host["status"], host["drain_deadline_at"]) == ("enabled", None)
    assert (row["status"], row["status_reason"]) == ("ready", None)


def test_without_notice_work_runs_to_its_end(world, cluster, node, ada, job_id):
    act(world, cluster, "drain")
    host, row = shown(world, cluster)
    assert row["status"] == "draining"
    assert host["drain_deadline_at"] is row["drain_deadline_at"] is None
    assert conductor(world, Drains).step() == 0
    assert status_of(ada, job_id) == "running"


def test_no_notice_at_all(world, cluster, node, ada, job_id):
    act(world, cluster, "drain", notice_s=0)
    assert conductor(world, Drains).step() == 1


def test_the_notice_can_be_changed_and_taken_back(world, cluster, node, ada, job_id):
    act(world, cluster, "drain", notice_s=1)
    first = shown(world, cluster)[1]["drain_deadline_at"]
    act(world, cluster, "drain", notice_s=3600)
    host, row = shown(world, cluster)
    assert row["drain_deadline_at"] == host["drain_deadline_at"] > first
    act(world, cluster, "drain")  # already so: nothing changes
    assert shown(world, cluster)[0]["drain_deadline_at"] == host["drain_deadline_at"]
    pass_over(world, cluster)
    act(world, cluster, "uncordon")
    assert conductor(world, Drains).step() == 0
    assert shown(world, cluster)[1]["status"] == "ready"
    assert status_of(ada, job_id) == "running"


def test_a_node_that_a_person_cordoned_stays_so(world, cluster):
    path = f"/nodes/{cluster.nodes[0].id}/action"
    world.admin.post(path, {"cordon": {"reason": "odd noise"}})
    act(world, cluster, "drain", notice_s=1)
    act(world, cluster, "uncordon")
    row = shown(world, cluster)[1]
    assert (row["status"], row["status_reason"]) == ("cordoned", "odd noise")

    world.admin.post(path, {"uncordon": None})
    act(world, cluster, "cordon")
    assert shown(world, cluster)[1]["status_reason"] == "host_cordoned"
    world.admin.post(path, {"cordon": {"reason": "me too"}})
    act(world, cluster, "uncordon")
    assert shown(world, cluster)[1]["status"] == "cordoned"


def test_the_conductor_tells_nodes_that_came_later(world, cluster, node, ada, job_id):
    act(world, cluster, "drain", notice_s=600)
    world.store.write(
        lambda uow: uow.nodes.change(
            cluster.nodes[0].id,
            {"status": "ready", "status_reason": None, "drain_deadline_at": None},
        )
    )
    conductor(world, Pools).step()
    host, row = shown(world, cluster)
    assert row["status"] == "draining"
    assert row["drain_deadline_at"] == host["drain_deadline_at"]
