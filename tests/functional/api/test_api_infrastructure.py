# SPDX-License-Identifier: Apache-2.0
"""GPU types, hosts, devices, flavors, pools, nodes, queues, quotas, events: what they promise."""

from __future__ import annotations

import re
import uuid

import pytest
from api_world import Client, error_of

TYPE = {"gpu_type": {"name": "h100", "vendor": "nvidia", "memory_mib": 81559}}


def one(response, noun, status=200):
    assert response.status_code == status, response.text
    return response.get_json()[noun]


def pool(ada: Client, name="mine", status=202, **values):
    response = ada.post("/pools", {"pool": {"name": name, "flavor": "a100.4", **values}})
    return one(response, "pool", status) if status < 300 else error_of(response)


def actions(client: Client, query="") -> list[str]:
    return [event["action"] for event in client.get(f"/events?{query}").get_json()["events"]]


# -- what every answer has ---------------------------------------------------------------------
@pytest.mark.parametrize(
    ("noun", "path"),
    [
        ("gpu_types", "/gpu-types"),
        ("hosts", "/hosts"),
        ("devices", "/devices"),
        ("flavors", "/flavors"),
        ("pools", "/pools"),
        ("nodes", "/nodes"),
        ("queues", "/queues"),
    ],
)
def test_common_fields(admin, cluster, noun, path):
    listed = admin.get(path).get_json()[noun]
    assert listed
    for item in listed:
        assert uuid.UUID(item["id"]) and item["generation"] == 1
        assert "project_id" in item
        for name in ("created_at", "updated_at"):
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", item[name])
        assert {"rel": "self", "href": f"/v1{path}/{item['id']}"} in item["links"]
        response = admin.get(f"{path}/{item['id']}")
        assert response.headers["ETag"] == '"1"'
        assert next(iter(response.get_json().values())) == item


def test_request_ids(world, cluster):
    ada = world.client()
    given = "req-00000000-0000-4000-8000-000000000001"
    response = ada.post(
        "/pools", {"pool": {"name": "p", "flavor": "a100.4"}}, X_Openstack_Request_Id=given
    )
    local = response.headers["X-Openstack-Request-Id"]
    assert re.fullmatch(r"req-[0-9a-f-]{36}", local) and local != given
    event = ada.get("/events").get_json()["events"][0]
    assert (event["request_id"], event["global_request_id"]) == (local, given)
    assert event["actor"] == "user:ada"


def test_documents_need_no_authentication(world):
    nobody = Client(world.app, {})
    versions = nobody.raw("GET", "/").get_json()["versions"][0]
    assert versions["min_version"] == versions["max_version"] == "1.0"
    assert nobody.raw("GET", "/v1").get_json()["version"] == versions
    assert nobody.raw("GET", "/healthcheck").status_code == 200
    document = nobody.raw("GET", "/v1/openapi.json").get_json()
    assert document["openapi"].startswith("3.1")
    assert "/v1/pools/{id}" in document["paths"]


# -- lists -------------------------------------------------------------------------------------
def test_pages(world, cluster):
    ada = world.client()
    for number in range(5):
        pool(ada, f"p{number}")
    seen, href = [], "/pools?limit=2&sort=name:desc&with_count=true"
    while href:
        body = ada.get(href).get_json()
        assert body["count"] == 5
        seen += [item["name"] for item in body["pools"]]
        href = next(
            (link["href"].removeprefix("/v1") for link in body["links"] if link["rel"] == "next"),
            None,
        )
    assert seen == ["p4", "p3", "p2", "p1", "p0"]
    assert [item["name"] for item in ada.get("/pools?name=in:p1,p3").get_json()["pools"]] == [
        "p1",
        "p3",
    ]
    assert len(ada.get("/pools?name=neq:p1").get_json()["pools"]) == 4


@pytest.mark.parametrize(
    "path",
    [
        "/hosts",
        "/devices",
        "/flavors",
        "/pools",
        "/nodes",
        "/queues",
        "/quotas",
        "/gpu-types",
        "/events",
    ],
)
def test_lists_cost_the_same_for_many(world, path):
    world.seed(nodes=1, gpus=1)
    admin = world.admin
    with world.statements() as small:
        assert (
            admin.get(
                f"{path}?all_projects=true"
                if path not in ("/hosts", "/devices", "/flavors", "/quotas", "/gpu-types")
                else path
            ).status_code
            == 200
        )
    for number in range(10):
        admin.patch(f"/quotas/p{number}", {"quota": {"limits": {"gpus": number}}})
        admin.post("/gpu-types", {"gpu_type": {**TYPE["gpu_type"], "name": f"t{number}"}})
        admin.post(
            "/flavors", {"flavor": {"name": f"f{number}", "gpu_type": f"t{number}", "gpu_count": 1}}
        )
        owner = world.client(f"p{number}")
        owner.post(
            "/pools",
            {
                "pool": {
                    "name": "p",
                    "flavor": f"f{number}",
                    "max_nodes": 2,
                    "min_nodes": 2 if number > 1 else 1,
                }
            },
        )
        admin.post("/queues", {"queue": {"name": "q", "project_id": f"p{number}"}})
    with world.statements() as large:
        response = admin.get(
            f"{path}?all_projects=true"
            if path not in ("/hosts", "/devices", "/flavors", "/quotas", "/gpu-types")
            else path
        )
    assert response.status_code == 200
    assert len(large) == len(small) <= 5


# -- changes -----------------------------------------------------------------------------------
def test_generations(world, admin):
    created = admin.post("/gpu-types", TYPE)
    item = one(created, "gpu_type", 201)
    path = f"/gpu-types/{item['id']}"
    assert created.headers["Location"].endswith(f"/v1{path}")
    changed = admin.patch(path, {"gpu_type": {"architecture": "hopper"}}, If_Match='"1"')
    assert one(changed, "gpu_type")["generation"] == 2
    assert changed.headers["ETag"] == '"2"'
    stale = admin.patch(path, {"gpu_type": {"architecture": None}}, If_Match='"1"')
    assert error_of(stale)["status"] == 412
    assert error_of(admin.delete(path, If_Match='"1"'))["status"] == 412
    assert (
        one(admin.patch(path, {"gpu_type": {"architecture": None}}, If_Match="*"), "gpu_type")[
            "architecture"
        ]
        is None
    )
    assert admin.delete(path, If_Match='"3"').status_code == 204
    assert admin.get(path).status_code == 404
    assert actions(admin, "all_projects=true&target_type=gpu_type") == [
        "gpu_type.create",
        "gpu_type.change",
        "gpu_type.change",
        "gpu_type.delete",
    ]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/gpu-types", {"gpu_type": {**TYPE["gpu_type"], "name": "a100-80gb"}}),
        ("/flavors", {"flavor": {"name": "a100.4", "gpu_type": "a100-80gb", "gpu_count": 1}}),
        ("/pools", {"pool": {"name": "shared", "flavor": "a100.4"}}),
        ("/queues", {"queue": {"name": "default", "project_id": None}}),
    ],
)
def test_taken_names(world, cluster, path, body):
    error = error_of(world.admin.post(path, body))
    noun = next(iter(body))
    assert (error["status"], error["source"]["pointer"]) == (409, f"/{noun}/name")


def test_renaming_to_a_taken_name(world, cluster):
    ada = world.client()
    pool(ada, "first")
    second = pool(ada, "second")
    error = error_of(ada.patch(f"/pools/{second['id']}", {"pool": {"name": "first"}}))
    assert (error["status"], error["source"]["pointer"]) == (409, "/pool/name")
    assert (
        world.client("speech")
        .post("/pools", {"pool": {"name": "first", "flavor": "a100.4"}})
        .status_code
        == 202
    )


def test_names_are_not_ids(world, cluster):
    error = error_of(
        world.client().post("/pools", {"pool": {"name": str(uuid.uuid4()), "flavor": "a100.4"}})
    )
    assert (error["status"], error["source"]["pointer"]) == (400, "/pool/name")


# -- idempotency -------------------------------------------------------------------------------
def test_idempotency(world, cluster):
    ada, body = world.client(), {"pool": {"name": "p", "flavor": "a100.4"}}
    first = ada.post("/pools", body, Idempotency_Key="k1")
    again = ada.post("/pools", body, Idempotency_Key="k1")
    assert (again.status_code, again.data) == (first.status_code, first.data)
    for name in ("Location", "ETag"):
        assert again.headers[name] == first.headers[name]
    other = ada.post("/pools", {"pool": {"name": "q", "flavor": "a100.4"}}, Idempotency_Key="k1")
    assert error_of(other)["code"] == "gpu.idempotency.mismatch"
    assert len(ada.get("/pools").get_json()["pools"]) == 1


def test_idempotency_is_scoped_and_forgets_refusals(world, cluster):
    body = {"pool": {"name": "p", "flavor": "a100.4"}}
    for client in (world.client(), world.client("speech"), world.client("speech", user="bob")):
        response = client.post("/pools", body, Idempotency_Key="same")
        assert response.status_code == (409 if client.headers["X-User-Id"] == "bob" else 202)
    bob = world.client("speech", user="bob")
    bad = {"pool": {"name": "q", "flavor": "nothing"}}
    assert bob.post("/pools", bad, Idempotency_Key="b").status_code == 400
    assert (
        bob.post(
            "/pools", {**body, "pool": {**body["pool"], "name": "q"}}, Idempotency_Key="b"
        ).status_code
        == 202
    )


# -- operator's things -------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("action", "status"),
    [
        ("cordon", "cordoned"),
        ("drain", "draining"),
        ("maintenance", "maintenance"),
        ("uncordon", "enabled"),
    ],
)
def test_host_actions(admin, cluster, action, status):
    path = f"/hosts/{cluster.hosts[0].id}"
    for _ in range(2):  # what already holds is fine
        host = one(admin.post(f"{path}/action", {action: {"reason": "dust"}}), "host")
        assert host["status"] == status
    assert host["devices_total"] == 4
    assert actions(admin, "all_projects=true&target_type=host") == (
        [f"host.{action}"] if action != "uncordon" else []
    )


def test_device_actions(world, admin, cluster):
    path = f"/devices/{cluster.devices[0].id}"
    for action, health in (
        ("quarantine", "quarantined"),
        ("release", "healthy"),
        ("retest", "unknown"),
    ):
        assert one(admin.post(f"{path}/action", {action: None}), "device")["health"] == health
    assert actions(admin, "all_projects=true&target_type=device") == [
        "device.quarantine",
        "device.release",
        "device.retest",
    ]
    assert admin.get(path).get_json()["device"]["allocated_to"] == cluster.nodes[0].id


def test_one_action_at_a_time(admin, cluster):
    path = f"/hosts/{cluster.hosts[0].id}/action"
    for body in ({}, {"cordon": None, "drain": None}, {"explode": None}, {"cordon": {"x": 1}}):
        assert error_of(admin.post(path, body))["status"] == 400


def test_types_and_flavors_in_use_stay(admin, cluster):
    kind = admin.get("/gpu-types").get_json()["gpu_types"][0]
    assert error_of(admin.delete(f"/gpu-types/{kind['id']}"))["status"] == 409
    assert error_of(admin.delete(f"/flavors/{cluster.flavor.id}"))["status"] == 409


def test_private_flavors(world, admin, cluster):
    made = one(
        admin.post(
            "/flavors",
            {
                "flavor": {
                    "name": "given",
                    "gpu_type": "a100-80gb",
                    "gpu_count": 1,
                    "public": False,
                    "projects": ["vision", "speech"],
                }
            },
        ),
        "flavor",
        201,
    )
    vision, other = world.client("vision"), world.client("other")
    assert one(vision.get(f"/flavors/{made['id']}"), "flavor")["projects"] == ["vision"]
    assert error_of(other.get(f"/flavors/{made['id']}"))["status"] == 404
    assert "given" not in other.get("/flavors?with_count=true").text
    assert other.get("/flavors?with_count=true").get_json()["count"] == 1
    page = other.get("/flavors?limit=1").get_json()
    assert [item["name"] for item in page["flavors"]] == ["a100.4"]


def test_flavor_of_an_unknown_type(admin, cluster):
    error = error_of(
        admin.post("/flavors", {"flavor": {"name": "x", "gpu_type": "nothing", "gpu_count": 1}})
    )
    assert (error["status"], error["source"]["pointer"]) == (400, "/flavor/gpu_type")


def test_capacity(world, admin, cluster):
    def free(uow):
        uow.devices.change_many([one.id for one in cluster.devices[:4]], {"node_id": None})

    path = f"/flavors/{cluster.flavor.id}/capacity"
    assert one(admin.get(path), "capacity")["nodes"] == 0
    world.store.write(free)
    assert one(admin.get(path), "capacity") == {
        "nodes": 1,
        "hosts": [{"host": cluster.hosts[0].name, "nodes": 1}],
    }
    assert one(world.client().get(path), "capacity") == {"nodes": 1, "hosts": []}
    admin.post(f"/hosts/{cluster.hosts[0].id}/action", {"cordon": None})
    assert one(admin.get(path), "capacity")["nodes"] == 0


# -- pools and nodes ---------------------------------------------------------------------------
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


# -- queues ------------------------------------------------------------------------------------
def test_queues_of_a_project_and_of_all(world, admin, cluster):
    own = one(
        admin.post(
            "/queues",
            {"queue": {"name": "default", "project_id": "vision", "pools": [cluster.pool.id]}},
        ),
        "queue",
        201,
    )
    names = [
        (item["name"], item["project_id"])
        for item in world.client().get("/queues?sort=created_at").get_json()["queues"]
    ]
    assert names == [("default", None), ("default", "vision")]
    assert world.client("speech").get(f"/queues/{own['id']}").status_code == 404
    job = one(world.client().post("/jobs", {"job": {"name": "a", "command": ["x"]}}), "job", 202)
    assert job["queue_id"] == own["id"]


def test_what_a_manager_changes(world, admin, cluster):
    own = one(admin.post("/queues", {"queue": {"name": "q", "project_id": "vision"}}), "queue", 201)
    manager, path = world.client("vision", "manager"), f"/queues/{own['id']}"
    mine = pool(manager)
    changed = one(
        manager.patch(
            path,
            {
                "queue": {
                    "status": "drained",
                    "pools": [mine["name"]],
                    "kinds": {"training": {"max_runtime_s": 60}},
                }
            },
        ),
        "queue",
    )
    assert (changed["status"], changed["pools"]) == ("drained", [mine["id"]])
    for field, value in (
        ("weight", 3),
        ("max_priority", 900),
        ("projects", ["speech"]),
        ("nominal", {}),
        ("name", "r"),
        ("pools", [cluster.pool.id]),
    ):
        error = error_of(manager.patch(path, {"queue": {field: value}}))
        assert (error["status"], error["source"]["pointer"]) == (403, f"/queue/{field}")
    assert (
        error_of(world.client("vision", "member").patch(path, {"queue": {"status": "open"}}))[
            "status"
        ]
        == 403
    )
    assert (
        error_of(manager.patch(f"/queues/{cluster.queue.id}", {"queue": {"status": "closed"}}))[
            "status"
        ]
        == 403
    )


def test_maps_are_merged(admin, cluster):
    own = one(
        admin.post(
            "/queues",
            {
                "queue": {
                    "name": "q",
                    "nominal": {"a": 1, "b": 2},
                    "kinds": {"training": {"max_runtime_s": 60, "preemptible": False}},
                }
            },
        ),
        "queue",
        201,
    )
    changed = one(
        admin.patch(
            f"/queues/{own['id']}",
            {
                "queue": {
                    "nominal": {"a": None, "c": 3},
                    "kinds": {"training": {"max_runtime_s": 90}, "data": {"preemptible": True}},
                }
            },
        ),
        "queue",
    )
    assert changed["nominal"] == {"b": 2, "c": 3}
    assert changed["kinds"] == {
        "training": {"max_runtime_s": 90, "preemptible": False},
        "data": {"preemptible": True},
    }


def test_a_pool_serves_one_cohort(admin, cluster):
    def create(name, cohort):
        return admin.post(
            "/queues", {"queue": {"name": name, "cohort": cohort, "pools": [cluster.pool.id]}}
        )

    assert create("a", "red").status_code == 201
    assert create("b", "red").status_code == 201
    assert error_of(create("c", "blue"))["status"] == 409


def test_a_queue_with_jobs_stays(world, admin, cluster):
    path = f"/queues/{cluster.queue.id}"
    ada = world.client()
    job = one(ada.post("/jobs", {"job": {"name": "a", "command": ["x"]}}), "job", 202)
    assert error_of(admin.delete(path))["status"] == 409
    ada.post(f"/jobs/{job['id']}/action", {"cancel": None})
    assert admin.delete(path).status_code == 204


# -- quotas and events -------------------------------------------------------------------------
def test_quotas(world, admin, cluster):
    quota = one(
        admin.patch(
            "/quotas/vision",
            {"quota": {"limits": {"gpus": 8, "gpus:a100-80gb": 4, "jobs:queued": 0}}},
        ),
        "quota",
    )
    assert quota["limits"] == {
        "gpus": 8,
        "gpus:a100-80gb": 4,
        "jobs:queued": 0,
        "jobs:running": -1,
        "nodes": -1,
        "pools": -1,
    }
    quota = one(
        admin.patch("/quotas/vision", {"quota": {"limits": {"gpus": None, "gpus:a100-80gb": -1}}}),
        "quota",
    )
    assert (quota["limits"]["gpus"], quota["limits"]["gpus:a100-80gb"]) == (-1, -1)
    job = {"job": {"name": "a", "command": ["x"]}}
    assert error_of(world.client().post("/jobs", job))["code"] == "gpu.quota.exceeded"
    assert admin.delete("/quotas/vision").status_code == 204
    assert world.client().post("/jobs", job).status_code == 202
    assert actions(world.client(), "target_type=quota") == [
        "quota.change",
        "quota.change",
        "quota.delete",
    ]
    assert [one["project_id"] for one in admin.get("/quotas?limit=1").get_json()["quotas"]] == [
        "operators"
    ]
    assert [
        one["project_id"] for one in admin.get("/quotas?marker=operators").get_json()["quotas"]
    ] == ["vision"]


def test_limits_say_what_is_free(world, cluster):
    limits = one(world.client().get("/limits"), "limits")
    assert limits["free_now"] == {"a100-80gb": 8}
    assert limits["project_id"] == "vision"


def test_events_are_in_order_and_filtered(world, cluster):
    ada = world.client()
    made = [pool(ada, f"p{number}") for number in range(3)]
    events = ada.get("/events?action=pool.create&with_count=true").get_json()
    assert [event["target_id"] for event in events["events"]] == [one["id"] for one in made]
    assert events["count"] == 3
    newest = ada.get("/events?sort=at:desc&limit=1").get_json()["events"][0]
    assert newest["target_id"] == made[2]["id"]
    after = ada.get(f"/events?marker={events['events'][0]['id']}").get_json()["events"]
    assert [event["target_id"] for event in after][-1] == made[2]["id"]
    assert (
        ada.get(f"/events?target_id={made[1]['id']}").get_json()["events"][0]["target_id"]
        == made[1]["id"]
    )
