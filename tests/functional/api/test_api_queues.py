# SPDX-License-Identifier: Apache-2.0
"""Queues: whose they are, who changes what of them, when they go."""

from __future__ import annotations

from api_answers import one, pool
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
