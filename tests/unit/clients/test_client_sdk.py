# SPDX-License-Identifier: Apache-2.0
"""The SDK against a server that answers as told."""

from __future__ import annotations

import pytest
from fake_api import JOB_ID, Answer, FakeApi, error
from openstack import exceptions

from gpuservice.clients import sdk
from gpuservice.clients.sdk.service import identity_headers
from gpuservice.clients.sdk.v1 import _logs, _waiting
from gpuservice.clients.sdk.v1._base import etag
from gpuservice.clients.sdk.v1._logs import LogStream

JOB = {
    "id": JOB_ID,
    "name": "train",
    "status": "queued",
    "queue": "vision",
    "generation": 1,
    "waiting": {"code": "insufficient_gpus", "summary": "Needs 4."},
}


@pytest.fixture
def gpu(api: FakeApi) -> sdk.Proxy:
    return sdk.connect(api.url, project_id="vision", user_id="ada", roles=["member", "x"]).gpu


def test_identity_and_microversion_are_sent(api, gpu):
    api.on("GET", f"/v1/jobs/{JOB_ID}", Answer(body={"job": JOB}))
    job = gpu.get_job(JOB_ID)
    sent = api.last("GET").headers
    assert sent["X-Project-Id"] == "vision"
    assert sent["X-User-Id"] == "ada"
    assert sent["X-Roles"] == "member,x"
    assert sent["OpenStack-API-Version"] == "gpu 1.0"
    assert job.waiting["code"] == "insufficient_gpus"
    assert not job.is_ended


def test_http_basic_sends_a_password_and_no_identity(api, monkeypatch):
    monkeypatch.setenv("OS_PROJECT_ID", "vision")
    api.on("GET", "/v1/pools", Answer(body={"pools": [], "links": []}))
    assert list(sdk.connect(api.url, username="ada", password="secret").gpu.pools()) == []
    sent = api.last("GET").headers
    assert sent["Authorization"].startswith("Basic ")
    assert "X-Project-Id" not in sent


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_endpoint_with_or_without_version(api, suffix):
    api.on("GET", "/v1/pools", Answer(body={"pools": [], "links": []}))
    assert list(sdk.connect(api.url + suffix).gpu.pools()) == []


def test_identity_comes_from_configuration_before_environment():
    environ = {"OS_PROJECT_ID": "env", "OS_GPU_ROLES": "admin", "OS_USER_ID": "bob"}
    assert identity_headers({"auth": {"project_id": "config"}}, environ) == {
        "X-Project-Id": "config",
        "X-Roles": "admin",
        "X-User-Id": "bob",
    }
    assert identity_headers({}, {}) == {}


def test_error_carries_code_pointer_and_request_id(api, gpu):
    api.on(
        "POST",
        "/v1/jobs",
        error(400, "gpu.request.invalid", "gpus must be whole.", "/job/resources/gpus"),
    )
    with pytest.raises(exceptions.BadRequestException) as caught:
        gpu.create_job(name="x", resources={"gpus": "four"})
    failure = caught.value
    assert isinstance(failure, sdk.GpuBadRequest)
    assert (failure.code, failure.pointer, failure.request_id, failure.status_code) == (
        "gpu.request.invalid",
        "/job/resources/gpus",
        "req-1",
        400,
    )
    assert failure.detail == "gpus must be whole."
    assert "gpus must be whole." in str(failure)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (403, sdk.GpuForbidden),
        (404, sdk.GpuNotFound),
        (409, sdk.GpuConflict),
        (412, sdk.GpuPreconditionFailed),
        (503, sdk.GpuHttpError),
    ],
)
def test_exception_by_status(api, gpu, status, kind):
    api.on("GET", f"/v1/pools/{JOB_ID}", error(status, "gpu.x", "No."))
    with pytest.raises(kind):
        gpu.get_pool(JOB_ID)


def test_a_proxys_page_is_no_traceback(api, gpu):
    api.on("GET", f"/v1/pools/{JOB_ID}", Answer(502, raw=b"<html>bad gateway</html>"))
    with pytest.raises(sdk.GpuHttpError, match="502"):
        gpu.get_pool(JOB_ID)


def test_raw_answers_can_be_had(gpu):
    assert gpu.get("/nothing", raise_exc=False).status_code == 404


def test_creation_keeps_its_key_when_the_connection_fails(api, gpu, monkeypatch):
    monkeypatch.setattr(gpu, "connect_retry_delay", 0.01)
    api.on("POST", "/v1/jobs", Answer(hang_up=True), Answer(202, {"job": JOB}))
    job = gpu.create_job({"name": "x", "command": ["a"]}, priority="high")
    assert job.id == JOB_ID
    posts = [one for one in api.asked if one.method == "POST"]
    keys = {one.headers["Idempotency-Key"] for one in posts}
    assert len(posts) == 2
    assert len(keys) == 1
    assert posts[1].body == {"job": {"name": "x", "command": ["a"], "priority": "high"}}


def test_each_creation_has_its_own_key(api, gpu):
    api.on("POST", "/v1/pools", Answer(202, {"pool": {"id": JOB_ID, "name": "p"}}))
    gpu.create_pool(name="p", flavor="f")
    gpu.create_pool(name="p", flavor="f")
    keys = [one.headers["Idempotency-Key"] for one in api.asked]
    assert len(set(keys)) == 2
    assert api.asked[0].body == {"pool": {"name": "p", "flavor": "f"}}


def test_creation_still_running_is_waited_for(api, gpu, monkeypatch):
    monkeypatch.setattr("gpuservice.clients.sdk.v1._base._BUSY_PAUSE_S", 0.01)
    busy = error(409, "gpu.idempotency.in_progress", "Still running.")
    api.on("POST", "/v1/pools", busy, Answer(202, {"pool": {"id": JOB_ID}}))
    assert gpu.create_pool(name="p", flavor="f").id == JOB_ID


def test_actions_and_changes_are_not_repeated_by_themselves(api, gpu):
    api.on("POST", f"/v1/jobs/{JOB_ID}/action", Answer(hang_up=True))
    with pytest.raises(Exception, match=r"(?i)connect"):
        gpu.requeue_job(JOB_ID)
    assert len(api.asked) == 1


@pytest.mark.parametrize("action", ["hold", "release", "requeue", "suspend", "resume"])
def test_each_action_is_one_request(api, gpu, action):
    api.on("POST", f"/v1/jobs/{JOB_ID}/action", Answer(202, {"job": {"id": JOB_ID}}))
    getattr(gpu, f"{action}_job")(JOB_ID)
    assert [list(one.body) for one in api.asked] == [[action]]


def test_pages_are_followed_by_their_query_alone(api, gpu):
    def page(asked):
        if "marker" not in asked.query:
            return Answer(
                body={
                    "jobs": [JOB],
                    "links": [
                        {"rel": "next", "href": "http://evil.example/v1/jobs?limit=1&marker=m"}
                    ],
                }
            )
        return Answer(body={"jobs": [{**JOB, "name": "second"}], "links": []})

    api.on("GET", "/v1/jobs", page)
    jobs = list(gpu.jobs(status=["queued", "held"], labels={"team": "vision"}, all_projects=True))
    assert [job.name for job in jobs] == ["train", "second"]
    assert api.asked[0].query == {
        "status": "in:queued,held",
        "labels.team": "vision",
        "all_projects": "true",
    }
    assert api.asked[1].query == {"limit": "1", "marker": "m"}


def test_unknown_filter_is_refused(gpu):
    with pytest.raises(exceptions.InvalidResourceQuery, match="colour"):
        list(gpu.jobs(colour="red"))


def test_find_by_name_id_and_neither(api, gpu):
    api.on(
        "GET",
        "/v1/jobs",
        lambda asked: Answer(
            body={"jobs": [JOB] if asked.query["name"] == "train" else [], "links": []}
        ),
    )
    api.on("GET", f"/v1/jobs/{JOB_ID}", Answer(body={"job": JOB}))
    assert gpu.find_job("train").id == JOB_ID
    assert gpu.find_job(JOB_ID).name == "train"
    assert gpu.find_job("other") is None
    with pytest.raises(exceptions.NotFoundException, match="job with the name or id 'other'"):
        gpu.find_job("other", ignore_missing=False)


def test_ambiguous_name_asks_for_the_id(api, gpu):
    other = {**JOB, "id": JOB_ID.replace("6", "7")}
    api.on("GET", "/v1/jobs", Answer(body={"jobs": [JOB, other], "links": []}))
    with pytest.raises(exceptions.DuplicateResource, match=f"by its id .*{JOB_ID}"):
        gpu.find_job("train")


def test_own_queue_goes_before_a_cloud_wide_one(api, gpu):
    queues = [
        {"id": JOB_ID, "name": "default", "project_id": None},
        {"id": JOB_ID.replace("6", "7"), "name": "default", "project_id": "vision"},
    ]
    api.on("GET", "/v1/queues", Answer(body={"queues": queues, "links": []}))
    assert gpu.find_queue("default").project_id == "vision"


def test_change_sends_what_changes_under_a_generation(api, gpu):
    api.on("PATCH", f"/v1/jobs/{JOB_ID}", Answer(body={"job": JOB}))
    gpu.update_job(JOB_ID, labels={"a": None}, if_match=etag(3))
    sent = api.last("PATCH")
    assert sent.body == {"job": {"labels": {"a": None}}}
    assert sent.headers["If-Match"] == '"3"'
    api.on("DELETE", f"/v1/jobs/{JOB_ID}", Answer(204))
    gpu.delete_job(JOB_ID, if_match=etag(4))
    assert api.last("DELETE").headers["If-Match"] == '"4"'


def test_actions(api, gpu):
    api.on("POST", f"/v1/jobs/{JOB_ID}/action", Answer(202, {"job": {**JOB, "status": "held"}}))
    assert gpu.hold_job(JOB_ID).status == "held"
    assert api.last("POST").body == {"hold": None}
    gpu.cancel_job(JOB_ID, indices="3,7-9")
    assert api.last("POST").body == {"cancel": {"indices": "3,7-9"}}


def test_below_a_job(api, gpu):
    root = f"/v1/jobs/{JOB_ID}"
    api.on("GET", f"{root}/attempts", Answer(body={"attempts": [{"number": 2}], "links": []}))
    api.on("GET", f"{root}/events", Answer(body={"events": [{"action": "job.start"}], "links": []}))
    api.on("GET", f"{root}/explain", Answer(body={"explanation": {"summary": "Because."}}))
    api.on("GET", f"{root}/artifacts/1/0/out/a b.bin", Answer(raw=b"bytes"))
    api.on("GET", f"{root}/artifacts/1/0/out/a%20b.bin", Answer(raw=b"bytes"))
    assert next(gpu.job_attempts(JOB_ID)).number == 2
    assert next(gpu.job_events(JOB_ID)).action == "job.start"
    assert gpu.explain_job(JOB_ID)["summary"] == "Because."
    with gpu.open_job_artifact(JOB_ID, "1/0/out/a b.bin") as response:
        assert response.content == b"bytes"


def test_limits_and_quota(api, gpu):
    api.on(
        "GET",
        "/v1/limits",
        Answer(
            body={
                "limits": {
                    "project_id": "vision",
                    "limits": {"gpus": 8},
                    "usage": {"gpus": 2},
                    "free_now": {"a100": 3},
                }
            }
        ),
    )
    api.on(
        "PATCH",
        "/v1/quotas/vision",
        Answer(body={"quota": {"project_id": "vision", "limits": {"gpus": 4}, "usage": {}}}),
    )
    assert gpu.get_limits().free_now == {"a100": 3}
    assert gpu.update_quota("vision", {"gpus": 4}).limits == {"gpus": 4}
    assert api.last("PATCH").body == {"quota": {"limits": {"gpus": 4}}}


def log(data: bytes, offset: int, end: bool) -> Answer:
    return Answer(
        raw=data,
        headers={
            "OpenStack-GPU-Log-Offset": str(offset),
            "OpenStack-GPU-Log-End": str(end).lower(),
        },
    )


def test_follow_a_log_over_failures(api, gpu, monkeypatch):
    monkeypatch.setattr(_logs, "_IDLE_PAUSE_S", 0.01)
    monkeypatch.setattr(gpu, "connect_retries", 0)
    api.on(
        "GET",
        f"/v1/jobs/{JOB_ID}/logs",
        log(b"one\xff", 4, False),
        Answer(hang_up=True),
        error(503, "gpu.busy", "Busy."),
        log(b"", 4, False),
        log(b"two", 7, True),
        log(b"", 7, True),
    )
    stream = LogStream("stderr", task=1, index=5)
    assert b"".join(gpu.follow_job_log(JOB_ID, stream)) == b"one\xfftwo"
    offsets = [one.query["offset"] for one in api.asked]
    assert offsets[0] == "0"
    assert set(offsets[1:-1]) == {"4"}
    assert api.asked[0].query == {
        "stream": "stderr",
        "task": "1",
        "index": "5",
        "offset": "0",
        "wait_s": "20",
    }


def test_follow_ends_when_the_job_does_not_exist(api, gpu):
    with pytest.raises(sdk.GpuNotFound):
        list(gpu.follow_job_log(JOB_ID))


def test_wait_for_job(api, gpu):
    api.on(
        "GET",
        f"/v1/jobs/{JOB_ID}",
        Answer(body={"job": JOB}),
        Answer(body={"job": {**JOB, "status": "running"}}),
        Answer(body={"job": {**JOB, "status": "succeeded"}}),
    )
    seen = []
    job = gpu.wait_for_job(JOB_ID, interval_s=0.01, seen=lambda one: seen.append(one.status))
    assert job.status == "succeeded"
    assert seen == ["queued", "running", "succeeded"]


def test_wait_for_job_gives_up(api, gpu, monkeypatch):
    monkeypatch.setattr(_waiting.time, "sleep", lambda seconds: None)
    api.on("GET", f"/v1/jobs/{JOB_ID}", Answer(body={"job": JOB}))
    with pytest.raises(exceptions.ResourceTimeout, match="still queued"):
        gpu.wait_for_job(JOB_ID, timeout_s=0.0)
