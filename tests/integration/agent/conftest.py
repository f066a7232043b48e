# SPDX-License-Identifier: Apache-2.0
"""A fake service and real agents, each in its own process, ended with all they started."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time

import pytest

from gpuservice.agent import halt, process_tree
from tests.integration.agent.fake_api import FakeApi


def until(condition, what, timeout=10.0):
    """Poll until a condition holds."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, f"{what} did not come"
        time.sleep(0.01)


def supervisor_pid(state_dir, task_id):
    return json.loads((state_dir / "tasks" / task_id / "supervisor").read_text())["pid"]


class AgentProcess:
    """One agent program and its state directory."""

    def __init__(self, api, directory, **settings):
        self.state = directory / "state"
        self.user_data = directory / "user-data.json"
        self.config = directory / "agent.json"
        self.log = directory / "agent.log"
        self.user_data.write_text(
            json.dumps(
                {
                    "api_url": api.url,
                    "ca_file": None,
                    "node_id": "node-1",
                    "bootstrap": "token",
                    "server_id": None,
                }
            )
        )
        self.config.write_text(
            json.dumps(
                {
                    "probe": "fake",
                    "uid_directory": str(directory / "uids"),
                    "upload_retry_s": 5,
                    "log_interval_s": 0.2,
                    **settings,
                }
            )
        )
        self.process = None
        #: The most files that the agent may have open, null: as many as the test.
        self.files = None

    def start(self, *more):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "gpuservice.agent.program",
                    "--user-data",
                    str(self.user_data),
                    "--state-dir",
                    str(self.state),
                    "--config-file",
                    str(self.config),
                    *more,
                ],
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=self._bound,
            )
        return self

    def _bound(self):
        if self.files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (self.files // 2, self.files))

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(15)

    def processes(self, task_ids=()):
        """The whole node: agent, spawner, supervisors, tasks."""
        found = {self.process.pid, *process_tree.descendants(self.process.pid)}
        for task_id in task_ids:
            pid = supervisor_pid(self.state, task_id)
            found |= {pid, *process_tree.descendants(pid)}
        return found

    def processes_of(self, task_id):
        """The live processes of one task of this agent."""
        return process_tree.of_task(str(self.state.resolve() / "tasks" / task_id))

    def power_off(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        halt.kill_node(str(self.state))


@pytest.fixture
def api():
    fake = FakeApi()
    yield fake
    fake.close()


@pytest.fixture
def make_agent(api, tmp_path):
    made = []

    def make(**settings):
        directory = tmp_path / f"node-{len(made)}"
        directory.mkdir(exist_ok=True)
        made.append(AgentProcess(api, directory, **settings))
        return made[-1]

    yield make
    for agent in made:
        tasks = agent.state / "tasks"
        names = os.listdir(tasks) if tasks.is_dir() else []
        agent.power_off()
        for task_id in names:
            assert agent.processes_of(task_id) == []
    with contextlib.suppress(OSError):
        for agent in made:
            os.unlink(agent.log)


@pytest.fixture
def agent(make_agent):
    return make_agent().start()
