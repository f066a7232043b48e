# SPDX-License-Identifier: Apache-2.0
"""Jobs are waited for, their logs followed, their waiting explained."""

from __future__ import annotations

import json

import pytest
from client_answers import ENDED, JOB, log
from fake_api import JOB_ID, Answer

pytestmark = pytest.mark.usefixtures("quick")


@pytest.mark.parametrize(("status", "code"), [("succeeded", 0), ("failed", 1), ("cancelled", 1)])
def test_create_and_wait(openstack, api, status, code):
    api.on("POST", "/v1/jobs", Answer(202, {"job": JOB}))
    api.on(
        "GET",
        f"/v1/jobs/{JOB_ID}",
        Answer(body={"job": JOB}),
        Answer(body={"job": JOB}),
        Answer(body={"job": {**JOB, "status": "running", "nodes": ["n1"], "attempt": 2}}),
        Answer(
            body={"job": {**ENDED, "status": status, "failure_class": "user_code", "exit_code": 3}}
        ),
    )
    ran = openstack("gpu", "job", "create", "--wait", "-f", "json", "--", "true")
    assert ran.code == code
    lines = ran.err.strip().splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("train: queued, position 2: Needs 4, 1 is free. Expected start ")
    assert lines[1] == "train: running on n1, attempt 2"
    assert json.loads(ran.text)["status"] == status


def test_create_and_follow_over_two_attempts(openstack, api):
    first, second = (
        {**JOB, "status": "running", "attempt": 1},
        {**JOB, "status": "running", "attempt": 2},
    )
    api.on("POST", "/v1/jobs", Answer(202, {"job": JOB}))
    answers = [
        JOB,
        first,
        {**JOB, "attempt": 1},
        second,
        second,
        {**ENDED, "attempt": 2},
        {**ENDED, "attempt": 2},
    ]
    api.on("GET", f"/v1/jobs/{JOB_ID}", *[Answer(body={"job": one}) for one in answers])

    def logs(asked):
        data = b"try %s \xff\n" % asked.query["attempt"].encode()
        rest = data[int(asked.query["offset"]) :]
        return log(rest, len(data), True)

    api.on("GET", f"/v1/jobs/{JOB_ID}/logs", logs)
    ran = openstack("gpu", "job", "create", "--follow", "--", "true")
    assert ran.out == b"try 1 \xff\ntry 2 \xff\n"
    assert ran.code == 0


def test_logs_once_and_their_tail(openstack, api):
    data = b"".join(b"line %d \xfe\x1b[31m\n" % number for number in range(5000))

    def logs(asked):
        offset = int(asked.query["offset"])
        start = max(len(data) + offset, 0) if offset < 0 else offset
        piece = data[start : start + 10_000]
        return log(piece, start + len(piece), True)

    api.on("GET", f"/v1/jobs/{JOB_ID}", Answer(body={"job": ENDED}))
    api.on("GET", f"/v1/jobs/{JOB_ID}/logs", logs)
    assert openstack("gpu", "job", "logs", JOB_ID).out == data
    tail = openstack("gpu", "job", "logs", JOB_ID, "--tail", "2000", "--stderr", "--task", "1")
    assert tail.out.splitlines() == data.splitlines()[-2000:]
    assert api.asked[-1].query["stream"] == "stderr"
    assert api.asked[-1].query["task"] == "1"
    assert openstack("gpu", "job", "logs", JOB_ID, "--tail", "0").out == b""


def test_wait(openstack, api):
    api.on(
        "GET",
        f"/v1/jobs/{JOB_ID}",
        Answer(body={"job": JOB}),
        Answer(body={"job": JOB}),
        Answer(body={"job": ENDED}),
    )
    ran = openstack("gpu", "job", "wait", JOB_ID)
    assert ran.code == 0
    assert ran.err.splitlines()[-1] == "train: succeeded"
    ran = openstack("gpu", "job", "wait", JOB_ID, "--quiet-wait")
    assert (ran.code, ran.err) == (0, "")


def test_explain(openstack, api):
    explanation = {
        "job_id": JOB_ID,
        "status": "queued",
        "position": 3,
        "summary": "Needs 16; 15 are free.",
        "reasons": [{"code": "insufficient_gpus", "detail": "Too few.", "facts": {}}],
        "holders": [
            {"job_id": JOB_ID, "gpus": 8, "ends_by": "2030-01-01T00:00:00Z"},
            {"job_id": None, "gpus": 48, "ends_by": None},
        ],
        "would_start_now_if": [{"change": {"topology": {"policy": "preferred"}}}],
    }
    api.on("GET", f"/v1/jobs/{JOB_ID}", Answer(body={"job": JOB}))
    api.on("GET", f"/v1/jobs/{JOB_ID}/explain", Answer(body={"explanation": explanation}))
    text = openstack("gpu", "job", "explain", JOB_ID).text
    assert "Needs 16; 15 are free.\nPosition 3 in line." in text
    assert "  - insufficient_gpus: Too few." in text
    assert "  - other projects: 48 GPUs" in text
    assert "  - topology.policy = preferred" in text
    assert (
        json.loads(openstack("gpu", "job", "explain", JOB_ID, "-f", "json").text)["holders"]
        == explanation["holders"]
    )
