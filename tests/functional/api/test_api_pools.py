# SPDX-License-Identifier: Apache-2.0
"""Pools and their nodes: made, resized and deleted within the quota."""

from __future__ import annotations

import pytest
from api_answers import actions, one, pool
from api_world import error_of

from gpuservice.scheduler.collect import Collector


def test_a_pool_gets_its_nodes(world, cluster):
    ada = world.client()
    made = pool(ada, min_nodes=2, max_nodes=3)
    assert (made["status"], made["target_nodes"], made["project_id"]) == ("creating", 2, "vision")
    nodes = ada.get(f"/nodes?pool_id={made['id']}").get_json()["nodes"]
    assert [node["status"] for node in nodes] == ["requested", "requested"]
    usage = one(ada.get("/limits"), "limits")["usage"]
    assert (usage["pools"], usage["nodes"], usage["gpus"], usage["gpus:a100-80gb"]) == (1, 2, 8, 8)
    assert any(hint.kind == "pools" for hint in world.hints.sent)
    assert one(ada.get(f"/pools/{made['id']}/explain"), "explanation")["nodes"] == {"requested": 2}


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        ({"pools": 0}, "pools"),
        ({"nodes": 1}, "nodes"),
        ({"gpus": 7}, "gpus"),
        ({"gpus:a100-80gb": 4}, "gpus:a100-80gb"),
    ],
)
def test_pools_within_quota(world, admin, cluster, limits, name):
    admin.patch("/quotas/vision", {"quota": {"limits": limits}})
    error = pool(world.client(), min_nodes=2, max_nodes=2, status=403)
    assert error["code"] == "gpu.quota.exceeded"
    assert error["meta"]["limit"] == name and error["meta"]["value"] == limits[name]
    ada = world.client()
    assert ada.get("/pools").get_json()["pools"] == []
    assert ada.get("/nodes").get_json()["nodes"] == []
    assert actions(ada) == ["quota.change"]


@pytest.mark.parametrize(
    ("values", "pointer"),
    [
        ({"min_nodes": 3, "max_nodes": 2}, "/pool/min_nodes"),
        ({"min_nodes": 1, "max_nodes": 2, "target_nodes": 3}, "/pool/target_nodes"),
        ({"flavor": "nothing"}, "/pool/flavor"),
        ({"engine": "none"}, "/pool/engine"),
        ({"engine_options": {"a": "b"}}, "/pool/engine_options"),
        ({"on_shortage": "fail"}, "/pool/on_shortage"),
        ({"reservation": "mine"}, "/pool/reservation"),
    ],
)
def test_pools_that_make_no_sense(world, cluster, values, pointer):
    error = pool(world.client(), status=400, **values)
    assert error["source"]["pointer"] == pointer


def test_sharing_is_the_operators(world, cluster):
    ada = world.client("vision", "manager")
    for field, value in (("shared_with", ["speech"]), ("isolation", "none")):
        error = pool(ada, status=403, **{field: value})
        assert error["source"]["pointer"] == f"/pool/{field}"


def test_resizing(world, cluster):
    ada = world.client()
    path = f"/pools/{pool(ada, max_nodes=4)['id']}"
    changed = one(ada.patch(path, {"pool": {"target_nodes": 3}}), "pool")
    assert (changed["target_nodes"], changed["generation"]) == (3, 2)
    error = error_of(ada.patch(path, {"pool": {"target_nodes": 5}}))
    assert error["source"]["pointer"] == "/pool/target_nodes"
    one(ada.patch(path, {"pool": {"autoscale": True}}), "pool")
    assert error_of(ada.patch(path, {"pool": {"target_nodes": 2}}))["status"] == 409


def test_deleting_a_pool(world, cluster):
    ada = world.client()
    path = f"/pools/{pool(ada)['id']}"
    for _ in range(2):
        assert one(ada.delete(path), "pool", 202)["status"] == "deleting"
    assert error_of(ada.patch(path, {"pool": {"max_nodes": 2}}))["status"] == 409
    assert actions(ada, "target_type=pool") == ["pool.create", "pool.delete"]


def test_a_pool_that_a_queue_names_stays(world, admin, cluster):
    error = error_of(admin.delete(f"/pools/{cluster.pool.id}"))
    assert (error["status"], error["code"]) == (409, "gpu.object.conflict")
    assert "'default'" in error["detail"]
    assert admin.patch(f"/queues/{cluster.queue.id}", {"queue": {"pools": []}}).status_code == 200
    assert admin.delete(f"/pools/{cluster.pool.id}").status_code == 202


def test_a_pool_that_is_no_longer_shared_serves_no_foreign_queue(world, admin, cluster):
    body = {"queue": {"name": "own", "project_id": "vision", "pools": [cluster.pool.id]}}
    own = one(admin.post("/queues", body), "queue", 201)["id"]

    def pools():
        found = world.store.read(Collector({}).collect).snapshot.queues
        return {queue.id: queue.pool_ids for queue in found}

    assert pools() == {own: (cluster.pool.id,), cluster.queue.id: (cluster.pool.id,)}
    one(admin.patch(f"/pools/{cluster.pool.id}", {"pool": {"shared_with": ["speech"]}}), "pool")
    assert pools() == {own: (), cluster.queue.id: (cluster.pool.id,)}
    one(admin.patch(f"/pools/{cluster.pool.id}", {"pool": {"shared_with": ["vision"]}}), "pool")
    assert pools()[own] == (cluster.pool.id,)


def test_node_actions(world, admin, cluster):
    path = f"/nodes/{cluster.nodes[0].id}/action"
    for action, status in (
        ("cordon", "cordoned"),
        ("cordon", "cordoned"),
        ("drain", "draining"),
        ("uncordon", "ready"),
        ("uncordon", "ready"),
    ):
        assert one(admin.post(path, {action: None}), "node")["status"] == status
    error = error_of(admin.post(path, {"repair": None}))
    assert (error["status"], error["code"]) == (409, "gpu.object.wrong_status")
    assert actions(admin, "target_type=node") == ["node.cordon", "node.drain", "node.uncordon"]
