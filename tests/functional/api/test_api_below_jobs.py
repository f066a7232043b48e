# SPDX-License-Identifier: Apache-2.0
"""Lists below a job: pages by marker, filters, and a cost that its length does not change."""

from __future__ import annotations

from datetime import timedelta

import pytest
from api_world import Client, Cluster, World, error_of

from gpuservice.domain.work import Artifact, Attempt, Task

ELEMENTS, TRIES = 3, 4


@pytest.fixture
def job_id(world: World, cluster: Cluster, ada: Client) -> str:
    """An array of three elements, each tried four times, with an artifact a try."""
    body = {"name": "sweep", "command": ["true"], "array": {"size": ELEMENTS}, "hold": True}
    ident = ada.post("/jobs", {"job": body}).get_json()["job"]["id"]
    return with_history(world, cluster, ident)


def with_history(world: World, cluster: Cluster, ident: str) -> str:
    def work(uow):
        now = uow.now()
        for index in range(ELEMENTS):
            for number in range(1, TRIES + 1):
                then = now + timedelta(seconds=number)
                attempt = Attempt(
                    id=world.ids.new(), job_id=ident, index=index, number=number,
                    project_id="vision", queue_id=cluster.queue.id, pool_id=cluster.pool.id,
                    status="ended", outcome="failed" if number < TRIES else "succeeded",
                    live=None, created_at=then, ended_at=then, tasks_count=1, gang_secret="0" * 64,
                )  # fmt: skip
                uow.attempts.add(attempt)
                task = Task(
                    id=world.ids.new(), attempt_id=attempt.id, job_id=ident, index=index,
                    attempt=number, rank=0, project_id="vision", node_id=cluster.nodes[0].id,
                    node_epoch=1, status="gone", created_at=then, gone_at=then,
                )  # fmt: skip
                uow.tasks.add(task)
                uow.artifacts.add(
                    Artifact(
                        id=world.ids.new(),
                        job_id=ident,
                        attempt_id=attempt.id,
                        task_id=task.id,
                        index=index,
                        attempt=number,
                        rank=0,
                        project_id="vision",
                        path="out/x",
                        size=1,
                        sha256="ab" * 32,
                        object_key=f"{ident}/{index}/{number}",
                        published=True,
                        created_at=then,
                    )
                )

    world.store.write(work)
    return ident


def pages(client: Client, path: str, noun: str, limit: int) -> list[list[dict]]:
    """Every page, by its links."""
    found, link = [], f"{path}limit={limit}"
    while link is not None:
        body = client.get(link).get_json()
        found.append(body[noun])
        links = {one["rel"]: one["href"] for one in body["links"]}
        link = links["next"].removeprefix("/v1") if "next" in links else None
    return found


def test_attempts_page_by_page(ada, job_id):
    found = pages(ada, f"/jobs/{job_id}/attempts?", "attempts", 5)
    assert [len(page) for page in found] == [5, 5, 2]
    keys = [(one["index"], one["number"]) for page in found for one in page]
    assert keys == [(i, n) for i in (2, 1, 0) for n in (4, 3, 2, 1)]
    assert found[0][0]["tasks"][0]["rank"] == 0


def test_artifacts_page_by_page(ada, job_id):
    found = pages(ada, f"/jobs/{job_id}/artifacts?", "artifacts", 5)
    assert [len(page) for page in found] == [5, 5, 2]
    keys = [(one["index"], one["path"]) for page in found for one in page]
    assert keys == [(i, f"{n}/0/out/x") for i in range(3) for n in (1, 2, 3, 4)]


@pytest.mark.parametrize("noun", ["attempts", "artifacts"])
def test_filter_sort_and_count(ada, job_id, noun):
    path = f"/jobs/{job_id}/{noun}"
    body = ada.get(f"{path}?index=1&with_count=true&limit=2").get_json()
    assert body["count"] == TRIES
    assert {one["index"] for one in body[noun]} == {1}
    ordered = ada.get(f"{path}?sort=index:asc&limit=1").get_json()[noun]
    assert ordered[0]["index"] == 0


def test_attempts_by_outcome(ada, job_id):
    found = ada.get(f"/jobs/{job_id}/attempts?outcome=succeeded").get_json()["attempts"]
    assert [(one["index"], one["number"]) for one in found] == [(2, 4), (1, 4), (0, 4)]


@pytest.mark.parametrize("noun", ["attempts", "artifacts"])
@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", "colour=red", "sort=colour", "index=one"]
)
def test_wrong_queries(ada, job_id, noun, query):
    answer = ada.get(f"/jobs/{job_id}/{noun}?{query}")
    assert answer.status_code == 400
    assert error_of(answer)["source"]["pointer"] == f"/{query.partition('=')[0]}"


@pytest.mark.parametrize("noun", ["attempts", "artifacts"])
def test_a_marker_of_another_job_is_as_good_as_none(world, cluster, ada, job_id, noun):
    body = {"name": "other", "command": ["true"], "hold": True}
    other = ada.post("/jobs", {"job": body}).get_json()["job"]["id"]
    with_history(world, cluster, other)
    theirs = ada.get(f"/jobs/{other}/{noun}?limit=1").get_json()[noun][0]["id"]
    foreign = ada.get(f"/jobs/{job_id}/{noun}?marker={theirs}")
    nothing = ada.get(f"/jobs/{job_id}/{noun}?marker={other}")
    assert foreign.status_code == nothing.status_code == 400
    said = [
        error_of(one)["detail"].replace(theirs, "").replace(other, "") for one in (foreign, nothing)
    ]
    assert said[0] == said[1]


@pytest.mark.parametrize("noun", ["attempts", "artifacts"])
def test_the_number_of_queries_does_not_grow(world, ada, job_id, noun):
    counts = []
    for limit in (1, 10):
        with world.statements() as seen:
            assert ada.get(f"/jobs/{job_id}/{noun}?limit={limit}").status_code == 200
        counts.append(len(seen))
    assert counts[0] == counts[1]
