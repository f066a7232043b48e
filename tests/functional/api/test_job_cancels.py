# SPDX-License-Identifier: Apache-2.0
"""Cancelling some elements of an array of which nothing waits any more."""

from __future__ import annotations

from typing import Any

from api_world import Client, Cluster, World
from fake_node import conduct, place, ready, report


def array(ada: Client, **fields: Any) -> str:
    """A new array; its id."""
    answer = ada.post("/jobs", {"job": {"name": "sweep", "command": ["true"], "array": fields}})
    assert answer.status_code == 202, answer.text
    return str(answer.get_json()["job"]["id"])


def cancel(ada: Client, ident: str, indices: str | None = None) -> dict[str, Any]:
    """Cancel all of a job, or some elements; the job afterwards."""
    how = {} if indices is None else {"indices": indices}
    answer = ada.post(f"/jobs/{ident}/action", {"cancel": how})
    assert answer.status_code == 202, answer.text
    return dict(answer.get_json()["job"])


def test_of_an_array_that_is_being_cancelled(world: World, cluster: Cluster, ada: Client) -> None:
    ready(world, cluster.nodes[0])
    ident, other = array(ada, size=10), array(ada, size=8)
    place(world, cluster, ident, cluster.nodes[:1])
    assert cancel(ada, ident)["status"] == "cancelling"
    shown = cancel(ada, ident, "5-9")
    assert (shown["status"], shown["counts"]["cancelled"]) == ("cancelling", 9)
    assert ada.get(f"/jobs/{other}").get_json()["job"]["counts"]["queued"] == 8
    assert ada.post(f"/jobs/{ident}/action", {"cancel": {"indices": "10"}}).status_code == 400
    assert world.recount() == []


def test_of_an_array_that_has_given_up(world: World, cluster: Cluster, ada: Client) -> None:
    node = ready(world, cluster.nodes[0])
    ident = array(ada, size=10, max_failures=0)
    place(world, cluster, ident, cluster.nodes[:1])
    place(world, cluster, ident, cluster.nodes[:1])
    first, second = node.orders()
    node.orders(report(first["task_id"], "gone", exit_code=1))
    conduct(world)
    shown = cancel(ada, ident, "7-9")
    assert (shown["counts"]["cancelled"], shown["counts"]["queued"]) == (8, 0)
    assert world.recount() == []
    node.orders(report(second["task_id"], "gone", exit_code=0))
    conduct(world)
    shown = ada.get(f"/jobs/{ident}").get_json()["job"]
    assert (shown["status"], shown["counts"]["cancelled"]) == ("failed", 8)


def test_the_last_that_waits_after_a_success(world: World, cluster: Cluster, ada: Client) -> None:
    node = ready(world, cluster.nodes[0])
    ident = array(ada, size=3)
    place(world, cluster, ident, cluster.nodes[:1])
    (order,) = node.orders()
    node.orders(report(order["task_id"], "gone", exit_code=0))
    conduct(world)
    shown = cancel(ada, ident, "0-2")
    assert shown["status"] == "failed", "an array succeeds only if all its elements did"
    assert shown["waiting"] is None
    assert shown["status_reason"] == "2 of 3 elements were cancelled"
    told = ada.get(f"/jobs/{ident}/explain").get_json()["explanation"]
    assert told["failure"]["class"] == "cancelled" and told["failure"]["what_to_do"]
    assert (shown["counts"]["succeeded"], shown["counts"]["cancelled"]) == (1, 2)
