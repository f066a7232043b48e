# SPDX-License-Identifier: Apache-2.0
"""The machines of the simulated cloud: a real ``gpuservice-agent`` for each active server."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from typing import Any

from programs import Program, kill_all, processes_naming, task_processes

from gpuservice.drivers.cloud.guest import GuestHost
from gpuservice.drivers.cloud.simulated_state import SimulatedState


class Guests:
    """Starts and halts agents; each keeps one state directory through all its lives.

    :param urls: API URLs, given to the agents in turn.
    :param settings: further settings of every agent.
    """

    def __init__(
        self, state_dir: Path, place: Path, urls: list[str], settings: dict[str, Any]
    ) -> None:
        self._state = SimulatedState(state_dir)
        self._place = place
        self._urls = urls
        self._settings = settings
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="guests")
        self._held: set[str] = set()
        self._lost: set[str] = set()
        self.agents: dict[str, Program] = {}

    def start(self) -> None:
        """Look after the servers in the background."""
        self._thread.start()

    def stop(self) -> None:
        """Halt every machine, as by a power cut."""
        self._stop.set()
        self._held.clear()
        if self._thread.ident is not None:
            self._thread.join()
        for server_id in list(self.agents):
            self._halt(server_id)

    def hold(self, server_id: str) -> Program:
        """Let a machine outlive its server's deletion, as one that cannot be powered off does."""
        self._held.add(server_id)
        return self.agents[server_id]

    def let_go(self, server_id: str) -> None:
        """No longer so: the machine of a deleted server goes now."""
        self._held.discard(server_id)
        if server_id in self._lost:
            self._lost.discard(server_id)
            self._halt(server_id)

    def state_of(self, server_id: str) -> Path:
        """The state directory of the agent of a server."""
        return self._place / server_id

    def processes_of(self, server_id: str) -> list[int]:
        """All processes of a machine: agent, supervisors, tasks."""
        tasks = self.state_of(server_id) / "tasks"
        own = {path.name for path in tasks.iterdir()} if tasks.is_dir() else set()
        named = processes_naming(self.state_of(server_id))
        return sorted({*named, *(pid for pid in _descendants(named)), *_with_tasks(own)})

    def change_url(self, server_id: str, url: str) -> None:
        """Let the agent of a server reach the API elsewhere, from its next start on."""
        path = self._user_data(server_id)
        path.write_text(json.dumps({**json.loads(path.read_text()), "api_url": url}))

    def _run(self) -> None:
        GuestHost(self._state, self._boot, self._halt).run(self._stop)

    def _user_data(self, server_id: str) -> Path:
        return self._place / f"{server_id}.user-data"

    def _boot(self, server_id: str, user_data: Path) -> None:
        server = self._state.server(server_id)
        if server is None:
            return
        self._place.mkdir(parents=True, exist_ok=True)
        settings = self._place / f"{server_id}.settings"
        devices = [
            {
                "address": address,
                "vendor": "nvidia",
                "product_id": "",
                "index": index,
                "memory_mib": 81920,
            }
            for index, address in enumerate(server["devices"])
        ]
        settings.write_text(json.dumps({"probe": "fake", "devices": devices, **self._settings}))
        url = self._urls[len(self.agents) % len(self._urls)]
        self._user_data(server_id).write_text(
            json.dumps({**json.loads(user_data.read_text()), "api_url": url})
        )
        agent = Program(
            "agent",
            f"agent-{server_id}",
            [
                "gpuservice.cmd.agent",
                "--user-data",
                str(self._user_data(server_id)),
                "--state-dir",
                str(self.state_of(server_id)),
                "--config-file",
                str(settings),
            ],
            self._place / f"{server_id}.log",
        )
        self.agents[server_id] = agent
        agent.start()

    def _halt(self, server_id: str) -> None:
        if server_id in self._held:
            self._lost.add(server_id)
            return
        agent = self.agents.pop(server_id, None)
        if agent is not None:
            pids = self.processes_of(server_id)
            kill_all(pids, signal.SIGKILL)
            agent.end(signal.SIGKILL)


def _descendants(pids: Any) -> set[int]:
    """Children of processes, and theirs."""
    found: set[int] = set()
    waiting = list(pids)
    while waiting:
        pid = waiting.pop()
        try:
            for thread in Path(f"/proc/{pid}/task").iterdir():
                for child in (thread / "children").read_text().split():
                    if int(child) not in found:
                        found.add(int(child))
                        waiting.append(int(child))
        except OSError:  # ended meanwhile
            continue
    return found


def _with_tasks(task_ids: set[str]) -> list[int]:
    """Processes that are told in their environment to belong to one of these tasks."""
    if not task_ids:
        return []
    return [pid for pid in task_processes() if any(one in _where(pid) for one in task_ids)]


def _where(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink())
    except OSError:
        return ""
