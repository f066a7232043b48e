# SPDX-License-Identifier: Apache-2.0
"""What tests ask for again and again: the object of an answer, a new pool, what happened."""

from __future__ import annotations

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


def gpu_type(admin: Client, name):
    body = {"gpu_type": {**TYPE["gpu_type"], "name": name}}
    return one(admin.post("/gpu-types", body), "gpu_type", 201)


def cohort(admin: Client, name, **values):
    return one(admin.post("/cohorts", {"cohort": {"name": name, **values}}), "cohort", 201)
