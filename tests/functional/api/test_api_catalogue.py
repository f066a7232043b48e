# SPDX-License-Identifier: Apache-2.0
"""The operator's things: GPU types, flavors and their capacity, hosts, devices."""

from __future__ import annotations

import pytest
from api_answers import actions, one
from api_world import error_of


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
