# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that nodes hand over: what is kept of them, how much, and what goes when."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from api_world import World, error_of
from fake_node import FakeNode, attempt_of, conduct, report

from gpuservice.domain import kept
from gpuservice.services import agent_data


@pytest.fixture
def folder(world: World, job_id: str) -> Path:
    """Where the store keeps the first attempt's checkpoints."""
    attempt = attempt_of(world, job_id)
    return Path(world.conf.artifacts.directory) / job_id / attempt.id / "0" / "checkpoints"


def there(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir()} if folder.exists() else set()


def put(node: FakeNode, task_id: str, seq: int, path: str = "state", data: bytes = b"abc") -> int:
    return node.put(task_id, f"checkpoints/{seq}/{path}", data).status_code


def complete(node: FakeNode, task_id: str, seq: int, data: bytes = b"abc", *paths: str):
    listed = [
        {"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for path in paths or ("state",)
    ]
    return node.client.post(f"/agent/tasks/{task_id}/checkpoints", {"seq": seq, "files": listed})


def test_an_unfinished_set_goes_when_another_begins(node, task_id, folder):
    for seq in range(1, 6):
        assert put(node, task_id, seq) == 201
        assert put(node, task_id, seq, "more") == 201
        assert there(folder) == {str(seq)}
    assert complete(node, task_id, 5).status_code == 200
    for seq in (6, 7):
        assert put(node, task_id, seq) == 201
    assert there(folder) == {"5", "7"}  # what may be restored stays
    assert put(node, task_id, 3) == 201  # after a clock was set back
    assert there(folder) == {"5", "3"}


def test_unfinished_sets_go_when_one_is_completed(node, task_id, folder):
    assert put(node, task_id, 2) == 201
    (folder / "1").mkdir()  # a put that came late
    (folder / "1" / "rest").write_bytes(b"x")
    assert complete(node, task_id, 2).status_code == 200
    assert there(folder) == {"2"}


def test_unfinished_sets_go_when_the_task_ends(world, node, job_id, task_id, folder):
    assert put(node, task_id, 1) == 201
    assert complete(node, task_id, 1).status_code == 200
    assert put(node, task_id, 2) == 201
    node.orders(report(task_id, "running"))
    node.orders(report(task_id, "gone", exit_code=0))
    conduct(world)
    assert there(folder) == {"1"}


def test_a_file_that_is_put_while_the_task_ends_is_not_kept(
    world, node, job_id, task_id, folder, monkeypatch
):
    put_bounded = agent_data.AgentData._put_bounded

    def slowly(self, prefix, name, stream):
        stored = put_bounded(self, prefix, name, stream)
        node.orders(report(task_id, "gone", exit_code=0))
        return stored

    monkeypatch.setattr(agent_data.AgentData, "_put_bounded", slowly)
    assert put(node, task_id, 1) == 409
    assert not [one for one in folder.rglob("*") if one.is_file()]


def test_a_complete_set_is_not_changed(node, task_id):
    assert put(node, task_id, 1) == 201
    assert complete(node, task_id, 1).status_code == 200
    assert put(node, task_id, 1, "more") == 409
    assert complete(node, task_id, 1).status_code == 200


def test_a_set_is_bounded_as_a_whole(world, node, task_id, monkeypatch):
    world.conf.set_override("checkpoint_max_bytes", 1024, "artifacts")
    assert put(node, task_id, 1, "a", b"x" * 600) == 201
    assert put(node, task_id, 1, "a", b"y" * 700) == 201  # again, in its place
    answer = node.put(task_id, "checkpoints/1/b", b"x" * 325)
    assert answer.status_code == 413
    assert error_of(answer)["meta"] == {"max_bytes": 1024}
    assert put(node, task_id, 1, "b", b"x" * 324) == 201
    monkeypatch.setattr(agent_data, "MAX_CHECKPOINT_FILES", 2)
    assert put(node, task_id, 1, "c", b"") == 403
    assert put(node, task_id, 1, "b", b"") == 201


def test_nodes_know_the_bound(world, node, task_id):
    (order,) = node.orders()
    assert order["spec"]["checkpoint_max_bytes"] == world.conf.artifacts.checkpoint_max_bytes


def test_a_set_of_as_many_files_as_allowed_can_be_completed(node, task_id, folder):
    paths = [f"ckpt/{number:0100d}" for number in range(kept.MAX_CHECKPOINT_FILES)]
    (folder / "1").mkdir(parents=True)
    for path in paths:
        (folder / "1" / kept_name(path)).write_bytes(b"x")
    answer = complete(node, task_id, 1, b"x", *paths)
    assert answer.status_code == 200, answer.text


def test_owners_hear_of_checkpoints_that_are_not_kept(node, ada, job_id, task_id):
    node.orders(report(task_id, "running"))
    fault = {"reason": "too_large", "evidence": "it has more than 1024 bytes"}
    for _ in range(2):  # a node whose answer was lost says it again
        node.orders(report(task_id, "running", checkpoint_fault=fault))
    events = ada.get(f"/jobs/{job_id}/events").get_json()["events"]
    (event,) = [one for one in events if one["action"] == "job.checkpoint_fault"]
    assert (event["reason"], event["outcome"]) == ("too_large", "failure")
    assert event["detail"]["message"] == fault["evidence"]
    assert event["detail"]["rank"] == 0
    refused = node.sync(report(task_id, "running", checkpoint_fault={"reason": "Too Large"}))
    assert refused.status_code == 400


def kept_name(path: str) -> str:
    return agent_data.object_name(path)
