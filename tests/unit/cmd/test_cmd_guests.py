# SPDX-License-Identifier: Apache-2.0
"""What the embedded guests of an all-in-one leave behind, and what not."""

from __future__ import annotations

import threading

import pytest

from gpuservice.cmd import embedded_guests
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


def guests_of(place, state):
    """The guests of two servers."""
    for name in ("alive", "off"):
        state.save_server({"id": name, "created": "2030-01-01", "devices": []})
    conf = configuration([], "gpuservice-all-in-one", [])
    conf.set_override("state_dir", str(place / "cloud"), "simulated")
    return EmbeddedGuests(conf, place / "agents", False, "http://127.0.0.1:1")


def test_directories_of_deleted_servers_go(place):
    state = SimulatedState(place / "cloud")
    guests = guests_of(place, state)
    stopped = threading.Event()
    stopped.set()
    guests.run(stopped)
    assert sorted(one.name for one in (place / "agents").iterdir()) == ["alive", "off"]
    with state.locked():
        state.switch_off("off")
        state.delete_server("off")  # its guest was halted before
    guests._halt("alive")
    assert sorted(one.name for one in (place / "agents").iterdir()) == ["alive"]


def test_a_server_that_was_cut_off_holds_up_no_other(place, caplog):
    state = SimulatedState(place / "cloud")
    guests = guests_of(place, state)
    assert state.guest_boots("off")
    (state.servers_dir / "off" / "server.json").write_text('{"id": "o')
    assert [one["id"] for one in state.servers()] == ["alive"]
    guests._clear()
    assert [one.name for one in (place / "agents").iterdir()] == ["alive"]
    assert "server.json is not whole" in caplog.text
    guests._halt("off")
    state.guest_ended("off")
    assert state.running() == set() and not (state.servers_dir / "off").exists()


def test_a_place_that_cannot_be_cleared_holds_up_no_other(place, monkeypatch, caplog):
    def kill(path):
        if path.endswith("gone"):
            raise OSError(24, "Too many open files")

    monkeypatch.setattr(embedded_guests, "kill_node", kill)
    guests = guests_of(place, SimulatedState(place / "cloud"))
    (place / "agents" / "later").mkdir()
    guests._clear()
    assert sorted(one.name for one in (place / "agents").iterdir()) == ["alive", "gone", "off"]
    assert "cannot be removed now" in caplog.text
