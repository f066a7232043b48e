# SPDX-License-Identifier: Apache-2.0
"""The SDK and the commands against the real API on SQLite."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from pathlib import Path

import pytest
from openstack_shell import run_openstack
from werkzeug.serving import make_server

from gpuservice.clients import sdk
from gpuservice.db.engine import create_engine
from gpuservice.db.tables import METADATA

sys.path.insert(0, str(Path(__file__).parent.parent / "api"))

from api_world import World


@pytest.fixture
def url(tmp_path, monkeypatch):
    for name in list(os.environ):
        if name.startswith("OS_"):
            monkeypatch.delenv(name)
    template = tmp_path / "template.db"
    engine = create_engine(f"sqlite:///{template}")
    METADATA.create_all(engine)
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    engine.dispose()
    world = World(tmp_path, template)
    world.seed()
    server = make_server("127.0.0.1", 0, world.app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()
    assert world.recount() == []
    world.engine.dispose()
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.fixture
def openstack(url, capfd):
    def run(*argv, project="vision", roles="member"):
        os.environ.update(OS_PROJECT_ID=project, OS_GPU_ROLES=roles)
        try:
            return run_openstack(
                capfd, "--os-auth-type", "none", "--os-endpoint", url, "gpu", *argv
            )
        finally:
            del os.environ["OS_PROJECT_ID"], os.environ["OS_GPU_ROLES"]

    return run


LISTS = (
    "type",
    "host",
    "device",
    "flavor",
    "quota",
    "pool",
    "node",
    "cohort",
    "queue",
    "service",
    "simulate",
    "event",
    "job",
)


@pytest.mark.parametrize("noun", LISTS)
def test_every_list(openstack, noun):
    code, out, err = openstack(noun, "list", "--long", "-f", "json", roles="admin")
    assert code == 0, err
    assert isinstance(json.loads(out), list)


@pytest.mark.parametrize("noun", ["type", "host", "device", "flavor", "node", "queue", "pool"])
def test_show_what_is_listed(openstack, noun):
    more = ["--all-projects"] if noun in ("node", "pool", "queue") else []
    _, out, err = openstack(
        noun, "list", "-f", "value", "-c", "id", "--limit", "1", *more, roles="admin"
    )
    assert out.strip(), err
    code, out, err = openstack(noun, "show", out.strip(), "-f", "json", roles="admin")
    assert code == 0, err
    assert json.loads(out)["id"]


def test_a_job_from_creation_to_deletion(openstack):
    code, out, err = openstack(
        "job", "create", "--gpus", "2", "--label", "a=b", "-f", "json", "--", "python3", "train.py"
    )
    assert code == 0, err
    job = json.loads(out)
    assert (job["name"], job["status"], job["resources"]["gpus"]) == ("train", "queued", 2)
    code, out, err = openstack(
        "job", "list", "--label", "a=b", "-f", "value", "-c", "id", "-c", "status"
    )
    assert out == f"{job['id']}\tqueued\n", err
    assert openstack("job", "hold", "train")[0] == 0
    assert json.loads(openstack("job", "show", "train", "-f", "json")[1])["status"] == "held"
    assert openstack("job", "release", "train")[0] == 0
    code, out, _ = openstack("job", "explain", "train")
    assert code == 0
    assert "evaluating" in out
    assert openstack("job", "set", "train", "--label", "c=d", "--unset-label", "a")[0] == 0
    assert json.loads(openstack("job", "show", "train", "-f", "json")[1])["labels"] == {"c": "d"}
    for below in ("attempts", "events", "artifacts", "elements", "logs"):
        assert openstack("job", below, "train")[0] == 0, below
    assert openstack("job", "show", "train", project="other")[0] == 1
    assert openstack("job", "cancel", "train")[0] == 0
    assert openstack("job", "wait", "train")[0] == 1
    assert openstack("job", "delete", "train")[0] == 0
    assert openstack("job", "show", "train")[0] == 1


@pytest.mark.a11
@pytest.mark.parametrize(
    ("content", "pointer", "value", "allowed"),
    [
        (
            "name: x\ncommand: [a]\nresources: {gpus: four}\n",
            "/job/resources/gpus",
            '"four"',
            "integer",
        ),
        ("name: x\ncommand: [a]\nkind: gaming\n", "/job/kind", '"gaming"', "training"),
        ("name: x\ncommand: [a]\ngpus: 4\n", "/job/gpus", "4", "resources"),
        ("name: x\ncommand: [a]\nmax_runtime_s: 0\n", "/job/max_runtime_s", "0", "1"),
        ("name: x\ncommand: [a]\nqueue: none-such\n", "/job/queue", '"none-such"', "queue"),
        ("name: x\n", "/job/command", "(not given)", "command and script"),
    ],
)
def test_wrong_field_in_a_file(openstack, tmp_path, content, pointer, value, allowed):
    path = tmp_path / "job.yaml"
    path.write_text(content)
    code, out, err = openstack("job", "create", "--file", str(path))
    assert code == 1
    assert out == ""
    assert f"field: {pointer}\nvalue: {value}\n" in err
    assert allowed in err


def test_dry_run(openstack):
    code, out, err = openstack("job", "create", "--dry-run", "-f", "json", "--", "true")
    assert code == 0, err
    assert json.loads(out)["status"] == "starts_now"


def test_operator_makes_and_removes_things(openstack):
    def admin(*argv):
        code, out, err = openstack(*argv, "-f", "json", roles="admin")
        assert code == 0, err
        return json.loads(out)

    assert (
        admin("type", "create", "t1", "--vendor", "nvidia", "--memory", "24GiB")["memory_mib"]
        == 24_576
    )
    flavor = admin("flavor", "create", "f1", "--gpu-type", "t1", "--gpus", "2", "--public", "false")
    assert admin("flavor", "set", "f1", "--project", "vision")["projects"] == ["vision"]
    assert admin("flavor", "unset", "f1", "--project", "vision")["projects"] == []
    assert admin("flavor", "capacity", "f1")["nodes"] == 0
    assert admin("queue", "create", "q1", "--open-to", "*")["projects"] == ["*"]
    assert admin("queue", "set", "q1", "--status", "closed")["status"] == "closed"
    limits = admin("quota", "set", "vision", "--limit", "gpus=3")
    assert {"name": "gpus", "limit": 3, "used": 0} in limits
    assert openstack("limits", "show", "-f", "value", "-c", "name")[0] == 0
    code, _, err = openstack(
        "queue", "set", "q1", "--weight", "2", "--generation", "99", roles="admin"
    )
    assert code == 1
    assert "HTTP 412" in err
    for noun, name in (("queue", "q1"), ("flavor", flavor["id"]), ("type", "t1")):
        assert openstack(noun, "delete", name, roles="admin")[0] == 0


def test_sdk_creates_once_under_one_key(url):
    gpu = sdk.connect(url, project_id="vision").gpu
    first = gpu.create_job({"name": "x", "command": ["true"]}, idempotency_key="k" * 16)
    again = gpu.create_job({"name": "x", "command": ["true"]}, idempotency_key="k" * 16)
    assert first.id == again.id
    with pytest.raises(sdk.GpuConflict):
        gpu.create_job({"name": "y", "command": ["true"]}, idempotency_key="k" * 16)
    assert [job.id for job in gpu.jobs(limit=1)] == [first.id]
