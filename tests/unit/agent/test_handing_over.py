# SPDX-License-Identifier: Apache-2.0
"""What of an ended task is handed over when some of it cannot be, without processes."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from types import SimpleNamespace

import pytest

from gpuservice.agent.errands import Errands
from gpuservice.agent.errors import Fenced
from gpuservice.agent.hand import TaskInHand
from gpuservice.agent.handover import CheckpointNotKept, Handover
from gpuservice.agent.log_shipping import LogCursor
from gpuservice.agent.orders import TaskOrder
from gpuservice.agent.runner import DataMessage
from gpuservice.agent.settings import AgentSettings
from gpuservice.agent.task_files import Result
from gpuservice.agent.wire import Failure
from gpuservice.api import strict_json
from gpuservice.api.schemas import agent as schemas
from gpuservice.api.validation import checker

FULL = OSError(errno.ENOSPC, "No space left on device")


class Client:
    """Takes everything."""

    def __init__(self):
        self.files, self.sets, self.logs = {}, [], []

    def put_file(self, task_id, where, path, file):
        self.files[where.split("/")[0], path] = file.read()

    def complete_checkpoint(self, task_id, seq, files):
        self.sets.append(files)

    def send_log(self, task_id, stream, offset, data):
        self.logs.append((stream, len(data)))
        return offset + len(data), False


class Runner:
    """Hands over the files of one directory by a helper that says what it is told to."""

    def __init__(self, work, logs):
        self.work, self.logs, self.before = work, logs, []

    def log_directory(self, task_id):
        return self.logs

    @contextlib.contextmanager
    def helper(self, task_id, kind):
        yield self.messages(kind)

    def messages(self, kind):
        names = sorted(os.listdir(self.work))
        yield from (DataMessage(one, None) for one in self.before)
        if kind == "checkpoint":
            for name in names:
                size = os.path.getsize(self.work / name)
                yield DataMessage({"listed": name, "size": size}, None)
            yield DataMessage({"all_listed": True}, None)
        for name in names:
            with open(self.work / name, "rb", buffering=0) as file:
                yield DataMessage({"file": name}, file)
        yield DataMessage({"done": True}, None)


@pytest.fixture
def runner(tmp_path):
    for name in ("work", "logs"):
        (tmp_path / name).mkdir()
    (tmp_path / "work" / "a").write_bytes(b"data")
    return Runner(tmp_path / "work", str(tmp_path / "logs"))


@pytest.fixture
def hand(runner):
    order = TaskOrder.parse(
        {"task_id": "t1", "job_id": "j1", "attempt": 1, "action": "run", "spec": {
            "command": ["true"], "outputs": [{"path": "a"}], "artifact_max_bytes": 1 << 20,
            "checkpoint": {"path": "a"}, "checkpoint_max_bytes": 1 << 20}}
    )  # fmt: skip
    hand = TaskInHand(order, LogCursor("t1", runner.logs, 1 << 20))
    hand.ended(Result(ended_at=1.0, cause="exit", exit_code=0))
    with open(f"{runner.logs}/stdout.0", "wb") as file:
        file.write(b"x" * 50_000)
    return hand


@pytest.fixture
def client():
    return Client()


def finish(hand, runner, client):
    """The end of a task; returns what concerns the whole node."""
    gone, refused = [], []
    hands = SimpleNamespace(closed=False, wanted=lambda hand: True, gone=gone.append)
    settings = AgentSettings(upload_retry_s=0)
    errands = Errands(hands, runner, (), settings, lambda: client, lambda: None, refused.append)
    errands.finish(hand)
    errands.close()
    assert gone == [hand]
    return refused


def handover(hand, runner, client, **settings):
    bounds = {"max_files": 10_000, "checkpoint_bytes": 1 << 30, **settings}
    return Handover(hand, runner, client, lambda: True, 0, **bounds)


def noted(runner):
    with contextlib.suppress(FileNotFoundError), open(f"{runner.logs}/stderr.0") as file:
        return file.read()
    return ""


def raising(error):
    def call(*_):
        raise error

    return call


def test_a_last_checkpoint_that_fails_costs_itself_alone(hand, runner, client, monkeypatch):
    monkeypatch.setattr(Handover, "checkpoint", raising(FULL))
    finish(hand, runner, client)
    assert client.files == {("artifacts", "a"): b"data"}
    assert ("stdout", 50_000) in client.logs
    assert hand.failure is None
    assert "the last checkpoint was not kept: [Errno 28]" in noted(runner)


def test_outputs_that_fail_keep_no_logs_back(hand, runner, client, monkeypatch):
    fenced = Fenced(409, "gpu.node.fenced", "", {})
    monkeypatch.setattr(Handover, "outputs", raising(fenced))
    assert finish(hand, runner, client) == [fenced]
    assert ("stdout", 50_000) in client.logs
    assert hand.failure.kind == "platform"


def test_a_last_checkpoint_needs_no_room(hand, runner, client, monkeypatch):
    monkeypatch.setattr("tempfile.TemporaryFile", raising(FULL))
    finish(hand, runner, client)
    assert client.files == {("artifacts", "a"): b"data", ("checkpoints", "a"): b"data"}
    assert [one["size"] for one in client.sets[0]] == [4]


def test_one_output_that_cannot_be_read_costs_itself_alone(hand, runner, client, monkeypatch):
    (runner.work / "b").write_bytes(b"more")
    put = client.put_file

    def broken(task_id, where, path, file):
        if path == "a":
            raise OSError(errno.EIO, "Input/output error")
        put(task_id, where, path, file)

    monkeypatch.setattr(client, "put_file", broken)
    finish(hand, runner, client)
    assert ("artifacts", "b") in client.files
    assert (hand.failure.kind, "'a'" in hand.failure.evidence) == ("platform", True)


def test_notes_that_have_no_room_stop_nothing(hand, runner, client, monkeypatch):
    runner.before = [{"skipped": "link\udcff", "why": "not a regular file"}]
    monkeypatch.setattr("gpuservice.agent.logfiles.SegmentWriter._next_segment", raising(FULL))
    finish(hand, runner, client)
    assert ("artifacts", "a") in client.files


def test_notes_keep_no_file_open(hand):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        hand.logs.note("surrogate \udcff")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_that_grew_since_it_was_listed_spoils_the_set(hand, runner, client):
    hand.result = None
    messages = runner.messages

    def growing(kind):
        for message in messages(kind):
            yield message
            if "all_listed" in message.content:
                (runner.work / "a").write_bytes(b"more data")

    runner.messages = growing
    assert handover(hand, runner, client).checkpoint() is False
    assert (client.files, client.sets) == ({}, [])


def test_a_helper_that_ends_early_completes_nothing(hand, runner, client):
    runner.before = [{"failure": {"class": "platform", "evidence": "the data helper ended early"}}]
    with pytest.raises(CheckpointNotKept, match="ended early"):
        handover(hand, runner, client).checkpoint()
    assert (client.files, client.sets) == ({}, [])


@pytest.mark.parametrize("bound", ["set by the service", "list"])
def test_what_the_service_would_refuse_is_not_sent(hand, runner, client, monkeypatch, bound):
    if bound == "list":
        monkeypatch.setattr("gpuservice.agent.handover.MAX_CHECKPOINT_LIST", 100)
    else:
        with open(runner.work / "b", "wb") as file:
            file.truncate((1 << 20) - 3)
    with pytest.raises(CheckpointNotKept):
        handover(hand, runner, client).checkpoint()
    assert client.files == {}


def test_evidence_is_text_that_the_service_takes():
    evidence = "a\udcff\x00\x1b\ud800é" + "x" * 5000
    report = {
        "task_id": "t",
        "state": "gone",
        "failure": Failure(kind="data", evidence=evidence).dump(),
    }
    said = {"epoch": 1, "revision": 1, "instance": "i", "tasks": [report]}
    checker(schemas.SYNC).check(strict_json.parse(json.dumps(said).encode()))
    assert report["failure"]["evidence"].startswith(r"a\xdcff\x00\x1b\xd800é")
