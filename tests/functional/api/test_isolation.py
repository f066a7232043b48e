# SPDX-License-Identifier: Apache-2.0
"""Tasks of two projects on one node: only where the pool says so and the agent has proved it."""

from __future__ import annotations

from typing import Any

import pytest
from api_world import Client, Cluster, World
from fake_node import FakeNode, bootable, commit, place

PROVED: dict[str, Any] = {
    "own_uid": True,
    "namespaces": ["mount", "pid", "ipc"],
    "device_filter": True,
    "private_tmp": True,
    "cgroups": True,
}
WEAKER = {**PROVED, "device_filter": False, "device_filter_reason": "no BPF here"}


@pytest.fixture
def cluster(world: World) -> Cluster:
    made = world.seed()
    world.store.write(lambda uow: uow.pools.change(made.pool.id, {"isolation": "device"}))
    return made


def serving(world: World, cluster: Cluster, capabilities: dict[str, Any]) -> FakeNode:
    node = bootable(world, cluster.nodes[0])
    assert node.register(capabilities=capabilities).status_code == 200
    world.store.write(lambda uow: uow.nodes.change(node.node.id, {"status": "ready"}))
    return node


def submit(client: Client) -> str:
    answer = client.post("/jobs", {"job": {"name": "j", "command": ["true"]}})
    assert answer.status_code == 202, answer.text
    return answer.get_json()["job"]["id"]


def test_two_projects_where_it_is_proved(world, cluster):
    serving(world, cluster, PROVED)
    for project in ("vision", "speech"):
        place(world, cluster, submit(world.client(project)), cluster.nodes[:1])


def test_one_project_where_it_is_not(world, cluster):
    serving(world, cluster, WEAKER)
    first, second, third = (
        submit(world.client(project)) for project in ("vision", "speech", "vision")
    )
    place(world, cluster, first, cluster.nodes[:1])
    assert commit(world, cluster, second, cluster.nodes[:1]).overtaken == [second]
    place(world, cluster, third, cluster.nodes[:1])


def test_the_operator_sees_why(world, cluster, admin):
    node = serving(world, cluster, WEAKER)
    shown = admin.get(f"/nodes/{node.node.id}").get_json()["node"]
    assert shown["unproved"] == ["device_filter (no BPF here)"]
    assert admin.get(f"/nodes/{cluster.nodes[1].id}").get_json()["node"]["unproved"] is None
    explained = admin.get(f"/pools/{cluster.pool.id}/explain").get_json()["explanation"]
    assert explained["isolation"] == {
        "wanted": "device",
        "one_project_at_a_time": [
            {"node_id": node.node.id, "unproved": ["device_filter (no BPF here)"]}
        ],
    }


@pytest.mark.parametrize(
    "wrong", [{"namespaces": 5}, {"own_uid": "yes"}, {"device_filter_reason": ["x"]}]
)
def test_capabilities_that_are_none(world, cluster, wrong):
    assert bootable(world, cluster.nodes[0]).register(capabilities=wrong).status_code == 400
