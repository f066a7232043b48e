# SPDX-License-Identifier: Apache-2.0
"""After an end no process of a task is left; after an agent's end its tasks go on, or are gone."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster import PLACES, Cluster, free_port, running_cluster
from programs import (
    Program,
    kill_all,
    processes_naming,
    task_processes,
    until,
)
from rest import Rest

pytestmark = [pytest.mark.services, pytest.mark.a8]

#: A task with children that ignore the grace signal and leave its session.
_STUBBORN = """#!/bin/sh
trap '' TERM
setsid sleep 1000 &
( trap '' TERM; sleep 1000 ) &
sleep 1000
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster("postgresql", hosts=2, gpus=4, lease_s=4) as running:
        running.furnish()
        yield running


def running_job(caller: Rest, **body: Any) -> str:
    """A job whose first process is seen."""
    job_id = str(caller.submit(**{"name": "job", "grace_period_s": 1, **body})["id"])
    until(lambda: caller.job(job_id)["status"] == "running", "the job's run")
    until(lambda: task_processes(job_id), "the job's process")
    return job_id


def ended(caller: Rest, job_id: str, status: str, patience_s: float = 30.0) -> dict[str, Any]:
    """The job when it has ended so."""
    until(lambda: caller.job(job_id)["ended_at"], "the job's end", patience_s)
    job = caller.job(job_id)
    assert job["status"] == status, job
    return job


def test_nothing_is_left_after_a_cancel(cluster: Cluster) -> None:
    caller = cluster.caller("cancels")
    job_id = running_job(caller, script=_STUBBORN)
    until(lambda: len(task_processes(job_id)) >= 3, "the task's children")
    caller.cancel(job_id)
    ended(caller, job_id, "cancelled")
    assert not task_processes(job_id)


def test_nothing_is_left_after_the_time_limit(cluster: Cluster) -> None:
    caller = cluster.caller("limits")
    job_id = running_job(caller, script=_STUBBORN, max_runtime_s=2)
    ended(caller, job_id, "timed_out")
    assert not task_processes(job_id)


def _server_of(cluster: Cluster, job_id: str) -> str:
    return str(cluster.node_of({"id": job_id})["server_id"])


def test_nothing_is_left_after_fencing(cluster: Cluster) -> None:
    """A frozen agent loses its lease: the supervisors end the tasks by themselves."""
    caller = cluster.caller("fenced")
    job_id = running_job(caller, script=_STUBBORN, retry={"max_attempts": 1})
    agent = cluster.guests.agents[_server_of(cluster, job_id)]
    agent.send(signal.SIGSTOP)
    try:
        until(lambda: not task_processes(job_id), "the end of the fenced task", cluster.lease_s + 5)
        job = ended(caller, job_id, "failed", 60)
        assert job["failure_class"] == "node_failure"
    finally:
        agent.send(signal.SIGCONT)
    cluster.wait_ready(2)


def test_no_node_is_given_up_while_no_api_lives(cluster: Cluster) -> None:
    """Without an API the tasks end with their lease, but it is not the nodes that are lost."""
    caller = cluster.caller("deaf")
    job_id = running_job(caller, command=["sleep", "2"], grace_period_s=1)

    def epochs() -> dict[str, int]:
        nodes = cluster.admin.all("nodes", all_projects="true")
        return {node["id"]: node["epoch"] for node in nodes if node["status"] == "ready"}

    before = epochs()
    assert len(before) == 2
    for program in cluster.of_kind("api"):
        program.end(signal.SIGKILL)
    back = time.monotonic() + 4 * cluster.lease_s
    until(lambda: time.monotonic() > back, "four leases")
    for program in cluster.of_kind("api"):
        program.start()
    ended(caller, job_id, "succeeded", 60)
    assert epochs() == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_tasks_outlive_their_agent_and_are_adopted(cluster: Cluster, number: int) -> None:
    caller = cluster.caller("adopted")
    job_id = running_job(caller, command=["sleep", "4"])
    agent = cluster.guests.agents[_server_of(cluster, job_id)]
    before = task_processes(job_id)
    agent.end(number)
    assert task_processes(job_id) == before
    agent.start()
    job = ended(caller, job_id, "succeeded")
    assert job["attempt"] == 1
    assert len(caller.get(f"/jobs/{job_id}/attempts")["attempts"]) == 1
    assert not task_processes(job_id)


def test_tasks_that_nobody_adopts_are_ended(cluster: Cluster) -> None:
    caller = cluster.caller("orphans")
    job_id = running_job(caller, command=["sleep", "1000"])
    agent = cluster.guests.agents[_server_of(cluster, job_id)]
    agent.end(signal.SIGKILL)
    until(lambda: not task_processes(job_id), "the end of the orphan", 5 + 5)
    agent.start()
    cluster.wait_ready(2)
    caller.cancel(job_id)
    until(lambda: caller.job(job_id)["ended_at"], "the job's end")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_tasks_outlive_the_all_in_one_program(number: int) -> None:
    with tempfile.TemporaryDirectory(prefix="gpuservice-", dir=PLACES) as folder:
        place = Path(folder)
        place.chmod(0o711)
        port = free_port()
        config = place / "more.conf"
        config.write_text("[agent]\norphan_after_s = 20\n")
        program = Program(
            "all-in-one",
            "all-in-one",
            [
                "gpuservice.cmd.all_in_one",
                "--state-dir",
                str(place / "state"),
                "--listen",
                f"127.0.0.1:{port}",
                "--hosts",
                "1",
                "--gpus-per-host",
                "2",
                "--config-file",
                str(config),
            ],
            place / "log",
        )
        program.start()
        try:
            until(lambda: "ready at" in program.log_text, "the program")
            caller = Rest([f"http://127.0.0.1:{port}"], "somebody")
            job_id = running_job(caller, command=["sleep", "8"])
            before = task_processes(job_id)
            program.end(number)
            assert task_processes(job_id) == before
            program.start()
            job = ended(caller, job_id, "succeeded", 60)
            assert job["attempt"] == 1
            assert not task_processes(job_id)
        finally:
            program.end(signal.SIGKILL)
            kill_all(list(processes_naming(place)))
