# SPDX-License-Identifier: Apache-2.0
"""Queues: whose they are, who changes what of them, when they go."""

from __future__ import annotations

import pytest
from api_answers import cohort, gpu_type, one, pool
from api_world import error_of


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
    for name in ("b", "c"):
        gpu_type(admin, name)
    own = one(
        admin.post(
            "/queues",
            {
                "queue": {
                    "name": "q",
                    "nominal": {"a100-80gb": 1, "b": 2},
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
                    "nominal": {"a100-80gb": None, "c": 3},
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

    red, _ = cohort(admin, "red"), cohort(admin, "blue")
    assert create("a", "red").status_code == 201
    assert one(create("b", red["id"]), "queue", 201)["cohort"] == "red"
    free = one(create("c", None), "queue", 201)
    refused = error_of(create("d", "blue"))
    assert (refused["status"], refused["source"]["pointer"]) == (409, "/queue/cohort")
    assert refused["detail"] == (
        f"The pool {cluster.pool.name!r} serves queues of the cohort 'red'; a pool serves queues "
        "of one cohort."
    )
    refused = admin.patch(f"/queues/{free['id']}", {"queue": {"cohort": "blue"}})
    assert error_of(refused)["status"] == 409
    moved = admin.patch(f"/queues/{free['id']}", {"queue": {"cohort": "blue", "pools": []}})
    assert one(moved, "queue")["cohort"] == "blue"
    refused = admin.patch(f"/queues/{free['id']}", {"queue": {"pools": [cluster.pool.id]}})
    assert error_of(refused)["status"] == 409


def test_a_queue_with_jobs_stays(world, admin, cluster):
    path = f"/queues/{cluster.queue.id}"
    ada = world.client()
    job = one(ada.post("/jobs", {"job": {"name": "a", "command": ["x"]}}), "job", 202)
    assert error_of(admin.delete(path))["status"] == 409
    ada.post(f"/jobs/{job['id']}/action", {"cancel": None})
    assert admin.delete(path).status_code == 204


@pytest.mark.parametrize("field", ["nominal", "borrowing_limit", "lending_limit"])
def test_numbers_are_of_gpu_types_that_exist(admin, cluster, field):
    refused = error_of(admin.post("/queues", {"queue": {"name": "q", field: {"h900": 1}}}))
    assert (refused["status"], refused["source"]["pointer"]) == (400, f"/queue/{field}/h900")
    made = one(
        admin.post("/queues", {"queue": {"name": "q", field: {"a100-80gb": 1}}}), "queue", 201
    )
    path = f"/queues/{made['id']}"
    refused = error_of(admin.patch(path, {"queue": {field: {"h900": 2}}}))
    assert refused["source"]["pointer"] == f"/queue/{field}/h900"
    for number in (-1, 1.5, 2**31, "1"):
        assert (
            error_of(admin.patch(path, {"queue": {field: {"a100-80gb": number}}}))["status"] == 400
        )
    h900 = gpu_type(admin, "h900")
    assert one(admin.patch(path, {"queue": {field: {"h900": 2}}}), "queue")[field]["h900"] == 2
    refused = error_of(admin.delete(f"/gpu-types/{h900['id']}"))
    assert refused["status"] == 409 and "'q'" in refused["detail"]
    assert admin.patch(path, {"queue": {field: {"h900": None}}}).status_code == 200
    assert admin.delete(f"/gpu-types/{h900['id']}").status_code == 204


def test_whose_queues_a_cohort_takes(admin, cluster):
    own = cohort(admin, "own", projects=["vision"])
    path = f"/cohorts/{own['id']}"

    def create(name, project):
        return admin.post(
            "/queues", {"queue": {"name": name, "cohort": "own", "project_id": project}}
        )

    assert create("a", "vision").status_code == 201
    assert create("b", None).status_code == 201
    refused = error_of(create("c", "speech"))
    assert (refused["status"], refused["source"]["pointer"]) == (400, "/queue/cohort")
    assert refused["detail"] == error_of(
        admin.post("/queues", {"queue": {"name": "d", "cohort": "nothing"}})
    )["detail"].replace("nothing", "own")
    refused = error_of(admin.patch(path, {"cohort": {"projects": ["speech"]}}))
    assert (refused["status"], refused["source"]["pointer"]) == (409, "/cohort/projects")
    assert one(admin.patch(path, {"cohort": {"projects": ["*"]}}), "cohort")["projects"] == ["*"]
    assert create("c", "speech").status_code == 201


def test_a_cohort_with_queues_stays_and_may_have_another_name(admin, cluster):
    red = cohort(admin, "red")
    assert (red["projects"], red["project_id"], red["generation"]) == (["*"], None, 1)
    path = f"/cohorts/{red['id']}"
    made = one(admin.post("/queues", {"queue": {"name": "q", "cohort": "red"}}), "queue", 201)
    assert error_of(admin.delete(path))["detail"].startswith("The cohort 'red' has 1 queues.")
    assert error_of(admin.post("/cohorts", {"cohort": {"name": "red"}}))["status"] == 409
    one(admin.patch(path, {"cohort": {"name": "crimson"}}, If_Match='"1"'), "cohort")
    assert error_of(admin.patch(path, {"cohort": {"name": "x"}}, If_Match='"1"'))["status"] == 412
    assert one(admin.get(f"/queues/{made['id']}"), "queue")["cohort"] == "crimson"
    assert admin.patch(f"/queues/{made['id']}", {"queue": {"cohort": None}}).status_code == 200
    assert admin.delete(path).status_code == 204
    assert error_of(admin.get(path))["status"] == 404


def test_cohorts_are_the_operators(world, admin, cluster):
    red = cohort(admin, "red")
    manager = world.client("vision", "manager")
    for answer in (
        manager.get("/cohorts"),
        manager.get(f"/cohorts/{red['id']}"),
        manager.post("/cohorts", {"cohort": {"name": "blue"}}),
        manager.patch(f"/cohorts/{red['id']}", {"cohort": {"name": "blue"}}),
        manager.delete(f"/cohorts/{red['id']}"),
    ):
        assert error_of(answer)["status"] == 403
    assert [one["name"] for one in admin.get("/cohorts?name=red").get_json()["cohorts"]] == ["red"]
