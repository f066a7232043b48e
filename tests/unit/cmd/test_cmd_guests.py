# SPDX-License-Identifier: Apache-2.0
"""What the embedded guests of an all-in-one leave behind, and what not."""

from __future__ import annotations

import threading

import pytest

from gpuservice.cmd.embedded_guests import EmbeddedGuests
from gpuservice.cmd.lifetime import configuration
from gpuservice.drivers.cloud.simulated_state import SimulatedState


@pytest.fixture
def place(tmp_path):
    agents = tmp_path / "agents"
    for name in ("alive", "off", "gone"):
        (agents / name / "tasks").mkdir(parents=True)
        (agents / name / "journal").write_text("t\n")
    return tmp_path


def test_directories_of_deleted_servers_go(place):
    state = SimulatedState(place / "cloud")
    for name in ("alive", "off"):
        state.save_server({"id": name, "created": "2030-01-01", "devices": []})
    conf = configuration([], "gpuservice-all-in-one", [])
    conf.set_override("state_dir", str(place / "cloud"), "simulated")
    guests = EmbeddedGuests(conf, place / "agents", False, "http://127.0.0.1:1")
    stopped = threading.Event()
    stopped.set()
    guests.run(stopped)
    assert sorted(one.name for one in (place / "agents").iterdir()) == ["alive", "off"]
    with state.locked():
        state.switch_off("off")
        state.delete_server("off")  # its guest was halted before
    guests._halt("alive")
    assert sorted(one.name for one in (place / "agents").iterdir()) == ["alive"]
