# SPDX-License-Identifier: Apache-2.0
"""What nodes hand over: logs, artifacts, checkpoints; and what users see of it."""

from __future__ import annotations

import hashlib
import threading
import time

import pytest
from api_world import error_of
from fake_node import FakeNode, conduct, place, ready, report

from gpuservice.domain.ports_store import TaskEnd


def test_logs_by_offset(node, ada, job_id, task_id):
    assert node.send_log(task_id, 0, b"hello ").get_json() == {"next_offset": 6, "full": False}
    assert node.send_log(task_id, 2, b"llo world").get_json()["next_offset"] == 11
    assert ada.get(f"/jobs/{job_id}/logs").data == b"hello world"


def test_a_gap_says_what_is_wanted(node, task_id):
    node.send_log(task_id, 0, b"abc")
    error = error_of(node.send_log(task_id, 10, b"later"))
    assert error["code"] == "gpu.log.gap"
    assert error["meta"] == {"offset": 3}


def test_a_full_log(world, node, ada, job_id, task_id):
    world.conf.set_override("max_bytes", 1024, "logs")
    answer = node.send_log(task_id, 0, b"x" * 2000)
    assert answer.status_code == 200
    assert answer.get_json() == {"next_offset": 1024, "full": True}
    assert len(ada.get(f"/jobs/{job_id}/logs").data) == 1024


@pytest.mark.parametrize(
    ("query", "data", "offset"),
    [
        ("", b"0123456789", "10"),
        ("?offset=4", b"456789", "10"),
        ("?offset=-3", b"789", "10"),
        ("?offset=-30", b"0123456789", "10"),
        ("?offset=99", b"", "99"),
        ("?stream=stderr", b"", "0"),
        ("?attempt=1&task=0&index=0", b"0123456789", "10"),
    ],
)
def test_reading_from_an_offset(node, ada, job_id, task_id, query, data, offset):
    node.send_log(task_id, 0, b"0123456789")
    answer = ada.get(f"/jobs/{job_id}/logs{query}")
    assert answer.status_code == 200
    assert answer.data == data
    assert answer.headers["OpenStack-GPU-Log-Offset"] == offset
    assert answer.headers["OpenStack-GPU-Log-End"] != "true"


@pytest.mark.parametrize("query", ["?task=7", "?attempt=9", "?index=5"])
def test_logs_of_what_is_not_there(ada, job_id, task_id, query):
    assert ada.get(f"/jobs/{job_id}/logs{query}").status_code == 404


@pytest.mark.parametrize("query", ["?stream=both", "?offset=x", "?wait_s=21", "?tail=1"])
def test_wrong_log_queries(ada, job_id, task_id, query):
    assert ada.get(f"/jobs/{job_id}/logs{query}").status_code == 400


def test_a_wait_ends_with_more_log(world, node, ada, job_id, task_id):
    node.send_log(task_id, 0, b"one")
    answers = []
    wait = threading.Thread(
        target=lambda: answers.append(ada.get(f"/jobs/{job_id}/logs?offset=3&wait_s=15"))
    )
    began = time.monotonic()
    wait.start()
    node.send_log(task_id, 3, b"two")
    wait.join(15)
    assert answers[0].data == b"two"
    assert time.monotonic() - began < 8


def test_nobody_waits_for_a_log_that_is_over(world, node, ada, job_id, task_id):
    node.send_log(task_id, 0, b"last words")
    world.store.write(lambda uow: uow.tasks.gone([TaskEnd(task_id)], uow.now()))  # a lost node
    answer = ada.get(f"/jobs/{job_id}/logs?offset=10&wait_s=20")
    assert (answer.data, answer.headers["OpenStack-GPU-Log-End"]) == (b"", "true")
    queued = ada.post("/jobs", {"job": {"name": "n", "command": ["true"]}}).get_json()["job"]["id"]
    assert ada.get(f"/jobs/{queued}/logs").headers["OpenStack-GPU-Log-End"] != "true"
    ada.post(f"/jobs/{queued}/action", {"cancel": {}})
    answer = ada.get(f"/jobs/{queued}/logs?wait_s=20")
    assert answer.headers["OpenStack-GPU-Log-End"] == "true"


def test_artifacts_are_hidden_until_their_attempt_ends(world, node, ada, job_id, task_id):
    data = b"weights"
    answer = node.put(task_id, "artifacts/out/model.bin", data)
    assert answer.status_code == 201
    assert answer.get_json() == {"size": 7, "sha256": hashlib.sha256(data).hexdigest()}
    assert ada.get(f"/jobs/{job_id}/artifacts").get_json()["artifacts"] == []
    assert ada.get(f"/jobs/{job_id}/artifacts/1/0/out/model.bin").status_code == 404
    node.orders(report(task_id, "running"))
    node.orders(report(task_id, "gone", exit_code=0))
    conduct(world)
    (shown,) = ada.get(f"/jobs/{job_id}/artifacts").get_json()["artifacts"]
    assert (shown["path"], shown["size"]) == ("1/0/out/model.bin", 7)
    got = ada.get(f"/jobs/{job_id}/artifacts/{shown['path']}")
    assert got.data == data
    assert got.headers["Content-Disposition"].startswith("attachment")
    assert got.headers["X-Content-Type-Options"] == "nosniff"
    assert got.headers["Content-Type"] == "application/octet-stream"
    assert world.client("audio").get(f"/jobs/{job_id}/artifacts").status_code == 404


def test_a_file_where_another_has_a_folder(node, task_id):
    for path in ("a", "a/b", "a/b/c", "a"):
        assert node.put(task_id, f"artifacts/{path}", b"x").status_code == 201
    long_name = "/".join(["n" * 255, "m" * 255])
    assert node.put(task_id, f"artifacts/{long_name}", b"x").status_code == 201


@pytest.mark.parametrize(
    "path",
    ["../x", "a/../../x", "a//b", "/etc/passwd", "a/./b", "a/", "a%0ab", "a%00b", "e%CC%81",
     "C:x", "a%5Cb", "x" * 600],
)  # fmt: skip
def test_paths_that_are_refused(node, task_id, path):
    answer = node.put(task_id, f"artifacts/{path}", b"x")
    assert answer.status_code in (400, 404), answer.text


def test_an_artifact_that_is_too_large(world, node, task_id):
    world.conf.set_override("max_bytes", 1024, "artifacts")
    assert node.put(task_id, "artifacts/big", b"x" * 1025).status_code == 413


def test_too_many_artifacts(world, node, task_id):
    world.conf.set_override("max_per_task", 2, "artifacts")
    assert node.put(task_id, "artifacts/a", b"x").status_code == 201
    assert node.put(task_id, "artifacts/b", b"x").status_code == 201
    assert node.put(task_id, "artifacts/c", b"x").status_code == 403
    assert node.put(task_id, "artifacts/a", b"y").status_code == 201


def test_a_node_touches_its_own_tasks_only(world, cluster, node, task_id):
    other = ready(world, cluster.nodes[1])
    absent = "00000000-0000-4000-8000-000000000000"
    for ident in (task_id, absent):
        for answer in (
            other.send_log(ident, 0, b"x"),
            other.put(ident, "artifacts/a", b"x"),
            other.put(ident, "checkpoints/1/a", b"x"),
            other.client.post(f"/agent/tasks/{ident}/checkpoints", {"seq": 1, "files": []}),
            other.client.get(f"/agent/tasks/{ident}/checkpoint"),
            other.client.get(f"/agent/tasks/{ident}/checkpoint/a"),
        ):
            assert answer.status_code == 404


def complete(node: FakeNode, task_id: str, seq: int, **files: bytes):
    listed = [
        {"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for path, data in files.items()
    ]
    return node.client.post(f"/agent/tasks/{task_id}/checkpoints", {"seq": seq, "files": listed})


def put_set(node: FakeNode, task_id: str, seq: int, **files: bytes) -> None:
    for path, data in files.items():
        assert node.put(task_id, f"checkpoints/{seq}/{path}", data).status_code == 201
    assert complete(node, task_id, seq, **files).status_code == 200


def test_the_newest_complete_set_is_restored(world, cluster, node, ada, job_id, task_id):
    assert node.client.get(f"/agent/tasks/{task_id}/checkpoint").status_code == 404
    put_set(node, task_id, 1, state=b"old")
    put_set(node, task_id, 2, state=b"new", more=b"x")
    assert node.put(task_id, "checkpoints/3/state", b"never completed").status_code == 201
    assert node.client.get(f"/agent/tasks/{task_id}/checkpoint").status_code == 404
    node.orders(report(task_id, "running"))
    conduct(world)
    assert ada.post(f"/jobs/{job_id}/action", {"requeue": {}}).status_code == 202
    conduct(world)
    node.orders(report(task_id, "gone", signal=15))
    conduct(world)
    assert ada.get(f"/jobs/{job_id}").get_json()["job"]["status"] == "queued"
    place(world, cluster, job_id, cluster.nodes[:1])
    (order,) = node.orders()
    assert (order["attempt"], order["spec"]["restore_checkpoint"]) == (2, True)
    again = order["task_id"]
    found = node.client.get(f"/agent/tasks/{again}/checkpoint").get_json()
    assert found["seq"] == 2
    assert sorted(one["path"] for one in found["files"]) == ["more", "state"]
    assert node.client.get(f"/agent/tasks/{again}/checkpoint/state").data == b"new"
    assert node.client.get(f"/agent/tasks/{again}/checkpoint/other").status_code == 404


def test_a_set_is_complete_only_with_all_its_files(node, task_id):
    node.put(task_id, "checkpoints/1/state", b"abc")
    assert complete(node, task_id, 1, state=b"abc", lost=b"x").status_code == 400
    assert complete(node, task_id, 1, state=b"abcd").status_code == 400
    assert complete(node, task_id, 1, state=b"abc").status_code == 200
    assert complete(node, task_id, 1, state=b"abc").status_code == 200


def test_nothing_is_taken_of_a_task_that_is_gone(node, task_id):
    node.orders(report(task_id, "gone", exit_code=0))
    assert node.send_log(task_id, 0, b"x").status_code == 409
    assert node.put(task_id, "artifacts/a", b"x").status_code == 409
