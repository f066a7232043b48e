# SPDX-License-Identifier: Apache-2.0
"""Programs of several parts: how they end, and what files they leave room for."""

from __future__ import annotations

import resource
import threading

import pytest

from gpuservice.agent import open_files
from gpuservice.cmd import serving
from gpuservice.cmd.parts import Parts


def waiting(stop: threading.Event) -> None:
    """A part that does as it is told."""
    stop.wait(30)


def leaving(stop: threading.Event) -> None:
    """One that returns too early."""


def exiting(stop: threading.Event) -> None:
    """One that ends as ``Listener.run`` does."""
    raise SystemExit("the HTTP server has ended by itself")


def failing(stop: threading.Event) -> None:
    """One with a fault."""
    raise RuntimeError("no\nway")


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (leaving, "it returned"),
        (exiting, "the HTTP server has ended by itself"),
        (failing, "RuntimeError: no way"),
    ],
)
def test_a_part_that_ends_by_itself_ends_the_program(part, said, caplog):
    stop = threading.Event()
    parts = Parts("program", stop, {"one": part, "other": waiting})
    parts.start()
    with pytest.raises(SystemExit) as ended:
        parts.join()
    line = f"the part 'one' ended by itself: {said}"
    assert str(ended.value) == f"program: {line}" and stop.is_set() and line in caplog.text


def test_parts_that_are_told_to_stop():
    stop = threading.Event()
    parts = Parts("program", stop, {"one": waiting, "other": waiting})
    parts.start()
    stop.set()
    parts.join()


def limited(monkeypatch, soft, hard=resource.RLIM_INFINITY):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))


def test_connections_leave_room_for_the_agents_of_the_process(monkeypatch):
    limited(monkeypatch, 1024)
    assert serving.connection_limit() == 768
    assert serving.connection_limit(8) == 640
    assert serving.connection_limit(4000) == 16
    limited(monkeypatch, resource.RLIM_INFINITY)
    assert serving.connection_limit(4000) == 2000
    serving.refuse_too_many_agents("program", 4000)


def test_hosts_that_have_not_enough_files_are_refused(monkeypatch):
    limited(monkeypatch, 1024)
    serving.refuse_too_many_agents("program", 47)
    with pytest.raises(SystemExit) as refused:
        serving.refuse_too_many_agents("program", 48)
    assert str(refused.value) == (
        "program: 48 hosts need 1040 open files, and 1024 are allowed: raise the limit "
        "(ulimit -n), or have at most 47 (--hosts)"
    )


def test_programs_take_all_files_they_may_have(monkeypatch):
    limited(monkeypatch, 100, 5000)
    given = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: given.append(limits))
    monkeypatch.setattr(resource, "prlimit", lambda *limits: given.append(limits))
    monkeypatch.setattr(open_files, "_first", [])
    open_files.give_first_limit(7)
    open_files.raise_limit()
    open_files.give_first_limit(7)
    assert given == [(5000, 5000), (7, resource.RLIMIT_NOFILE, (100, 5000))]
