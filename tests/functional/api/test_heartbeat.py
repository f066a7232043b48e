# SPDX-License-Identifier: Apache-2.0
"""An API in a foreign WSGI server shows that it lives."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from api_world import World
from werkzeug.test import Client

from gpuservice.bootstrap import BusHints, Core
from gpuservice.cmd import heartbeat
from gpuservice.cmd.heartbeat import BeatingApplication
from gpuservice.messaging.bus import Bus


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_each_process_beats_from_its_first_request(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[Callable[[], Any]] = []
    monkeypatch.setattr(heartbeat.atexit, "register", ends.append)
    bus = Bus(world.conf, "test", shared=False)
    core = Core(world.conf, world.store, bus, BusHints(bus), world.clock, world.ids, "test")
    client = Client(BeatingApplication(core, "gpuservice-api", world.app))

    def rows() -> list[str]:
        shown = world.admin.get("/services").get_json()["services"]
        return [one["binary"] for one in shown if one["state"] == "up"]

    assert rows() == []
    for _ in range(3):
        assert client.get("/").status_code in (200, 300)
    until(lambda: rows() == ["gpuservice-api"])
    monkeypatch.setattr(heartbeat.os, "getpid", lambda: 1)  # a forked one
    client.get("/")
    until(lambda: len(rows()) == 2)
    for end in ends:
        end()
    assert rows() == []
    # Their rows stay: that somebody could hear the nodes counts after their end as well.
    kept = world.store.read(lambda uow: uow.services.find())
    assert len(kept) == 2
    assert all(one.ended_at == one.seen_at for one in kept)
    assert {
        world.admin.get(f"/services/{one.id}").get_json()["service"]["state"] for one in kept
    } == {"down"}
