# SPDX-License-Identifier: Apache-2.0
"""Jobs through the API: defaults, rules, quota, queues, actions, what is shown."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from api_world import Client, error_of
from fake_node import conduct, place, ready, report

pytestmark = pytest.mark.usefixtures("cluster")


def body(**changed: Any) -> dict[str, Any]:
    job = {"name": "train", "command": ["true"], **changed}
    return {"job": {key: value for key, value in job.items() if value is not ...}}


def create(client: Client, **changed: Any) -> dict[str, Any]:
    answer = client.post("/jobs", body(**changed))
    assert answer.status_code == 202, answer.text
    return answer.get_json()["job"]


def test_defaults(ada):
    job = create(ada)
    assert job["status"] == "queued"
    assert job["kind"] == "training"
    assert job["priority"] == 500
    assert job["queue"] == "default"
    assert job["tasks"] == {"count": 1, "min_count": 1}
    assert job["resources"]["gpus"] == 1
    assert job["grace_period_s"] == 30
    assert job["retry"] == {
        "max_attempts": 3, "backoff_s": 10, "on": ["node_failure", "gpu_failure"],
    }  # fmt: skip
    assert job["waiting"]["code"] == "evaluating"
    assert (job["project_id"], job["user_id"]) == ("vision", "ada")
    assert job["counts"] is None


def test_a_share_drops_the_whole_gpu(ada):
    job = create(ada, resources={"gpu_fraction": 0.25})
    assert job["resources"]["gpus"] is None


def test_a_partial_retry_keeps_the_rest(ada):
    assert create(ada, retry={"max_attempts": 1})["retry"] == {
        "max_attempts": 1, "backoff_s": 10, "on": ["node_failure", "gpu_failure"],
    }  # fmt: skip


def test_the_answer_names_its_place(ada):
    answer = ada.post("/jobs", body())
    job = answer.get_json()["job"]
    assert answer.headers["Location"].endswith(f"/v1/jobs/{job['id']}")
    assert ada.get(f"/jobs/{job['id']}").get_json()["job"] == job


WRONG = {
    "both command and script": {"script": "true"},
    "neither": {"command": ...},
    "two amounts": {"resources": {"gpus": 1, "gpu_fraction": 0.5}},
    "whole fraction": {"resources": {"gpu_fraction": 1}},
    "min above count": {"tasks": {"count": 1, "min_count": 2}},
    "own variable": {"env": {"GPUSERVICE_JOB_ID": "1"}},
    "rank variable": {"env": {"RANK": "1"}},
    "visible devices": {"env": {"CUDA_VISIBLE_DEVICES": "0"}},
    "variable name": {"env": {"A-B": "1"}},
    "secrets without a driver": {"secrets": [{"env": "TOKEN", "ref": "barbican:x"}]},
    "image without a driver": {"image": "docker.io/nvidia/cuda:12"},
    "source without a driver": {"inputs": [{"source": "s3://a/b", "path": "b"}]},
    "target without a driver": {"outputs": [{"path": "a", "target": "swift://a/b"}]},
    "source without a name": {"inputs": [{"source": "https://x.org/", "path": "d/"}]},
    "empty program": {"command": ["", "a"]},
    "argument too long": {"command": ["echo", "\U0001f4a5" * 32768]},
    "variable too long": {"env": {"A": "\U0001f4a5" * 32768}},
    "workdir": {"workdir": "../up"},
    "input path": {"inputs": [{"source": "https://x.org/a", "path": "/etc"}]},
    "output path": {"outputs": [{"path": "a/../../b"}]},
    "unknown queue": {"queue": "nosuch"},
    "uuid as name": {"name": "00000000-0000-4000-8000-000000000000"},
    "array too large": {"array": {"size": 10_001}},
    "running above size": {"array": {"size": 2, "max_running": 3}},
    "unknown dependency": {"depends_on": [{"job": "00000000-0000-4000-8000-000000000000"}]},
    "deadline": {"deadline_at": "soon, I think"},
    "deadline before all": {"deadline_at": "0001-01-01T00:00:00+14:00"},
    "deadline after all": {"deadline_at": "9999-12-31T23:59:59-14:00"},
    "unknown field": {"gpus": 3},
    "unknown notification": {"notify": [{"on": ["started"], "channel": "pigeon"}]},
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_wrong_jobs(world, ada, change):
    answer = ada.post("/jobs", body(**change))
    assert answer.status_code == 400, answer.text
    assert error_of(answer)["source"]["pointer"].startswith("/job")
    assert ada.get("/jobs").get_json()["jobs"] == []


def test_file_urls_where_the_roots_are_known(world, ada):
    world.conf.set_override("file_roots", ["/srv/data"], "agent")
    create(ada, outputs=[{"path": "o", "target": "file:///srv/data/o"}])
    error = error_of(ada.post("/jobs", body(outputs=[{"path": "o", "target": "file:///etc/o"}])))
    assert error["source"]["pointer"] == "/job/outputs/0/target"
    assert "/srv/data" in error["detail"]


def test_the_own_queue_comes_first(world, admin, ada):
    own = admin.post("/queues", {"queue": {"name": "default", "project_id": "vision"}})
    assert own.status_code == 201, own.text
    assert create(ada)["queue_id"] == own.get_json()["queue"]["id"]
    other = create(world.client("audio"))
    assert other["queue_id"] != own.get_json()["queue"]["id"]


@pytest.mark.parametrize("status", ["drained", "closed"])
def test_closed_queues_take_nothing(admin, cluster, ada, status):
    admin.patch(f"/queues/{cluster.queue.id}", {"queue": {"status": status}})
    error = error_of(ada.post("/jobs", body()))
    assert (error["status"], error["code"]) == (409, "gpu.queue.closed")


@pytest.mark.parametrize(("priority", "status"), [(500, 202), (501, 403), ("high", 403), (0, 202)])
def test_priorities(ada, priority, status):
    answer = ada.post("/jobs", body(priority=priority))
    assert answer.status_code == status
    if status == 403:
        assert error_of(answer)["code"] == "gpu.priority.forbidden"


def test_more_than_a_limit_allows_at_once(admin, ada):
    admin.patch("/quotas/vision", {"quota": {"limits": {"gpus": 4}}})
    error = error_of(ada.post("/jobs", body(resources={"gpus": 4}, tasks={"count": 2})))
    assert (error["status"], error["code"]) == (403, "gpu.quota.exceeded")
    assert error["meta"] == {"limit": "gpus", "value": 4, "used": 0, "asked": 8}
    create(ada, resources={"gpus": 4})
    create(ada, resources={"gpus": 4}, tasks={"count": 2, "min_count": 1})


def test_each_element_counts(world, admin, ada):
    admin.patch("/quotas/vision", {"quota": {"limits": {"jobs:queued": 10}}})
    create(ada, array={"size": 7})
    error = error_of(ada.post("/jobs", body(array={"size": 4})))
    assert error["meta"] == {"limit": "jobs:queued", "value": 10, "used": 7, "asked": 4}
    create(ada, array={"size": 3})
    usage = admin.get("/quotas/vision").get_json()["quota"]["usage"]
    assert usage["jobs:queued"] == 10


def test_the_quota_is_exact_under_threads(world, admin):
    admin.patch("/quotas/vision", {"quota": {"limits": {"jobs:queued": 5}}})
    codes: list[int] = []

    def submit() -> None:
        client = world.client("vision")
        codes.extend(client.post("/jobs", body()).status_code for _ in range(3))

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [202] * 5 + [403] * 7


def test_idempotency(ada):
    key = {"Idempotency_Key": "k1"}
    first, again = ada.post("/jobs", body(), **key), ada.post("/jobs", body(), **key)
    assert again.status_code == 202
    assert again.get_json() == first.get_json()
    assert again.headers["Location"] == first.headers["Location"]
    assert ada.post("/jobs", body(name="other"), **key).status_code == 409
    assert len(ada.get("/jobs").get_json()["jobs"]) == 1


def test_a_dry_run_keeps_nothing(ada):
    answer = ada.post("/jobs?dry_run=true", body())
    assert answer.status_code == 200
    assert answer.get_json()["dry_run"]["status"] == "starts_now"
    assert ada.get("/jobs").get_json()["jobs"] == []
    assert ada.post("/jobs?dry_run=true", body(queue="nosuch")).status_code == 400


def test_creating_costs_few_statements(world, ada):
    create(ada)
    with world.statements() as seen:
        create(ada)
    assert len([one for one in seen if not one.startswith(("PRAGMA", "BEGIN"))]) <= 6, seen


def test_filters(ada):
    one = create(ada, name="one", labels={"team": "red"}, kind="data")
    create(ada, name="two", labels={"team": "blue"})
    held = create(ada, name="three", hold=True)
    assert held["status"] == "held"
    for query, names in (
        ("name=one", ["one"]),
        ("labels.team=blue", ["two"]),
        ("kind=data", ["one"]),
        ("status=held", ["three"]),
        ("status=in:held,queued", ["one", "two", "three"]),
        ("status=neq:held", ["one", "two"]),
        ("queue=default", ["one", "two", "three"]),
        (f"queue={one['queue_id']}", ["one", "two", "three"]),
        ("queue=other", []),
        ("user_id=ada", ["one", "two", "three"]),
        ("waiting_code=evaluating", ["one", "two"]),
        ("waiting_code=held", ["three"]),
        ("sort=name:desc", ["two", "three", "one"]),
    ):
        found = ada.get(f"/jobs?{query}").get_json()["jobs"]
        assert [job["name"] for job in found] == names, query


def test_a_list_costs_the_same_whatever_its_length(world, cluster, ada):
    costs = []
    for count in (1, 8):
        for _ in range(count):
            ident = create(ada, resources={"gpus": 0})["id"]
            place(world, cluster, ident, cluster.nodes[:2], gpus=0)
        with world.statements() as seen:
            assert ada.get("/jobs").status_code == 200
        costs.append(len(seen))
    assert costs[0] == costs[1]


def test_changes(world, ada):
    job = create(ada, labels={"a": "1", "b": "2"})
    answer = ada.patch(
        f"/jobs/{job['id']}", {"job": {"labels": {"a": None, "c": "3"}, "priority": 100}}
    )
    changed = answer.get_json()["job"]
    assert changed["labels"] == {"b": "2", "c": "3"}
    assert changed["priority"] == 100
    assert changed["generation"] == job["generation"] + 1
    assert ada.get("/jobs?labels.c=3").get_json()["jobs"]
    assert not ada.get("/jobs?labels.a=1").get_json()["jobs"]
    stale = ada.patch(f"/jobs/{job['id']}", {"job": {"priority": 1}}, If_Match='"1"')
    assert stale.status_code == 412
    assert ada.patch(f"/jobs/{job['id']}", {"job": {"priority": 900}}).status_code == 403
    assert ada.patch(f"/jobs/{job['id']}", {"job": {"name": "x"}}).status_code == 400


def test_the_limit_of_a_running_job(world, cluster, ada):
    node = ready(world, cluster.nodes[0])
    ident = create(ada, max_runtime_s=100)["id"]
    place(world, cluster, ident, cluster.nodes[:1])
    (order,) = node.orders()
    node.orders(report(order["task_id"], "running"))
    conduct(world)
    path, longer = f"/jobs/{ident}", {"job": {"max_runtime_s": 200}}
    assert ada.patch(path, longer).status_code == 403
    assert ada.patch(path, {"job": {"max_runtime_s": 50}}).status_code == 200
    assert world.client("vision", "manager").patch(path, longer).status_code == 200
    (order,) = node.orders()
    assert order["spec"]["time_limit_s"] == 200


def test_a_list_of_large_jobs_comes_in_short_pages(world, admin, ada):
    script = "#" * 500_000
    for number in range(60):
        create(ada, name=f"n{number}", command=..., script=script if number < 20 else "true")
    path, names, pages = "/v1/jobs?limit=1000&sort=created_at", [], []
    while path:
        answer = ada.raw("GET", path)
        assert answer.status_code == 200 and len(answer.data) < 6_000_000
        names.extend(job["name"] for job in answer.get_json()["jobs"])
        pages.append(len(answer.get_json()["jobs"]))
        path = next((one["href"] for one in answer.get_json()["links"]), None)
    assert names == [f"n{number}" for number in range(60)]
    assert len(pages) == 3 and pages[0] < 10


def test_hold_and_release(ada):
    ident = create(ada)["id"]
    for action, status in (("hold", "held"), ("hold", "held"), ("release", "queued"),
                           ("release", "queued")):  # fmt: skip
        answer = ada.post(f"/jobs/{ident}/action", {action: {}})
        assert answer.status_code == 202
        assert answer.get_json()["job"]["status"] == status
    assert ada.patch(f"/jobs/{ident}", {"job": {"hold": True}}).get_json()["job"]["hold"] is True


def test_cancelling_what_waits(world, admin, ada):
    ident = create(ada, array={"size": 5})["id"]
    shown = ada.post(f"/jobs/{ident}/action", {"cancel": {}}).get_json()["job"]
    assert shown["status"] == "cancelled"
    assert shown["counts"]["cancelled"] == 5
    assert ada.post(f"/jobs/{ident}/action", {"cancel": {}}).status_code == 202
    assert ada.post(f"/jobs/{ident}/action", {"hold": {}}).status_code == 409
    actions = [one["action"] for one in ada.get(f"/jobs/{ident}/events").get_json()["events"]]
    assert actions == ["job.create", "job.cancel", "job.cancelled"]


def test_cancelling_some_elements(ada):
    ident = create(ada, array={"size": 10})["id"]
    path = f"/jobs/{ident}/action"
    shown = ada.post(path, {"cancel": {"indices": "3,7-9"}}).get_json()["job"]
    assert shown["counts"] == {
        "queued": 6, "running": 0, "succeeded": 0, "failed": 0, "cancelled": 4, "timed_out": 0,
    }  # fmt: skip
    rows = ada.get(f"/jobs/{ident}/elements").get_json()["elements"]
    assert [(row["index"], row["status"]) for row in rows] == [
        (index, "cancelled") for index in (3, 7, 8, 9)
    ]
    assert ada.post(path, {"cancel": {"indices": "3,7-9"}}).status_code == 202
    assert ada.post(path, {"cancel": {"indices": "10"}}).status_code == 400
    assert ada.post(path, {"cancel": {"indices": "5-2"}}).status_code == 400
    shown = ada.post(path, {"cancel": {"indices": "0-9"}}).get_json()["job"]
    assert shown["status"] == "cancelled"
    assert shown["ended_at"] is not None


def test_deleting(world, cluster, ada):
    ident = create(ada)["id"]
    answer = ada.delete(f"/jobs/{ident}")
    assert answer.status_code == 204  # nothing ran: it is cancelled and gone at once
    assert ada.get(f"/jobs/{ident}").status_code == 404
    node = ready(world, cluster.nodes[0])
    ident = create(ada)["id"]
    place(world, cluster, ident, cluster.nodes[:1])
    (order,) = node.orders()
    answer = ada.delete(f"/jobs/{ident}")
    assert answer.status_code == 202
    assert answer.get_json()["job"]["status"] == "cancelling"
    conduct(world)
    node.orders(report(order["task_id"], "gone", signal=15))
    conduct(world)
    assert ada.get(f"/jobs/{ident}").status_code == 404


def test_explanations(world, cluster, ada):
    ident = create(ada)["id"]
    told = ada.get(f"/jobs/{ident}/explain").get_json()["explanation"]
    assert told["reasons"][0]["code"] == "evaluating"
    node = ready(world, cluster.nodes[0])
    place(world, cluster, ident, cluster.nodes[:1])
    told = ada.get(f"/jobs/{ident}/explain").get_json()["explanation"]
    assert told["placement"][0]["node"] == cluster.nodes[0].name
    (order,) = node.orders()
    node.orders(report(order["task_id"], "running"))
    node.orders(report(order["task_id"], "gone", exit_code=7))
    conduct(world)
    told = ada.get(f"/jobs/{ident}/explain").get_json()["explanation"]
    assert told["failure"]["class"] == "user_code"
    assert told["failure"]["evidence"]["exit_code"] == 7
    assert told["failure"]["what_to_do"]


def test_attempts(world, cluster, ada):
    ready(world, cluster.nodes[0])
    ident = create(ada, tasks={"count": 2})["id"]
    place(world, cluster, ident, cluster.nodes[:2])
    (attempt,) = ada.get(f"/jobs/{ident}/attempts").get_json()["attempts"]
    assert (attempt["number"], attempt["status"]) == (1, "starting")
    assert [task["rank"] for task in attempt["tasks"]] == [0, 1]
    assert attempt["tasks"][1]["node_name"] == cluster.nodes[1].name
    assert attempt["tasks"][0]["devices"][0]["milli"] == 1000
    shown = ada.get(f"/jobs/{ident}").get_json()["job"]
    assert shown["nodes"] == [node.name for node in cluster.nodes]


def test_dependencies_are_the_callers_own(world, ada):
    own, foreign = create(ada), create(world.client("audio"))
    create(ada, depends_on=[{"job": own["id"]}])
    answers = [
        ada.post("/jobs", body(depends_on=[{"job": ident}]))
        for ident in (foreign["id"], "00000000-0000-4000-8000-000000000000")
    ]
    assert {answer.status_code for answer in answers} == {400}
    assert {error_of(answer)["source"]["pointer"] for answer in answers} == {
        "/job/depends_on/0/job"
    }
