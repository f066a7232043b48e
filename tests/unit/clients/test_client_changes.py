# SPDX-License-Identifier: Apache-2.0
"""Commands that change things send what was given and nothing else."""

from __future__ import annotations

from client_answers import JOB, jobs
from fake_api import JOB_ID, Answer


def test_create_set_and_delete_a_pool(openstack, api):
    pool = {"id": JOB_ID, "name": "p", "status": "creating", "shared_with": ["*"]}
    api.on("POST", "/v1/pools", Answer(202, {"pool": pool}))
    api.on("GET", "/v1/pools", Answer(body={"pools": [pool], "links": []}))
    api.on("PATCH", f"/v1/pools/{JOB_ID}", Answer(body={"pool": pool}))
    api.on("DELETE", f"/v1/pools/{JOB_ID}", Answer(202, {"pool": pool}))
    assert (
        openstack(
            "gpu",
            "pool",
            "create",
            "p",
            "--flavor",
            "f",
            "--min-nodes",
            "1",
            "--autoscale",
            "true",
            "--idle-timeout",
            "10m",
            "--share-with",
            "*",
        ).code
        == 0
    )
    assert api.asked[-1].body == {
        "pool": {
            "name": "p",
            "flavor": "f",
            "min_nodes": 1,
            "autoscale": True,
            "idle_timeout_s": 600,
            "shared_with": ["*"],
        }
    }
    assert openstack("gpu", "pool", "set", "p", "--max-nodes", "4", "--generation", "7").code == 0
    assert api.asked[-1].body == {"pool": {"max_nodes": 4}}
    assert api.asked[-1].headers["If-Match"] == '"7"'
    assert openstack("gpu", "pool", "set", "p").code == 1
    assert openstack("gpu", "pool", "delete", "p").code == 0


def test_actions_with_details(openstack, api):
    host = {"id": JOB_ID, "name": "h"}
    api.on("GET", "/v1/hosts", Answer(body={"hosts": [host], "links": []}))
    api.on("POST", f"/v1/hosts/{JOB_ID}/action", Answer(body={"host": host}))
    assert openstack("gpu", "host", "drain", "h", "--notice", "1h", "--reason", "fan").code == 0
    assert api.asked[-1].body == {"drain": {"reason": "fan", "notice_s": 3600}}


def test_flavor_access_is_added_and_taken(openstack, api):
    flavor = {"id": JOB_ID, "name": "f", "projects": ["a"]}
    api.on("GET", "/v1/flavors", Answer(body={"flavors": [flavor], "links": []}))
    api.on("PATCH", f"/v1/flavors/{JOB_ID}", Answer(body={"flavor": flavor}))
    openstack("gpu", "flavor", "set", "f", "--project", "b")
    assert api.asked[-1].body == {"flavor": {"projects": ["a", "b"]}}
    openstack("gpu", "flavor", "unset", "f", "--project", "a", "--price")
    assert api.asked[-1].body == {"flavor": {"projects": [], "price_per_hour": None}}


def test_quota_and_limits(openstack, api):
    api.on(
        "PATCH",
        "/v1/quotas/vision",
        Answer(
            body={
                "quota": {
                    "project_id": "vision",
                    "limits": {"gpus": 4, "nodes": -1},
                    "usage": {"gpus": 2},
                }
            }
        ),
    )
    ran = openstack(
        "gpu", "quota", "set", "vision", "--limit", "gpus=4", "--default", "nodes", "-f", "value"
    )
    assert api.asked[-1].body == {"quota": {"limits": {"gpus": 4, "nodes": None}}}
    assert ran.text == "gpus\t4\t2\nnodes\t-1\t0\n"
    api.on(
        "GET",
        "/v1/limits",
        Answer(
            body={"limits": {"limits": {"gpus": 4}, "usage": {"gpus": 1}, "free_now": {"a100": 3}}}
        ),
    )
    ran = openstack("gpu", "limits", "show", "-f", "value")
    assert ran.text == "gpus\t4\t1\t-\ngpus:a100\t-1\t0\t3\n"


def test_label_is_removed_with_null(openstack, api):
    api.on("GET", "/v1/jobs", jobs(JOB))
    api.on("PATCH", f"/v1/jobs/{JOB_ID}", Answer(body={"job": JOB}))
    openstack("gpu", "job", "set", "train", "--label", "a=1", "--unset-label", "b")
    assert api.asked[-1].body == {"job": {"labels": {"a": "1", "b": None}}}
