# SPDX-License-Identifier: Apache-2.0
"""Agents that die, freeze, lose their service or their lease."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from gpuservice.agent import isolation
from tests.integration.agent.conftest import supervisor_pid, until

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def test_killed_agent_adopts_and_reports_one_end(api, make_agent, tmp_path):
    agent = make_agent().start()
    api.want("long", script="echo begin; sleep 3; echo end; exit 7\n")
    api.want("short", script="sleep 1; exit 5\n")
    api.until_state("long", "running")
    api.until_state("short", "running")
    first = agent.processes_of("long")
    agent.end(signal.SIGKILL)
    until(lambda: agent.processes_of("short") == [], "the short one's end")
    assert agent.processes_of("long") == first
    agent.start()
    assert api.until_gone("short")["exit_code"] == 5
    assert api.until_gone("long")["exit_code"] == 7
    assert api.log("long") == b"begin\nend\n"
    assert len({one["secret"] for one in api.registrations}) == 1


def test_sigterm_leaves_tasks_and_stop_tasks_ends_them(api, make_agent):
    agent = make_agent().start()
    api.want("t1", command=["sleep", "300"])
    api.until_state("t1", "running")
    assert agent.end() == 0
    assert len(agent.processes_of("t1")) == 1
    agent.start("--stop-tasks")
    before = len(api.reports)
    api.until(lambda: len(api.reports) > before, "the adoption")
    assert agent.end() == 0
    assert agent.processes_of("t1") == []


def test_journalled_task_is_never_started_again(api, make_agent):
    agent = make_agent().start()
    api.want("t1", command=["sleep", "300"])
    api.until_state("t1", "running")
    agent.end(signal.SIGKILL)
    os.kill(supervisor_pid(agent.state, "t1"), signal.SIGKILL)
    agent.start()
    report = api.until_gone("t1")
    assert report["failure"]["class"] == "node_failure"
    assert agent.processes_of("t1") == []
    api.want("t1", command=["true"])
    api.gone.clear()
    assert api.until_gone("t1")["failure"]["class"] == "node_failure"


def test_orphans_end(api, make_agent):
    agent = make_agent(orphan_after_s=1).start()
    api.want("t1", command=["sleep", "300"])
    api.until_state("t1", "running")
    agent.end(signal.SIGKILL)
    until(lambda: agent.processes_of("t1") == [], "the orphan's end", 5)
    agent.start()
    assert "adopted" in api.until_gone("t1")["failure"]["evidence"]


def test_without_a_lease_tasks_outlive_the_service(api, agent):
    api.want("t1", script="sleep 2; exit 6\n")
    api.until_state("t1", "running")
    api.away = True
    until(lambda: agent.processes_of("t1") == [], "its own end")
    api.away = False
    assert api.until_gone("t1")["exit_code"] == 6


def test_lease_runs_out(api, make_agent):
    api.lease_s = 2
    agent = make_agent().start()
    api.want("t1", command=["sleep", "300"])
    api.until_state("t1", "running")
    time_away = time.monotonic()
    api.away = True
    until(lambda: agent.processes_of("t1") == [], "the lease's end", 6)
    assert time.monotonic() - time_away < 4
    api.away = False
    assert "lease" in api.until_gone("t1")["failure"]["evidence"]


OUTPUT = "sleep 1; mkdir -p o; echo result > o/r\n"


def ended_without_agent(api, agent):
    """A task with an output that ends while neither agent nor service are there."""
    api.want("t1", script=OUTPUT, outputs=[{"path": "o/"}])
    api.until_state("t1", "running")
    agent.end(signal.SIGKILL)
    api.away = True
    until(lambda: (agent.state / "tasks" / "t1" / "result.json").exists(), "the task's end")


@pytest.mark.parametrize("epoch", [1, 4])
def test_outputs_of_a_task_that_ended_while_nobody_was_there(api, make_agent, epoch):
    api.epoch = epoch
    agent = make_agent(upload_retry_s=0.1).start()
    ended_without_agent(api, agent)
    agent.start()
    until(lambda: "is away" in agent.log.read_text(), "a vain call")
    api.away = False
    assert api.until_gone("t1")["failure"] is None
    assert api.artifacts == {("t1", "o/r"): b"result\n"}


def test_outputs_wait_as_long_as_the_service_is_away(api, make_agent):
    agent = make_agent(upload_retry_s=0.5).start()
    api.want("t1", script=OUTPUT, outputs=[{"path": "o/"}])
    api.until_state("t1", "running")
    api.vanish()
    until(lambda: agent.processes_of("t1") == [], "the task's end")
    away = time.monotonic()
    until(lambda: time.monotonic() - away > 2, "more than an upload's patience")
    api.away = False
    assert api.until_gone("t1")["failure"] is None
    assert api.artifacts == {("t1", "o/r"): b"result\n"}


@pytest.mark.parametrize("refused", [False, True])
def test_what_was_handed_over_is_known_to_the_next_agent(api, make_agent, refused):
    """The agent dies after it wiped the task's place, before the service took the end."""
    agent = make_agent(upload_retry_s=0.1).start()
    api.deaf = True  # takes everything but the end
    api.full = refused
    api.want("t1", script=OUTPUT, outputs=[{"path": "o/"}])
    until(lambda: (agent.state / "tasks" / "t1" / "result.json").exists(), "the task's end")
    until(lambda: not (agent.state / "tasks" / "t1" / "box").exists(), "its wiping")
    agent.end(signal.SIGKILL)
    api.deaf = False
    agent.start()
    failure = api.until_gone("t1")["failure"]
    assert (failure or {}).get("class") == ("quota" if refused else None)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 4 MiB for the state directory of the first agent."""
    state = tmp_path / "node-0" / "state"
    state.mkdir(parents=True)
    try:
        isolation.mount("tmpfs", str(state), "tmpfs", 0, "size=4m,mode=711")
    except OSError:
        pytest.skip("needs the right to mount")
    yield state
    subprocess.run(["umount", "-l", str(state)], check=True)


@root_only
def test_a_full_disk_loses_no_end(api, small_disk, make_agent):
    agent = make_agent().start()
    api.want("long", command=["sleep", "300"])
    api.until_state("long", "running")
    api.want("t1", script="cat /dev/zero > work 2> /dev/null; exit 7\n")
    report = api.until_gone("t1")
    assert (report["exit_code"], report["failure"]) == (7, None)
    with (small_disk / "ballast").open("wb", buffering=0) as file:
        with contextlib.suppress(OSError):
            while file.write(bytes(65536)):
                pass
        with contextlib.suppress(OSError):
            while file.write(b"0"):
                pass
    api.want("t2", command=["true"])
    assert api.until_gone("t2")["failure"]["class"] == "node_failure"
    assert len(agent.processes_of("long")) == 1 and agent.process.poll() is None
    api.stop("long")
    until(lambda: agent.processes_of("long") == [], "the stop")
    (small_disk / "ballast").unlink()
    api.want("t3", command=["true"])
    assert api.until_gone("t3")["exit_code"] == 0


@root_only
def test_an_agent_that_comes_after_its_lease_still_keeps_tasks_apart(api, make_agent):
    api.lease_s = 1
    agent = make_agent().start()
    api.want("t1", command=["true"])
    api.until_gone("t1")
    agent.end()
    stopped = time.monotonic()
    until(lambda: time.monotonic() - stopped > 1.2, "the lease's end")
    agent.start()
    api.want("t2", command=["id", "-u"])
    api.until_gone("t2")
    assert int(api.log("t2")) > 0
    first, second = (one["capabilities"] for one in api.registrations)
    assert second == first and second["own_uid"]


@root_only
def test_an_agent_that_cannot_keep_tasks_apart_starts_none(api, make_agent, tmp_path):
    """All user ids are taken: tasks must not run as root for that, and the service must hear it."""
    (tmp_path / "taken").mkdir()
    agent = make_agent(uid_base=5000, uid_count=1, uid_directory=str(tmp_path / "taken"))
    agent.start()
    api.want("before", command=["sleep", "300"])
    api.until_state("before", "running")
    agent.end()
    agent.start()
    api.want("t1", command=["id", "-u"])
    failure = api.until_gone("t1")["failure"]
    assert (failure["class"], api.log("t1")) == ("node_failure", b"")
    assert "no user id left" in failure["evidence"]
    assert [one["fault"] is None for one in api.registrations] == [True, False]
    assert len(agent.processes_of("before")) == 1


def test_lease_holds_while_the_service_answers(api, make_agent):
    api.lease_s = 1
    make_agent().start()
    api.want("t1", command=["sleep", "3"])
    assert api.until_gone("t1")["exit_code"] == 0


def test_thawed_node_is_empty_within_two_seconds(api, make_agent):
    api.lease_s = 2
    agent = make_agent().start()
    api.want("t1", command=["sleep", "300"])
    api.until_state("t1", "running")
    node = agent.processes(["t1"])
    for pid in node:
        os.kill(pid, signal.SIGSTOP)
    frozen = time.monotonic()
    until(lambda: time.monotonic() - frozen > 3, "a lease and a half")
    api.fence()
    for pid in node:
        os.kill(pid, signal.SIGCONT)
    thawed = time.monotonic()
    until(lambda: agent.processes_of("t1") == [], "the end of the task")
    assert time.monotonic() - thawed < 2
    api.until(lambda: len(api.registrations) == 2, "the new registration")
    assert "t1" not in api.gone


def test_fencing_ends_everything_and_registers_anew(api, agent):
    api.want("t1", command=["sleep", "300"])
    api.until_state("t1", "running")
    api.fence()
    until(lambda: agent.processes_of("t1") == [], "the kill", 5)
    api.want("t2", command=["true"])
    assert api.until_gone("t2")["exit_code"] == 0
    assert len(api.registrations) == 2


def test_revoked_agent_ends_everything_and_itself(api, agent):
    api.want("t1", command=["sleep", "300"])
    api.until_state("t1", "running")
    api.revoked = True
    api.drop("t1")
    assert agent.process.wait(10) == 1
    assert agent.processes_of("t1") == []


def test_a_token_that_is_not_known_yet_is_tried_again(api, make_agent):
    api.unknown_for = 3
    make_agent().start()
    api.want("t1", command=["true"])
    assert api.until_gone("t1")["exit_code"] == 0
    assert len(api.registrations) == 4


def test_a_token_that_stays_unknown_ends_the_agent_with_a_sentence(api, make_agent):
    api.unknown_for = 1000
    agent = make_agent(register_patience_s=1.5).start()
    assert agent.process.wait(10) == 1
    assert 3 <= len(api.registrations) < 10
    last = agent.log.read_text().splitlines()[-1]
    assert "refuses node node-1: its bootstrap token is not known" in last
    assert "repair or delete the node" in last


def test_a_known_node_does_not_wait_when_it_is_refused(api, make_agent):
    agent = make_agent().start()
    api.until(lambda: api.syncs > 0, "the registration")
    agent.end()
    api.revoked = True
    agent.start()
    assert agent.process.wait(10) == 1
    assert len(api.registrations) == 2


def test_another_secret_ends_the_agent_at_once(api, make_agent):
    api.secret = "f" * 64
    agent = make_agent().start()
    assert agent.process.wait(10) == 1
    assert len(api.registrations) == 1
    assert "registered before with another secret" in agent.log.read_text()


def test_a_stranger_who_answers_in_place_of_the_service_ends_nothing(api, agent):
    api.want("t1", command=["sleep", "300"])
    api.until_state("t1", "running")
    api.stranger = True
    api.want("t2", command=["true"])  # wakes the waiting sync, so that the next meets the stranger
    until(lambda: "not the service" in agent.log.read_text(), "the stranger's answer")
    api.stranger = False
    assert api.until_gone("t2")["exit_code"] == 0
    assert len(agent.processes_of("t1")) == 1


def test_spawner_may_die(api, agent):
    api.want("t1", script="sleep 1; exit 9\n")
    api.until_state("t1", "running")
    children = Path(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children").read_text()
    for pid in map(int, children.split()):
        os.kill(pid, signal.SIGKILL)
    api.want("t2", command=["true"])
    assert api.until_gone("t1")["exit_code"] == 9
    assert api.until_gone("t2")["state"] == "gone"
    api.want("t3", command=["true"])
    assert api.until_gone("t3")["exit_code"] == 0
