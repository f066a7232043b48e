# SPDX-License-Identifier: Apache-2.0
"""``job create``: from options, from a file, on trial; what is wrong in a file is told."""

from __future__ import annotations

import json

import pytest
from client_answers import JOB, jobs
from fake_api import JOB_ID, Answer, error


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


#: Every option but those of :func:`test_everyday_create`, and the job that they make.
OPTIONS = f"""
    --kind evaluation --priority 700 --env A=1 --env B=x=y --label team=vision --array-size 10
    --array-max-running 2 --gpu-memory 20GiB --vcpus 8 --memory 64G --within rack
    --topology-policy preferred --input data/=https://x.example/a.bin --output out/
    --output ckpt/=file:///d/ --checkpoint ckpt --checkpoint-interval 10m --max-attempts 1
    --depends-on {JOB_ID}=ended --hold --workdir w
"""
SPEC = {
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


def test_create_by_every_option(openstack, api, tmp_path):
    script = tmp_path / "run.sh"
    script.write_text(SPEC["script"])
    api.on("POST", "/v1/jobs", Answer(202, {"job": JOB}))
    ran = openstack("gpu", "job", "create", "--script", str(script), *OPTIONS.split())
    assert ran.code == 0, ran.err
    assert api.asked[-1].body["job"] == SPEC


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


def test_dependencies_by_name(openstack, api, tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("name: x\ncommand: [a]\ndepends_on: [{job: train, condition: started}]\n")
    api.on("POST", "/v1/jobs", Answer(202, {"job": JOB}))
    api.on("GET", "/v1/jobs", jobs(JOB))
    ran = openstack("gpu", "job", "create", "--depends-on", "train=ended", "--", "a")
    assert ran.code == 0, ran.err
    assert api.last("POST").body["job"]["depends_on"] == [{"job": JOB_ID, "condition": "ended"}]
    ran = openstack("gpu", "job", "create", "--file", str(path))
    assert ran.code == 0, ran.err
    assert api.last("POST").body["job"]["depends_on"] == [{"job": JOB_ID, "condition": "started"}]
    api.on("GET", "/v1/jobs", jobs())
    ran = openstack("gpu", "job", "create", "--depends-on", "nosuch", "--", "a")
    assert ran.code == 1
    assert "'nosuch'" in ran.err


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
