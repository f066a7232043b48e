# SPDX-License-Identifier: Apache-2.0
"""Quotas, limits and events."""

from __future__ import annotations

from api_answers import actions, one, pool
from api_world import error_of


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
