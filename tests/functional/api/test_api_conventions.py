# SPDX-License-Identifier: Apache-2.0
"""What holds for all nouns: fields, request ids, lists, generations, names, idempotency."""

from __future__ import annotations

import re
import uuid

import pytest
from api_answers import TYPE, actions, one, pool
from api_world import Client, error_of


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
