# SPDX-License-Identifier: Apache-2.0
"""The commands in the real shell, against a server that answers as told."""

from __future__ import annotations

import hashlib
import importlib
import json
import shlex
from importlib import metadata

import pytest
from fake_api import JOB_ID, Answer, error

from gpuservice.clients.osc import job_logs
from gpuservice.clients.osc.generic import GpuCommand

JOB = {
    "id": JOB_ID,
    "name": "train",
    "status": "queued",
    "queue": "vision",
    "generation": 1,
    "attempt": 0,
    "nodes": [],
    "labels": {},
    "waiting": {
        "code": "insufficient_gpus",
        "summary": "Needs 4, 1 is free.",
        "position": 2,
        "estimated_start_at": "2030-01-01T00:00:00Z",
    },
}
ENDED = {**JOB, "status": "succeeded", "waiting": None, "attempt": 1}
COMMANDS = sorted(metadata.entry_points(group="openstack.gpu.v1"), key=lambda one: one.name)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(job_logs, "_POLL_S", 0.01)
    monkeypatch.setattr("gpuservice.clients.sdk.v1._jobs.time.sleep", lambda seconds: None)


def jobs(*found):
    return Answer(body={"jobs": list(found), "links": []})


def test_every_command_is_there():
    assert len(COMMANDS) >= 60


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda one: one.name)
def test_every_command_has_help_with_an_example_of_itself(entry):
    kind = entry.load()
    assert issubclass(kind, GpuCommand)
    words = "openstack " + entry.name.replace("_", " ")
    assert kind.example.startswith(words), kind.example
    for cls in kind.__mro__:
        if cls is kind:
            assert (cls.__doc__ or "").strip()


def test_every_example_parses(openstack, api):
    shell = importlib.import_module("openstackclient.shell")
    app = shell.OpenStackShell()
    for entry in COMMANDS:
        kind = entry.load()
        for line in kind.example.splitlines():
            words = shlex.split(line.split(" | ")[0])
            rest = words[1 + len(entry.name.split("_")) :]
            parser = kind(app, None).get_parser("x")
            assert parser.parse_args(rest)


def test_help_shows_the_example(openstack):
    ran = openstack("help", "gpu", "job", "create")
    assert ran.code == 0
    assert "Example:\n  $ openstack gpu job create --queue vision --gpus 4" in ran.text


def test_list_in_every_format(openstack, api):
    api.on("GET", "/v1/jobs", jobs(JOB))
    table = openstack("gpu", "job", "list", "--long").text
    assert "waiting.summary" in table
    row = json.loads(openstack("gpu", "job", "list", "--long", "-f", "json").text)[0]
    assert row["labels"] == {}
    assert row["waiting.code"] == "insufficient_gpus"
    assert "insufficient_gpus" in openstack("gpu", "job", "list", "-f", "yaml").text


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


def test_everyday_create(openstack, api):
    api.on("POST", "/v1/jobs", Answer(202, {"job": JOB}))
    ran = openstack(
        "gpu",
        "job",
        "create",
        "--queue",
        "vision",
        "--gpus",
        "4",
        "--gpu-type",
        "a100-80gb",
        "--tasks",
        "2",
        "--max-runtime",
        "1h",
        "-f",
        "json",
        "--",
        "python3",
        "train.py",
        "--debug",
        "-f",
        "x",
    )
    assert json.loads(ran.text)["id"] == JOB_ID
    assert api.asked[-1].body == {
        "job": {
            "name": "train",
            "queue": "vision",
            "max_runtime_s": 3600,
            "resources": {"gpus": 4, "gpu_types": ["a100-80gb"]},
            "tasks": {"count": 2},
            "command": ["python3", "train.py", "--debug", "-f", "x"],
        }
    }


def test_create_by_every_option(openstack, api, tmp_path):
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/sh\ntrue\n")
    api.on("POST", "/v1/jobs", Answer(202, {"job": JOB}))
    ran = openstack(
        "gpu",
        "job",
        "create",
        "--script",
        str(script),
        "--kind",
        "evaluation",
        "--priority",
        "700",
        "--env",
        "A=1",
        "--env",
        "B=x=y",
        "--label",
        "team=vision",
        "--array-size",
        "10",
        "--array-max-running",
        "2",
        "--gpu-memory",
        "20GiB",
        "--vcpus",
        "8",
        "--memory",
        "64G",
        "--within",
        "rack",
        "--topology-policy",
        "preferred",
        "--input",
        "data/=https://x.example/a.bin",
        "--output",
        "out/",
        "--output",
        "ckpt/=file:///d/",
        "--checkpoint",
        "ckpt",
        "--checkpoint-interval",
        "10m",
        "--max-attempts",
        "1",
        "--depends-on",
        f"{JOB_ID}=ended",
        "--hold",
        "--workdir",
        "w",
    )
    assert ran.code == 0, ran.err
    assert api.asked[-1].body["job"] == {
        "name": "run",
        "script": "#!/bin/sh\ntrue\n",
        "kind": "evaluation",
        "priority": 700,
        "env": {"A": "1", "B": "x=y"},
        "labels": {"team": "vision"},
        "array": {"size": 10, "max_running": 2},
        "resources": {"gpu_memory_mib": 20480, "vcpus": 8, "memory_mib": 65536},
        "topology": {"within": "rack", "policy": "preferred"},
        "inputs": [{"path": "data/", "source": "https://x.example/a.bin"}],
        "outputs": [{"path": "out/"}, {"path": "ckpt/", "target": "file:///d/"}],
        "checkpoint": {"path": "ckpt", "interval_s": 600},
        "retry": {"max_attempts": 1},
        "depends_on": [{"job": JOB_ID, "condition": "ended"}],
        "hold": True,
        "workdir": "w",
    }


@pytest.mark.parametrize(
    "content",
    [
        "job:\n  name: sweep\n  command: [a]\n  resources: {gpus: 4, vcpus: 2}\n"
        "  retry: {on: [node_failure]}\n  deadline_at: 2030-01-01T00:00:00Z\n",
        '{"name": "sweep", "command": ["a"], "resources": {"gpus": 4, "vcpus": 2}, "retry": '
        '{"on": ["node_failure"]}, "deadline_at": "2030-01-01T00:00:00Z"}',
    ],
)
def test_create_from_a_file_with_options_before_it(openstack, api, tmp_path, content):
    path = tmp_path / "job.yaml"
    path.write_text(content)
    api.on("POST", "/v1/jobs", Answer(202, {"job": JOB}))
    ran = openstack(
        "gpu", "job", "create", "--file", str(path), "--priority", "high", "--gpu-fraction", "0.5"
    )
    assert ran.code == 0, ran.err
    assert api.asked[-1].body["job"] == {
        "name": "sweep",
        "command": ["a"],
        "priority": "high",
        "resources": {"vcpus": 2, "gpu_fraction": 0.5},
        "retry": {"on": ["node_failure"]},
        "deadline_at": "2030-01-01T00:00:00Z",
    }


@pytest.mark.a11
def test_wrong_field_in_a_file_is_told_with_its_value(openstack, api, tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("name: x\ncommand: [a]\nresources: {gpus: four}\n")
    api.on(
        "POST",
        "/v1/jobs",
        error(
            400,
            "gpu.request.invalid",
            "gpus must be a whole number, 0 to 1024.",
            "/job/resources/gpus",
        ),
    )
    ran = openstack("gpu", "job", "create", "--file", str(path))
    assert ran.code == 1
    assert "field: /job/resources/gpus" in ran.err
    assert 'value: "four"' in ran.err
    assert "a whole number, 0 to 1024" in ran.err
    assert ran.out == b""


@pytest.mark.a11
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("name: [x\n", "line 2"),
        ("name: x\nname: y\n", "'name' is there twice"),
        ("- a\n- b\n", "must hold the fields of a job"),
        ("", "must hold the fields of a job"),
        ("1: 2\n", "1 is no text"),
    ],
)
def test_file_that_is_no_job(openstack, api, tmp_path, content, said):
    path = tmp_path / "job.yaml"
    path.write_text(content)
    ran = openstack("gpu", "job", "create", "--file", str(path))
    assert ran.code == 1
    assert said in ran.err
    assert api.asked == []


def test_file_that_cannot_be_read(openstack):
    ran = openstack("gpu", "job", "create", "--file", "/nowhere/job.yaml")
    assert ran.code == 1
    assert "cannot be read: No such file" in ran.err


def test_dry_run(openstack, api):
    api.on(
        "POST",
        "/v1/jobs",
        Answer(
            200,
            {
                "job": JOB,
                "dry_run": {
                    "status": "impossible",
                    "placement": [],
                    "estimated_start_at": None,
                    "explanation": {
                        "summary": "Needs 65 GPUs; there are 64.",
                        "would_start_now_if": [{"change": {"tasks": {"count": 1}}}],
                    },
                },
            },
        ),
    )
    ran = openstack("gpu", "job", "create", "--dry-run", "--gpus", "65", "--", "true")
    assert api.asked[-1].query == {"dry_run": "true"}
    assert "Needs 65 GPUs" in ran.err
    assert "tasks.count = 1" in ran.err
    assert "impossible" in ran.text


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


def log(data, offset, end):
    return Answer(
        raw=data,
        headers={
            "OpenStack-GPU-Log-Offset": str(offset),
            "OpenStack-GPU-Log-End": str(end).lower(),
        },
    )


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


def artifact(path, data, index=0):
    return {
        "path": path,
        "index": index,
        "attempt": 1,
        "rank": 0,
        "size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }


def test_download(openstack, api, tmp_path):
    root = f"/v1/jobs/{JOB_ID}"
    api.on("GET", root, Answer(body={"job": ENDED}))
    api.on(
        "GET",
        f"{root}/artifacts",
        Answer(
            body={
                "artifacts": [
                    artifact("1/0/out/model.npz", b"\x00weights"),
                    artifact("1/0/log.txt", b"x"),
                ],
                "links": [],
            }
        ),
    )
    api.on("GET", f"{root}/artifacts/1/0/out/model.npz", Answer(raw=b"\x00weights"))
    ran = openstack(
        "gpu", "job", "download", JOB_ID, "--dest", str(tmp_path / "d"), "--path", "1/0/out"
    )
    assert ran.code == 0, ran.err
    files = [one for one in (tmp_path / "d").rglob("*") if one.is_file()]
    assert files == [tmp_path / "d/1/0/out/model.npz"]
    assert files[0].read_bytes() == b"\x00weights"
    listed = openstack("gpu", "job", "artifacts", JOB_ID, "-f", "value", "-c", "path").text
    assert listed == "1/0/out/model.npz\n1/0/log.txt\n"


@pytest.mark.parametrize(
    "path",
    ["../evil", "/etc/evil", "a/../../evil", "a//b", "link/evil", "a\\..\\evil", "a/\x1b[2Jx"],
)
def test_download_refuses_paths_that_lead_out(openstack, api, tmp_path, path):
    dest = tmp_path / "d"
    dest.mkdir()
    (dest / "link").symlink_to(tmp_path)
    root = f"/v1/jobs/{JOB_ID}"
    api.on("GET", root, Answer(body={"job": ENDED}))
    api.on(
        "GET", f"{root}/artifacts", Answer(body={"artifacts": [artifact(path, b"x")], "links": []})
    )
    ran = openstack("gpu", "job", "download", JOB_ID, "--dest", str(dest))
    assert ran.code == 1
    assert "leads out of" in ran.err
    assert "\x1b" not in ran.err
    assert [one.name for one in tmp_path.rglob("*")] == ["d", "link"]


def test_download_that_arrives_broken_leaves_nothing(openstack, api, tmp_path):
    root = f"/v1/jobs/{JOB_ID}"
    api.on("GET", root, Answer(body={"job": ENDED}))
    api.on(
        "GET",
        f"{root}/artifacts",
        Answer(body={"artifacts": [artifact("1/0/a", b"whole")], "links": []}),
    )
    api.on("GET", f"{root}/artifacts/1/0/a", Answer(raw=b"other"))
    ran = openstack("gpu", "job", "download", JOB_ID, "--dest", str(tmp_path))
    assert ran.code == 1
    assert "did not arrive whole" in ran.err
    assert [one for one in tmp_path.rglob("*") if one.is_file()] == []
