# SPDX-License-Identifier: Apache-2.0
"""Two agents on one machine, of services that know nothing of each other."""

from __future__ import annotations

import os
import signal

import pytest

from gpuservice.agent import cgroups
from tests.integration.agent.conftest import AgentProcess, supervisor_pid
from tests.integration.agent.fake_api import FakeApi


@pytest.fixture
def neighbour(tmp_path):
    """An agent of another service."""
    service = FakeApi()
    directory = tmp_path / "neighbour"
    directory.mkdir()
    agent = AgentProcess(service, directory).start()
    yield service, agent
    agent.power_off()
    service.close()


@pytest.mark.parametrize("how", ["supervisor lost", "power cut"])
def test_a_task_of_the_same_id_elsewhere_is_left_alone(api, agent, neighbour, how):
    service, other = neighbour
    for one in (api, service):
        one.want("t1", command=["sleep", "300"])
        one.until_state("t1", "running")
    theirs = other.processes_of("t1")
    assert len(theirs) == 1 and theirs != agent.processes_of("t1")
    if how == "power cut":
        agent.power_off()
    else:
        os.kill(supervisor_pid(agent.state, "t1"), signal.SIGKILL)
        assert api.until_gone("t1")["failure"]["class"] == "node_failure"
    assert agent.processes_of("t1") == []
    assert other.processes_of("t1") == theirs
    service.stop("t1", grace_s=0)
    assert service.until_gone("t1")["signal"] == 9


def test_groups_are_named_by_the_task_s_place():
    names = {cgroups.group_name(f"/var/lib/{one}/tasks/t1") for one in ("one", "two")}
    assert len(names) == 2 and all(name.startswith("gpuservice-agent-t1-") for name in names)
