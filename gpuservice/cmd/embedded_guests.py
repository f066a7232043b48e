# SPDX-License-Identifier: Apache-2.0
"""The guests of the all-in-one program: one embedded agent a node, each in a thread."""

from __future__ import annotations

import json
import logging
import shutil
import threading
from dataclasses import replace
from pathlib import Path

from oslo_config import cfg

from gpuservice.agent.agent import Agent, AgentRefused
from gpuservice.agent.halt import kill_node
from gpuservice.agent.settings import AgentSettings, UserData
from gpuservice.agent.wire import Device
from gpuservice.drivers.cloud.guest import GuestHost
from gpuservice.drivers.cloud.simulated_state import SimulatedState

LOG = logging.getLogger(__name__)


class EmbeddedGuests:
    """Boots an agent thread for each active server of the simulated cloud.

    :param stop_tasks: whether the end of the program is the end of its tasks.
    :param api_url: where the service listens now; a node may have been built when it was elsewhere.
    """

    def __init__(
        self, conf: cfg.ConfigOpts, directory: Path, stop_tasks: bool, api_url: str
    ) -> None:
        self._conf = conf
        self._directory = directory
        self._stop_tasks = stop_tasks
        self._api_url = api_url
        self._state = SimulatedState(Path(conf.simulated.state_dir))
        self._agents: dict[str, tuple[threading.Thread, threading.Event, threading.Event]] = {}

    def run(self, stop: threading.Event) -> None:
        """Look after the guests until told to stop; then their agents end."""
        self._clear()
        GuestHost(self._state, self._boot, self._halt).run(stop)
        for _, end, _ in self._agents.values():
            end.set()
        for thread, _, _ in self._agents.values():
            thread.join()

    def _boot(self, server_id: str, user_data: Path) -> None:
        end, kill = threading.Event(), threading.Event()
        if self._stop_tasks:
            kill.set()
        thread = threading.Thread(
            target=self._agent,
            name=f"agent-{server_id[:8]}",
            args=(server_id, user_data, end, kill),
        )
        self._agents[server_id] = (thread, end, kill)
        thread.start()

    def _halt(self, server_id: str) -> None:
        """The power went: agent and tasks vanish, nothing more is said."""
        found = self._agents.pop(server_id, None)
        if found is not None:
            thread, end, kill = found
            kill.set()
            end.set()
            thread.join()
        kill_node(str(self._directory / server_id))
        if (self._state.server(server_id) or {}).get("deleted"):
            shutil.rmtree(self._directory / server_id, ignore_errors=True)
        self._clear()

    def _clear(self) -> None:
        """Remove what guests of servers that are gone have left.

        A server is often deleted only after its guest was halted, so it is looked for again.
        """
        for place in list(self._directory.iterdir()):
            try:
                if place.name not in self._agents and self._state.server(place.name) is None:
                    kill_node(str(place))
                    shutil.rmtree(place, ignore_errors=True)
            except Exception:  # the others are not to wait for it
                LOG.exception("What is left in %s cannot be removed now", place)

    def _agent(
        self, server_id: str, path: Path, end: threading.Event, kill: threading.Event
    ) -> None:
        try:
            user_data = replace(
                UserData.parse(json.loads(path.read_text(encoding="utf-8"))), api_url=self._api_url
            )
            agent = Agent(user_data, str(self._directory / server_id), self._settings(server_id))
            agent.run(end, stop_tasks=kill)
        except AgentRefused as refused:
            LOG.info("The agent of server %s ended: %s", server_id, refused)
        except Exception:
            LOG.exception("The agent of server %s failed", server_id)

    def _settings(self, server_id: str) -> AgentSettings:
        server = self._state.server(server_id) or {"devices": []}
        agent = self._conf.agent
        simulated = self._conf.simulated
        return AgentSettings(
            probe="fake",
            cover=str(self._directory.parent),
            file_roots=tuple(agent.file_roots),
            allow_loopback_http=True,
            orphan_after_s=agent.orphan_after_s,
            devices=tuple(
                Device(
                    address=address,
                    vendor="nvidia",
                    product_id="",
                    index=index,
                    memory_mib=simulated.gpu_memory_mib,
                )
                for index, address in zip(
                    server.get("indices", range(len(server["devices"]))),
                    server["devices"],
                    strict=True,
                )
            ),
        )
