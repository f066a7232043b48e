# SPDX-License-Identifier: Apache-2.0
"""Suspend and resume, from the request to the node and back."""

from __future__ import annotations

from api_world import Client, Cluster, World, error_of
from fake_node import FakeNode, conduct, place, report


def test_suspend_and_resume(world: World, cluster: Cluster, ada: Client, node: FakeNode) -> None:
    """End to end: the node is told to stop the task within its grace, and says how it ended."""
    body = {"name": "a", "command": ["x"], "grace_period_s": 9}
    ident = ada.post("/jobs", {"job": body}).get_json()["job"]["id"]
    path = f"/jobs/{ident}/action"
    assert error_of(ada.post(path, {"suspend": None}))["status"] == 409
    place(world, cluster, ident, cluster.nodes[:1])
    (order,) = node.orders()
    node.orders(report(order["task_id"], "running"))
    conduct(world)
    shown = ada.post(path, {"suspend": None}).get_json()["job"]
    assert (shown["status"], shown["status_reason"], shown["hold"]) == (
        "preempting",
        "suspended",
        True,
    )
    told = ada.get(f"/jobs/{ident}/explain").get_json()["explanation"]["summary"]
    assert told.startswith("Stops on ") and told.endswith("within its grace period (suspended).")
    conduct(world)
    (order,) = node.orders()
    assert (order["action"], order["grace_s"]) == ("stop", 9)
    node.orders(report(order["task_id"], "gone", exit_code=143, stopped=True))
    conduct(world)
    shown = ada.get(f"/jobs/{ident}").get_json()["job"]
    assert (shown["status"], shown["status_reason"], shown["preempted_count"]) == (
        "held",
        "suspended",
        0,
    )
    (attempt,) = ada.get(f"/jobs/{ident}/attempts").get_json()["attempts"]
    assert (attempt["outcome"], attempt["stop_reason"]) == ("preempted", "suspended")
    assert ada.post(path, {"resume": None}).get_json()["job"]["status"] == "queued"
