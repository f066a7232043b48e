# SPDX-License-Identifier: Apache-2.0
"""What befalls a running cluster: processes killed and frozen, servers restarted, traffic lost."""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
import time
from collections import Counter
from contextlib import closing

from cluster import Cluster
from dropping_proxy import DroppingProxy
from programs import TaskKey, kill_all, task_processes, until

#: The socket on which ``tools/with_services.py`` takes wishes for restarts.
CONTROL = "GPUSERVICE_TEST_SERVICES"
#: Within this time (seconds) of its thaw nothing of a frozen node's old tasks runs any more.
THAW_S = 2.0


def restart_server(name: str) -> None:
    """Restart RabbitMQ or a database server; returns when it is back."""
    with closing(socket.socket(socket.AF_UNIX)) as connection:
        connection.connect(os.environ[CONTROL])
        connection.sendall(name.encode())
        answer = connection.recv(1024).decode()
    assert answer == "ok", f"{name}: {answer}"


class Faults:
    """Commits faults of every kind; counts them; knows which tasks were frozen and when."""

    def __init__(self, cluster: Cluster, backend: str, seed: int = 7) -> None:
        self._cluster = cluster
        self._backend = backend
        self._dice = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.forgiven: dict[TaskKey, tuple[float, float]] = {}
        self._busy: set[str] = set()
        self._lock = threading.Lock()

    # -- random kills ------------------------------------------------------------------------
    def kill_one(self) -> None:
        """SIGKILL one random process and start it again."""
        kind = self._dice.choice(("api", "conductor", "scheduler", "agent"))
        with self._lock:
            there = [one for one in self._cluster.of_kind(kind) if one.name not in self._busy]
            if there:
                self._dice.choice(there).restart()
                self.counts[f"{kind} killed"] += 1

    def kill_until(self, stop: threading.Event, every_s: float) -> None:
        """One kill after the other until told to stop."""
        while not stop.wait(every_s):
            self.kill_one()

    # -- single great faults -------------------------------------------------------------------
    def restart_rabbit(self) -> None:
        """RabbitMQ goes and comes back."""
        restart_server("rabbitmq")
        self.counts["rabbitmq restarted"] += 1

    def restart_database(self) -> None:
        """The database server goes and comes back."""
        restart_server(self._backend)
        self.counts[f"{self._backend} restarted"] += 1

    def freeze_agent(self) -> None:
        """An agent alone stands still for two leases."""
        server_id = self._take_agent()
        agent = self._cluster.guests.agents[server_id]
        agent.send(signal.SIGSTOP)
        time.sleep(2 * self._cluster.lease_s)
        agent.send(signal.SIGCONT)
        self._give_back(server_id)
        self.counts["agent frozen"] += 1

    def freeze_node(self) -> None:
        """A whole node stands still for two leases; its old tasks must not outlive the thaw."""
        server_id = until(self._take_working_agent, "a node with tasks")
        pids = self._cluster.guests.processes_of(server_id)
        kill_all(pids, signal.SIGSTOP)
        tasks = {pid: key for pid, key in task_processes().items() if pid in pids}
        time.sleep(2 * self._cluster.lease_s)
        thaw = time.time()
        for key in tasks.values():
            self.forgiven[key] = (thaw, thaw + THAW_S)
        kill_all(pids, signal.SIGCONT)
        until(
            lambda: not tasks.keys() & task_processes().keys(),
            "the end of the thawed node's tasks",
            THAW_S,
        )
        self._give_back(server_id)
        self.counts["node frozen"] += 1
        self.counts["processes of tasks frozen with it"] += len(tasks)

    def drop_traffic(self) -> None:
        """What one agent and the API tell each other is lost for two leases."""
        server_id = self._take_agent()
        proxy = DroppingProxy(self._cluster.ports[0])
        agent = self._cluster.guests.agents[server_id]
        self._cluster.guests.change_url(server_id, proxy.url)
        agent.restart()
        time.sleep(self._cluster.lease_s / 2)
        proxy.passing.clear()
        time.sleep(2 * self._cluster.lease_s)
        proxy.passing.set()
        self._cluster.guests.change_url(server_id, self._cluster.urls[0])
        agent.restart()
        proxy.close()
        self._give_back(server_id)
        self.counts["traffic dropped"] += 1

    def _take_working_agent(self) -> str | None:
        """An agent whose node has tasks, if there is one."""
        working = set(task_processes())
        for server_id in list(self._cluster.guests.agents):
            if working & set(self._cluster.guests.processes_of(server_id)):
                return self._take_agent(server_id)
        return None

    def _take_agent(self, wanted: str | None = None) -> str:
        """An agent that the random kills leave alone from now on."""
        with self._lock:
            agents = {
                server_id: agent
                for server_id, agent in self._cluster.guests.agents.items()
                if agent.name not in self._busy
            }
            server_id = wanted or self._dice.choice(sorted(agents))
            self._busy.add(agents[server_id].name)
            self._cluster.guests.hold(server_id)
            return server_id

    def _give_back(self, server_id: str) -> None:
        with self._lock:
            self._busy.discard(self._cluster.guests.agents[server_id].name)
            self._cluster.guests.let_go(server_id)
