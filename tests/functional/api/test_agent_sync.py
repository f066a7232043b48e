# SPDX-License-Identifier: Apache-2.0
"""Sync: orders out, reports in, leases, waiting, and what it costs."""

from __future__ import annotations

import errno
import os
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from api_world import Client, Cluster, error_of
from fake_node import attempt_of, commit, conduct, piece, place, ready, report, tasks_of

from gpuservice.domain.ports import Hint


@pytest.fixture
def job_id(ada: Client, cluster: Cluster) -> str:
    return submit(ada)


def submit(ada: Client, **changed) -> str:
    body = {"name": "train", "command": ["python3", "train.py"], "env": {"EPOCHS": "3"}, **changed}
    answer = ada.post("/jobs", {"job": body})
    assert answer.status_code == 202, answer.text
    return answer.get_json()["job"]["id"]


def status(ada: Client, job_id: str) -> str:
    return ada.get(f"/jobs/{job_id}").get_json()["job"]["status"]


def test_an_idle_node(node):
    body = node.sync().get_json()
    assert body["tasks"] == []
    assert (body["epoch"], body["lease_s"], body["interval_s"]) == (1, 60, 5.0)


def test_an_order_says_all_that_a_task_needs(world, cluster, node, ada):
    other = ready(world, cluster.nodes[1])
    job_id = submit(ada, tasks={"count": 2}, max_runtime_s=60, signal="INT", grace_period_s=7)
    place(world, cluster, job_id, cluster.nodes[:2], gpus=2)
    (order,) = other.orders()
    assert (order["job_id"], order["attempt"], order["index"]) == (job_id, 1, 0)
    assert (order["rank"], order["count"], order["action"]) == (1, 2, "run")
    assert (order["grace_s"], order["signal"]) == (7, "INT")
    assert [one["index"] for one in order["devices"]] == [0, 1]
    assert [one["milli"] for one in order["devices"]] == [1000, 1000]
    spec = order["spec"]
    assert spec["command"] == ["python3", "train.py"]
    assert (spec["time_limit_s"], spec["restore_checkpoint"]) == (60, False)
    assert spec["artifact_max_bytes"] == world.conf.artifacts.max_bytes
    env = spec["env"]
    assert env["EPOCHS"] == "3"
    assert env["GPUSERVICE_NODE_ADDRESSES"] == "127.1.0.1,127.1.0.2"
    assert env["MASTER_ADDR"] == "127.1.0.1"
    assert env["MASTER_PORT"] == "20000"
    assert (env["RANK"], env["WORLD_SIZE"], env["NODE_RANK"]) == ("1", "2", "1")
    assert (env["GPUSERVICE_TASK_RANK"], env["GPUSERVICE_TASK_COUNT"]) == ("1", "2")
    assert len(env["GPUSERVICE_GANG_SECRET"]) == 64
    (first,) = node.orders()
    assert first["spec"]["env"]["GPUSERVICE_GANG_SECRET"] == env["GPUSERVICE_GANG_SECRET"]


def test_from_order_to_success(world, cluster, node, ada, job_id):
    place(world, cluster, job_id, cluster.nodes[:1])
    assert status(ada, job_id) == "starting"
    (order,) = node.orders()
    task_id = order["task_id"]
    assert [one["task_id"] for one in node.orders(report(task_id, "running"))] == [task_id]
    conduct(world)
    assert status(ada, job_id) == "running"
    left = node.orders(report(task_id, "gone", exit_code=0))
    assert left == []
    assert world.store.read(lambda uow: uow.nodes.get(node.node.id)).live_tasks == 0
    conduct(world)
    shown = ada.get(f"/jobs/{job_id}").get_json()["job"]
    assert (shown["status"], shown["exit_code"], shown["attempt"]) == ("succeeded", 0, 1)
    actions = [one["action"] for one in ada.get(f"/jobs/{job_id}/events").get_json()["events"]]
    assert actions == ["job.create", "job.start", "job.run", "job.succeed"]


def test_reports_may_repeat_and_never_go_back(world, cluster, node, job_id):
    place(world, cluster, job_id, cluster.nodes[:1])
    (order,) = node.orders()
    task_id = order["task_id"]
    for state in ("running", "preparing", "running"):
        node.orders(report(task_id, state))
        assert tasks_of(world, job_id)[0].status == "running"
    node.orders(report(task_id, "gone", exit_code=3))
    node.orders(report(task_id, "gone", exit_code=0))
    node.orders(report(task_id, "running"))
    task = tasks_of(world, job_id)[0]
    assert (task.status, task.exit_code) == ("gone", 3)


def test_two_go_on_at_once_and_one_of_them_not_back(world, cluster, node, ada):
    ids = [submit(ada), submit(ada), submit(ada)]
    for ident in ids:
        place(world, cluster, ident, cluster.nodes[:1])
    orders = [order["task_id"] for order in node.orders()]
    node.orders(report(orders[0], "finishing"))
    node.orders(*[report(task_id, "running") for task_id in orders])
    states = {one.id: one.status for ident in ids for one in tasks_of(world, ident)}
    assert [states[task_id] for task_id in orders] == ["finishing", "running", "running"]


def test_a_foreign_task_is_not_taken(world, cluster, node, job_id):
    other = ready(world, cluster.nodes[1])
    place(world, cluster, job_id, cluster.nodes[:1])
    (order,) = node.orders()
    other.orders(report(order["task_id"], "gone", exit_code=0))
    assert tasks_of(world, job_id)[0].status == "assigned"


def test_a_cancelled_job_is_stopped(world, cluster, node, ada, job_id):
    place(world, cluster, job_id, cluster.nodes[:1])
    (order,) = node.orders()
    node.orders(report(order["task_id"], "running"))
    conduct(world)
    assert ada.post(f"/jobs/{job_id}/action", {"cancel": {}}).status_code == 202
    assert status(ada, job_id) == "cancelling"
    conduct(world)
    (order,) = node.orders()
    assert (order["action"], order["stop_reason"]) == ("stop", "cancelled")
    node.orders(report(order["task_id"], "gone", signal=15))
    conduct(world)
    assert status(ada, job_id) == "cancelled"


def test_a_changed_time_limit_is_told_while_the_task_runs(world, cluster, node, ada, job_id):
    place(world, cluster, job_id, cluster.nodes[:1])
    (order,) = node.orders()
    node.orders(report(order["task_id"], "running"))
    conduct(world)
    before = node.revision
    for limit in (600, 60):
        answer = world.client("vision", "manager").patch(
            f"/jobs/{job_id}", {"job": {"max_runtime_s": limit}}
        )
        assert answer.status_code == 200, answer.text
        (order,) = node.orders()
        assert (order["action"], order["spec"]["time_limit_s"]) == ("run", limit)
        assert node.revision > before
        before = node.revision


def test_an_old_epoch_changes_nothing(world, cluster, node, job_id):
    place(world, cluster, job_id, cluster.nodes[:1])
    (order,) = node.orders()
    world.store.write(
        lambda uow: uow.nodes.fence(node.node.id, 1, datetime.now(UTC) + timedelta(minutes=1))
    )
    answer = node.sync(report(order["task_id"], "gone", exit_code=0))
    assert error_of(answer)["code"] == "gpu.node.fenced"
    assert node.send_log(order["task_id"], 0, b"late").status_code == 409
    assert tasks_of(world, job_id)[0].status == "assigned"
    node.register()
    assert node.orders() == []  # its task belongs to the epoch that is over


def test_no_task_comes_to_a_node_that_was_given_up_since_the_snapshot(world, cluster, node, job_id):
    def come_back() -> None:
        world.store.write(lambda uow: uow.nodes.change(node.node.id, {"epoch": 2}))

    tried = commit(world, cluster, job_id, cluster.nodes[:1], meanwhile=come_back)
    assert tried.overtaken == [job_id]
    place(world, cluster, job_id, cluster.nodes[:1])
    assert tasks_of(world, job_id)[0].node_epoch == 2


def test_fenced_between_reading_and_writing(world, cluster, node, job_id, monkeypatch):
    place(world, cluster, job_id, cluster.nodes[:1])
    (order,) = node.orders()
    write = world.store.write

    def fenced_first(work):
        monkeypatch.setattr(type(world.store), "write", original)
        write(
            lambda uow: uow.nodes.fence(node.node.id, 1, datetime.now(UTC) + timedelta(minutes=1))
        )
        return write(work)

    original = type(world.store).write
    monkeypatch.setattr(type(world.store), "write", lambda self, work: fenced_first(work))
    answer = node.sync(report(order["task_id"], "gone", exit_code=0))
    assert error_of(answer)["code"] == "gpu.node.fenced"
    assert tasks_of(world, job_id)[0].status == "assigned"


def test_renewals_are_written_rarely(world, node):
    node.sync()
    with world.statements() as seen:
        node.sync()
        node.sync()
    assert not [one for one in seen if one.startswith("UPDATE")]
    old = datetime.now(UTC) - timedelta(seconds=13)  # more than a fifth of the lease
    world.store.write(lambda uow: uow.nodes.change(node.node.id, {"last_renewal_at": old}))
    node.sync()
    row = world.store.read(lambda uow: uow.nodes.get(node.node.id))
    assert row.last_renewal_at > old


def test_nothing_new_costs_one_read(world, cluster, node, job_id):
    place(world, cluster, job_id, cluster.nodes[:1])
    node.orders()
    with world.statements() as seen:
        assert len(node.orders()) == 1
    assert len([one for one in seen if not one.startswith(("PRAGMA", "BEGIN"))]) == 1


def test_ten_ends_cost_few_statements(world, cluster, ada, node):
    ids = [submit(ada, name=f"j{n}", resources={"gpus": 0}) for n in range(10)]
    for ident in ids:
        place(world, cluster, ident, cluster.nodes[:1], gpus=0)
    orders = node.orders()
    assert len(orders) == 10
    with world.statements() as seen:
        node.orders(*(report(one["task_id"], "gone", exit_code=0) for one in orders))
    statements = [one for one in seen if not one.startswith(("PRAGMA", "BEGIN"))]
    assert len(statements) <= 12, statements
    assert conduct(world) == 10


def test_a_wait_ends_with_news(world, cluster, node, job_id):
    node.sync()
    world.conf.set_override("interval_s", 1.0, "agent")
    answers = []
    thread = threading.Thread(target=lambda: answers.append(node.orders(wait_s=10)))
    began = time.monotonic()
    thread.start()
    place(world, cluster, job_id, cluster.nodes[:1])
    thread.join(10)
    assert len(answers[0]) == 1
    assert time.monotonic() - began < 5


def test_without_places_nobody_waits(world, node, monkeypatch):
    monkeypatch.setattr(world.services.agent_sync._room, "_places", None)
    node.sync()
    began = time.monotonic()
    assert node.sync(wait_s=20).status_code == 200
    assert time.monotonic() - began < 5


def test_a_node_without_a_lease_is_not_silent_for_as_long_as_one(world, node):
    node.sync()
    world.store.write(lambda uow: uow.nodes.change(node.node.id, {"lease_s": None}))
    world.conf.set_override("lease_s", 3, "agent")
    began = time.monotonic()
    assert node.sync(wait_s=20).status_code == 200
    assert time.monotonic() - began < 5


def test_short_logs_ride_along(world, cluster, node, ada, job_id):
    place(world, cluster, job_id, cluster.nodes[:1])
    (order,) = node.orders()
    task_id = order["task_id"]
    node.orders(report(task_id, "running", log={"stdout": piece(0, b"one\n")}))
    node.orders(report(task_id, "running", log={"stdout": piece(0, b"one\n")}))
    node.orders(report(task_id, "gone", exit_code=0, log={"stdout": piece(4, b"two\n", True)}))
    answer = ada.get(f"/jobs/{job_id}/logs")
    assert answer.data == b"one\ntwo\n"
    assert answer.headers["OpenStack-GPU-Log-End"] == "true"
    assert Hint("logs", (job_id,)) in world.hints.sent


def test_a_task_without_output_leaves_no_files_of_logs(world, cluster, node, ada, job_id):
    place(world, cluster, job_id, cluster.nodes[:1])
    (order,) = node.orders()
    task_id = order["task_id"]
    silent = {"stdout": piece(0, b"", True), "stderr": piece(0, b"", True)}
    node.orders(report(task_id, "gone", exit_code=0, log=silent))
    assert not list(Path(world.conf.logs.directory).rglob("*"))
    log = ada.get(f"/jobs/{job_id}/logs")
    assert log.data == b"" and log.headers["OpenStack-GPU-Log-End"] == "true"


def test_a_full_store_costs_no_node_its_lease(world, cluster, node, ada, job_id, monkeypatch):
    place(world, cluster, job_id, cluster.nodes[:1])
    (order,) = node.orders()
    task_id = order["task_id"]

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        patch.setattr(os, "fsync", full)
        for answer in (node.send_log(task_id, 0, b"one"), node.put(task_id, "artifacts/a", b"x")):
            error = error_of(answer)
            assert (error["status"], error["code"]) == (503, "gpu.store.full")
            assert int(answer.headers["Retry-After"]) > 1
        node.orders(report(task_id, "running", log={"stdout": piece(0, b"one")}))
        node.orders(report(task_id, "gone", exit_code=0, log={"stdout": piece(0, b"one", True)}))
    conduct(world)
    assert status(ada, job_id) == "succeeded"
    assert list((Path(world.conf.artifacts.directory)).rglob(".put-*")) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"task_id": "x", "state": "asleep"},
        {"task_id": "x", "state": "running", "started_at": "yesterday-or-so"},
        {"task_id": "x", "state": "running", "log": {"stdout": {"offset": -1, "data_b64": ""}}},
    ],
)
def test_nonsense_is_400_or_ignored(node, wrong):
    answer = node.sync(wrong)
    assert answer.status_code in (200, 400), answer.text


@pytest.mark.parametrize("what", [{"a": 1}, [1], 5, "nonsense" * 100, "my_own_class"])
def test_a_failure_has_one_of_the_known_classes(world, cluster, node, ada, job_id, what):
    place(world, cluster, job_id, cluster.nodes[:1])
    (order,) = node.orders()
    told = {"class": what, "evidence": "x"}
    answer = node.sync(report(order["task_id"], "gone", exit_code=1, failure=told))
    error = error_of(answer)
    assert (error["status"], error["source"]["pointer"]) == (400, "/tasks/0/failure/class")
    assert "user_code" in error["detail"] or "string" in error["detail"]
    assert status(ada, job_id) != "failed"


@pytest.mark.parametrize(
    "time",
    [
        "yesterday-or-so",
        "2026-01-01T00:00:00",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
    ],
)
@pytest.mark.parametrize("state", ["running", "gone"])
def test_a_wrong_time_of_an_own_task(world, cluster, node, job_id, state, time):
    place(world, cluster, job_id, cluster.nodes[:1])
    (order,) = node.orders()
    answer = node.sync(report(order["task_id"], state, started_at=time))
    assert error_of(answer)["source"]["pointer"] == "/tasks/0/started_at"
    assert answer.status_code == 400
    assert attempt_of(world, job_id).attention is False


def test_an_array_through_its_elements(world, cluster, node, ada):
    job_id = submit(ada, array={"size": 3}, resources={"gpus": 0})
    for index, code in enumerate((0, 0, 1)):
        place(world, cluster, job_id, cluster.nodes[:1], gpus=0)
        (order,) = node.orders()
        assert order["index"] == index
        assert order["spec"]["env"]["GPUSERVICE_ARRAY_INDEX"] == str(index)
        node.orders(report(order["task_id"], "running"))
        conduct(world)
        assert status(ada, job_id) == "running"
        node.orders(report(order["task_id"], "gone", exit_code=code))
        conduct(world)
    shown = ada.get(f"/jobs/{job_id}").get_json()["job"]
    assert shown["status"] == "failed"
    assert (shown["counts"]["succeeded"], shown["counts"]["failed"]) == (2, 1)
    rows = ada.get(f"/jobs/{job_id}/elements").get_json()["elements"]
    assert [row["status"] for row in rows] == ["succeeded", "succeeded", "failed"]
    (attempt,) = ada.get(f"/jobs/{job_id}/attempts?index=2").get_json()["attempts"]
    assert (attempt["outcome"], attempt["failure_class"]) == ("failed", "user_code")
