# SPDX-License-Identifier: Apache-2.0
"""Parsing of answers and dumping of reports."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gpuservice.agent import orders, wire

SPEC = {
    "command": ["true"],
    "env": {"A": "b"},
    "log_max_bytes": 10,
    "checkpoint": {"path": "c/", "interval_s": 5},
    "inputs": [{"source": "s", "path": "p"}],
}
ORDER = {
    "task_id": "t",
    "job_id": "j",
    "attempt": 2,
    "action": "run",
    "spec": SPEC,
    "grace_s": 3,
    "devices": [{"address": "a", "index": 1, "vendor": "nvidia"}],
}
ANSWER = {
    "epoch": 1,
    "revision": 4,
    "lease_s": None,
    "interval_s": 1.5,
    "tasks": [ORDER],
    "unknown": 1,
}


def test_answer():
    answer = orders.SyncAnswer.parse(ANSWER)
    order = answer.tasks[0]
    assert (answer.lease_s, order.grace_s, order.signal) == (None, 3.0, "TERM")
    assert order.spec.checkpoint == orders.Checkpoint(path="c/", interval_s=5)
    assert order.devices[0].milli == 1000


def test_a_broken_spec_spoils_its_own_task_alone():
    broken = {**ORDER, "spec": {"env": {}}}
    order = orders.SyncAnswer.parse({**ANSWER, "tasks": [ORDER, broken]}).tasks[1]
    assert order.spec is None
    assert "neither command nor script" in order.fault


@pytest.mark.parametrize(
    "wrong", [{}, {**ANSWER, "epoch": "x"}, {**ANSWER, "tasks": [{}]}, {**ANSWER, "tasks": None}]
)
def test_nonsense_is_a_wire_error(wrong):
    with pytest.raises(wire.WireError):
        orders.SyncAnswer.parse(wrong)


def test_report():
    report = wire.TaskReport(
        task_id="t",
        state="gone",
        ended_at=datetime(2026, 1, 2, tzinfo=UTC),
        exit_code=3,
        failure=wire.Failure(kind="image", evidence="e"),
        log={"stdout": wire.LogPiece(offset=5, data=b"abc", end=True)},
    )
    body = report.dump()
    assert body["failure"] == {"class": "image", "evidence": "e"}
    assert body["log"] == {"stdout": {"offset": 5, "data_b64": "YWJj", "end": True}}
    assert body["ended_at"] == "2026-01-02T00:00:00+00:00"


def test_a_report_leaves_out_what_is_as_usual():
    body = wire.TaskReport(task_id="t", state="gone", exit_code=0, timed_out=True).dump()
    assert body == {"task_id": "t", "state": "gone", "exit_code": 0, "timed_out": True}
    body = wire.TaskReport(task_id="t", state="gone", signal=15, stopped=True).dump()
    assert body == {"task_id": "t", "state": "gone", "signal": 15, "stopped": True}


def test_secrets_do_not_show():
    registration = wire.Registration(
        bootstrap="tokentoken",
        secret="hushhush",
        instance="i",
        agent_version="1",
        devices=(),
        capabilities=wire.Capabilities(),
        vcpus=1,
        memory_mib=1,
    )
    assert "tokentoken" not in repr(registration)
    assert "hushhush" not in repr(registration)
    assert registration.dump()["secret"] == "hushhush"
