# SPDX-License-Identifier: Apache-2.0
"""Cancelling some elements of an array, also when nothing of it waits; large jobs' ends."""

from __future__ import annotations

import time
from typing import Any

from api_world import Client, Cluster, World
from fake_node import conduct, place, ready, report

from gpuservice.domain.ports_store import Where
from gpuservice.domain.work import Artifact
from gpuservice.services.job_actions import indices_of, ranges


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


def test_thousands_at_once_hold_nobody_up(world: World, cluster: Cluster, ada: Client) -> None:
    """Whoever writes meanwhile waits: the statements must not grow with the elements."""
    world.admin.patch("/quotas/vision", {"quota": {"limits": {"jobs:queued": 20_000}}})
    ident = array(ada, size=10_000)
    began = time.monotonic()
    with world.statements() as some:
        shown = cancel(ada, ident, "0-4998,0-4998,5000-9999")
    assert shown["counts"]["cancelled"] == 9999
    assert len(some) < 60 and time.monotonic() - began < 5
    (event,) = [
        one
        for one in ada.get(f"/jobs/{ident}/events").get_json()["events"]
        if one["action"] == "job.cancel"
    ]
    assert event["detail"] == {"indices": "0-4998,5000-9999", "elements": 9999}
    requeued = (Where("index", "lt", 4000),)
    world.store.write(
        lambda uow: (
            uow.elements.change_where(ident, {"status": "queued"}, *requeued),
            uow.jobs.change(ident, {"waiting_elements": 4001, "cancelled_elements": 5999}),
            uow.quotas.take("vision", {"jobs:queued": 4000}),
        )
    )
    with world.statements() as again:
        assert cancel(ada, ident, "0-3000")["counts"]["cancelled"] == 9000
        assert cancel(ada, ident)["status"] == "cancelled"
    assert len(again) < 100
    rows = world.store.read(lambda uow: uow.elements.of_job(ident))
    assert {row.status for row in rows} == {"cancelled"}
    assert world.recount() == []


def test_a_job_goes_with_its_artifacts(world: World, cluster: Cluster, ada: Client) -> None:
    ident, other = array(ada, size=2), array(ada, size=2)

    def artifact(job_id: str, number: int) -> Artifact:
        return Artifact(
            id=world.ids.new(), job_id=job_id, attempt_id="a", task_id="t" + job_id, index=0,
            attempt=1, rank=0, project_id="vision", path=f"p{number}", size=1, sha256="ab" * 32,
            object_key=f"{job_id}/{number}", created_at=world.clock.now(), published=True,
        )  # fmt: skip

    world.store.write(
        lambda uow: uow.artifacts.add_many(
            [artifact(job, number) for job in (ident, other) for number in range(500)]
        )
    )
    with world.statements() as seen:
        assert ada.delete(f"/jobs/{ident}").status_code == 204
    assert len(seen) < 50
    left = world.store.read(lambda uow: uow.artifacts.find())
    assert {one.job_id for one in left} == {other} and len(left) == 500


def test_indices_and_back() -> None:
    assert indices_of("7-9,3,8", 10) == [3, 7, 8, 9]
    assert ranges([3, 7, 8, 9]) == "3,7-9"
    assert (ranges([]), ranges([0]), ranges([0, 1, 3])) == ("", "0", "0-1,3")


def test_a_cancelled_job_gives_no_reason_of_before(
    world: World, cluster: Cluster, ada: Client
) -> None:
    answer = ada.post("/jobs", {"job": {"name": "one", "command": ["true"]}})
    ident = answer.get_json()["job"]["id"]
    for action in ("hold", "release", "hold"):
        assert ada.post(f"/jobs/{ident}/action", {action: None}).status_code == 202
    shown = cancel(ada, ident)
    assert (shown["status"], shown["status_reason"]) == ("cancelled", "cancelled")
