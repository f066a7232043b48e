# SPDX-License-Identifier: Apache-2.0
"""A node with more tasks than files, or than one sync has room for."""

from __future__ import annotations

import errno
import json
import os
import selectors
from types import SimpleNamespace

import pytest

from gpuservice.agent import open_files, plain_files, process_tree, task_files
from gpuservice.agent.hands import Hands
from gpuservice.agent.lease import boot_id
from gpuservice.agent.orders import TaskOrder
from gpuservice.agent.settings import AgentSettings
from gpuservice.agent.supervisors import Supervisors
from gpuservice.agent.task_files import Result
from gpuservice.agent.wire import SyncRequest
from tests.task_orders import task_order


def order(name):
    return TaskOrder.parse(task_order(name, {"command": ["true"]}))


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(now=100.0)
    monkeypatch.setattr("gpuservice.agent.hands.time.monotonic", lambda: now.now)
    return now


@pytest.fixture
def hands():
    runner = SimpleNamespace(log_directory=lambda _: None, wipe=lambda *_: None)
    return Hands(runner, None, AgentSettings())


def size(said):
    request = SyncRequest(
        epoch=1, revision=1, instance="i", tasks=tuple(one.report for one in said)
    )
    return len(json.dumps(request.dump()))


def test_reports_of_any_number_of_tasks_fit_into_syncs(hands, clock):
    names = [f"{number:036}" for number in range(5000)]
    for name in names:
        hands.adopt(order(name))
    told, syncs = set(), 0
    postponed = True
    while postponed:
        said, postponed = hands.reports()
        assert size(said) < 1 << 20
        told.update(one.report.task_id for one in said)
        hands.heard(said)
        syncs += 1
    assert told == set(names) and syncs < 10
    clock.now += 10
    said, postponed = hands.reports()
    assert said and not postponed  # what was told is repeated as far as there is room


def test_what_was_told_is_told_again_only_now_and_then(hands, clock):
    hands.adopt(order("a"))
    hands.adopt(order("b"))
    said, _ = hands.reports()
    hands.unheard(said)  # the service was away: these are still news
    said, _ = hands.reports()
    assert [one.report.task_id for one in said] == ["a", "b"]
    hands.heard(said)
    assert hands.reports() == ((), False)
    hands._hands["b"].fail("platform", "no room")
    hands.gone(hands._hands["b"])
    said, _ = hands.reports()
    assert [(one.report.task_id, one.report.state) for one in said] == [("b", "gone")]
    hands.heard(said)
    assert hands.reports() == ((), False)
    clock.now += 5
    assert [one.report.task_id for one in hands.reports()[0]] == ["a", "b"]
    assert hands.reports() == ((), False)


def test_long_evidence_fits_and_no_end_is_forgotten(hands):
    names = [f"t{number}" for number in range(200)]
    for name in names:
        hands.adopt(order(name))
        hands._hands[name].fail("platform", "\0ü" * 9000)
        hands.gone(hands._hands[name])
    gone = set()
    for _ in range(100):
        said, postponed = hands.reports()
        assert size(said) < 1 << 20
        for one in said:
            if one.report.state == "gone":
                failure = one.report.dump()["failure"]
                assert len(failure["evidence"]) == 4096 and "\0" not in failure["evidence"]
                gone.add(one.report.task_id)
        hands.heard(said)
        if not postponed:
            break
    assert gone == set(names)


@pytest.fixture
def place(tmp_path):
    """A task whose supervisor is this process, and what watches it."""
    (tmp_path / "t").mkdir()
    me = {"pid": os.getpid(), "start": process_tree.start_time(os.getpid()), "boot": boot_id()}
    task_files.claim(str(tmp_path / "t"), me)
    ends = []
    with selectors.DefaultSelector() as selector:
        watch = Supervisors(str(tmp_path), selector, lambda *end: ends.append(end))
        yield SimpleNamespace(path=tmp_path / "t", watch=watch, ends=ends, selector=selector)
        watch.close()


def full(*_, **__):
    raise OSError(errno.EMFILE, "Too many open files")


@pytest.mark.parametrize("what", ["pidfd_open", "start_time", "read_json", "last_file"])
def test_without_a_file_nothing_is_known_of_a_task(place, monkeypatch, what):
    if what == "pidfd_open":
        monkeypatch.setattr(os, "pidfd_open", full)
    elif what == "last_file":
        monkeypatch.setattr(open_files, "nearly_all_in_use", lambda _: True)
    elif what == "read_json":
        monkeypatch.setattr(task_files, "read_json", full)
    else:
        monkeypatch.setattr(plain_files, "read", full)
    place.watch.adopt("t")
    assert place.ends == [] and not place.selector.get_map()
    monkeypatch.undo()
    assert place.watch.look_again()
    assert place.ends == [] and len(place.selector.get_map()) == 1


def test_an_end_that_cannot_be_read_yet_is_read_later(place, monkeypatch):
    place.watch.adopt("t")
    task_files.save_result(str(place.path), Result(exit_code=4))
    (place.path / task_files.SUPERVISOR).write_text('{"pid": 0}')
    monkeypatch.setattr(task_files, "load_result", full)
    place.watch.take_end("t")
    assert place.ends == []
    monkeypatch.undo()
    place.watch.look_again()
    assert [(name, result.exit_code) for name, result in place.ends] == [("t", 4)]


def test_a_task_that_nobody_could_claim_is_not_lost_yet(place, monkeypatch):
    (place.path / task_files.SUPERVISOR).unlink()
    monkeypatch.setattr(task_files, "claim", lambda *_: False)
    place.watch.adopt("t")
    assert place.ends == []
    monkeypatch.undo()
    place.watch.look_again()
    assert [result.cause for _, result in place.ends] == ["lost"]


@pytest.mark.parametrize("look", [process_tree.of_task, process_tree.of_uid])
def test_nobody_is_taken_for_gone_without_a_file_to_look(monkeypatch, look):
    monkeypatch.setattr(plain_files, "read", full)
    with pytest.raises(OSError, match="Too many"):
        look(os.getuid() if look is process_tree.of_uid else "/nowhere")
