# SPDX-License-Identifier: Apache-2.0
"""Lists in every format, their parameters, as whom they are asked for, names that fit nothing."""

from __future__ import annotations

import json

import pytest
from client_answers import JOB, jobs
from fake_api import JOB_ID, Answer


def test_list_in_every_format(openstack, api):
    api.on("GET", "/v1/jobs", jobs(JOB))
    table = openstack("gpu", "job", "list", "--long").text
    assert "waiting.summary" in table
    row = json.loads(openstack("gpu", "job", "list", "--long", "-f", "json").text)[0]
    assert row["labels"] == {}
    assert row["waiting.code"] == "insufficient_gpus"
    assert "insufficient_gpus" in openstack("gpu", "job", "list", "-f", "yaml").text


@pytest.mark.a11
def test_value_columns_suit_a_shell_loop(openstack, api):
    api.on(
        "GET",
        "/v1/jobs",
        jobs({**JOB, "name": "a\tb\nc d", "labels": {"k": "v w"}}, {**JOB, "waiting": None}),
    )
    text = openstack(
        "gpu",
        "job",
        "list",
        "-f",
        "value",
        "-c",
        "name",
        "-c",
        "waiting.code",
        "-c",
        "labels",
        "-c",
        "status",
    ).text
    first, second = text.splitlines()
    assert first.split("\t") == ["a b c d", "insufficient_gpus", '{"k":"v w"}', "queued"]
    assert second.split("\t") == ["train", "-", "{}", "queued"]


def test_list_parameters(openstack, api):
    api.on("GET", "/v1/jobs", jobs())
    openstack(
        "gpu",
        "job",
        "list",
        "--limit",
        "5",
        "--marker",
        JOB_ID,
        "--sort",
        "name:desc",
        "--all-projects",
        "--status",
        "queued",
        "--label",
        "team=vision",
    )
    assert api.asked[-1].query == {
        "limit": "5",
        "marker": JOB_ID,
        "sort": "name:desc",
        "all_projects": "true",
        "status": "in:queued",
        "labels.team": "vision",
    }


def test_project_is_an_identity_without_authentication_and_a_filter_with(openstack, api):
    api.on("GET", "/v1/jobs", jobs())
    openstack("gpu", "job", "list", "--project", "other")
    assert api.asked[-1].headers["X-Project-Id"] == "other"
    assert "project_id" not in api.asked[-1].query
    openstack("gpu", "job", "list", "--project", "other", auth="http_basic")
    assert api.asked[-1].query == {"project_id": "other"}


def test_project_and_roles_from_the_environment(openstack, api, monkeypatch):
    monkeypatch.setenv("OS_PROJECT_ID", "vision")
    monkeypatch.setenv("OS_GPU_ROLES", "admin")
    api.on("GET", "/v1/hosts", Answer(body={"hosts": [], "links": []}))
    assert openstack("gpu", "host", "list").code == 0
    sent = api.asked[-1].headers
    assert (sent["X-Project-Id"], sent["X-Roles"]) == ("vision", "admin")


def test_unknown_and_ambiguous_names(openstack, api):
    api.on("GET", "/v1/jobs", jobs())
    ran = openstack("gpu", "job", "show", "nothing")
    assert ran.code == 1
    assert "There is no job with the name or id 'nothing'." in ran.err
    ran = openstack("gpu", "job", "cancel", JOB_ID, "nothing")
    assert ran.code == 1
    assert JOB_ID in ran.err
    assert "nothing: There is no job" in ran.err
    api.on("GET", "/v1/jobs", jobs(JOB, {**JOB, "id": JOB_ID.replace("6", "7")}))
    ran = openstack("gpu", "job", "show", "train")
    assert ran.code == 1
    assert "name it by its id" in ran.err


def test_service_that_is_not_there(openstack, api, monkeypatch):
    monkeypatch.setattr("gpuservice.clients.sdk.v1._proxy.CONNECT_RETRIES", 0)
    api.close()
    ran = openstack("gpu", "queue", "create", "x")
    assert ran.code == 1
    assert "cannot be reached" in ran.err
    assert "Traceback" not in ran.err
