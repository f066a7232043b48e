# SPDX-License-Identifier: Apache-2.0
"""The service's programs as processes of their own, and the CPU seconds that each has used."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
from sqlalchemy import create_engine, make_url, text

from gpuservice.drivers.cloud.guest import GuestHost
from gpuservice.drivers.cloud.simulated_state import SimulatedState

#: A program must say that it is ready, or a pool be active, within this time, in seconds.
PATIENCE_S = 60.0
HOSTS, GPUS = 8, 8

_CONFIGURATION = """
[DEFAULT]
transport_url = {transport}
[database]
connection = {database}
[api]
auth_strategy = noauth
listen_port = {port}
public_url = http://127.0.0.1:{port}
[agent]
lease_s = 60
[cloud]
settle_s = 0
[conductor]
inventory_interval_s = 5
[simulated]
state_dir = {directory}/cloud
hosts = {hosts}
gpus_per_host = {gpus}
[logs]
directory = {directory}/logs
[artifacts]
directory = {directory}/objects
[scheduler]
{scheduler}
"""


def wait_until(
    true: Callable[[], Any], what: str, patience_s: float = PATIENCE_S, pause_s: float = 0.1
) -> Any:
    """Ask again and again until the answer is true; return it.

    :raises TimeoutError: saying ``what`` did not happen in time.
    """
    until = time.monotonic() + patience_s
    while True:
        answer = true()
        if answer:
            return answer
        if time.monotonic() > until:
            raise TimeoutError(f"not in {patience_s:.0f} s: {what}")
        time.sleep(pause_s)


def fresh_database(url: str, name: str) -> str:
    """Make the database ``name`` anew on the server of ``url``; return its own URL."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'))
        connection.execute(text(f'CREATE DATABASE "{name}"'))
    engine.dispose()
    return make_url(url).set(database=name).render_as_string(hide_password=False)


def _module(name: str) -> list[str]:
    return [sys.executable, "-m", f"gpuservice.cmd.{name}"]


class Programs:
    """One API, one scheduler, one conductor, and an agent a node once ``run_agents`` was called.

    :param runner: ``process`` (tasks are processes) or ``nofork`` (tasks only pretend to be).
    :param scheduler: lines of the configuration's ``[scheduler]``.
    """

    def __init__(
        self,
        directory: Path,
        database: str,
        transport: str,
        port: int,
        runner: str = "nofork",
        scheduler: Sequence[str] = (),
    ) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.database = database
        self._directory = directory
        self._transport = transport
        self._port = port
        self._runner = runner
        self._scheduler = scheduler
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._agents: dict[str, subprocess.Popen[bytes]] = {}
        self._stop = threading.Event()
        self._guests: threading.Thread | None = None
        self._config = directory / "gpuservice.conf"

    def start(self) -> None:
        """Bring the schema up and start API, scheduler and conductor."""
        self._config.write_text(
            _CONFIGURATION.format(
                transport=self._transport,
                directory=self._directory,
                database=self.database,
                port=self._port,
                hosts=HOSTS,
                gpus=GPUS,
                scheduler="\n".join(self._scheduler),
            )
        )
        (self._directory / "cloud").mkdir(exist_ok=True)
        subprocess.run([*_module("manage"), *self._options(), "db", "upgrade"], check=True)
        for name in ("api", "scheduler", "conductor"):
            with (self._directory / f"{name}.out").open("wb") as output:
                self._processes[name] = subprocess.Popen(
                    [
                        *_module(name),
                        *self._options(),
                        "--log-file",
                        str(self._directory / f"{name}.log"),
                    ],
                    stdout=output,
                    stderr=output,
                )

    def _options(self) -> list[str]:
        return ["--config-file", str(self._config)]

    def run_agents(self) -> None:
        """Start an agent for each server of the simulated cloud, as its servers appear."""
        host = GuestHost(SimulatedState(self._directory / "cloud"), self._boot, lambda _: None)
        self._guests = threading.Thread(target=host.run, args=(self._stop,))
        self._guests.start()

    def _boot(self, server_id: str, user_data: Path) -> None:
        state = SimulatedState(self._directory / "cloud")
        server = state.server(server_id) or {"devices": []}
        settings = self._directory / f"agent-{server_id}.json"
        settings.write_text(
            json.dumps(
                {
                    "probe": "fake",
                    "runner": self._runner,
                    "allow_loopback_http": True,
                    "devices": [
                        {
                            "address": address,
                            "vendor": "nvidia",
                            "product_id": "",
                            "index": index,
                            "memory_mib": 81920,
                        }
                        for index, address in enumerate(server["devices"])
                    ],
                }
            )
        )
        with (self._directory / f"agent-{server_id}.out").open("wb") as output:
            self._agents[server_id] = subprocess.Popen(
                [
                    *_module("agent"),
                    "--user-data",
                    str(user_data),
                    "--config-file",
                    str(settings),
                    "--state-dir",
                    str(self._directory / f"node-{server_id}"),
                    "--stop-tasks",
                ],
                stdout=output,
                stderr=output,
            )

    def cpu(self) -> dict[str, float]:
        """CPU seconds used so far: by program (agents and servers with their children), and by
        the whole machine (``machine``; what other users of it do is in there)."""
        used = {name: _cpu_of(process.pid) for name, process in self._processes.items()}
        used["agents"] = sum(_cpu_of(process.pid) for process in list(self._agents.values()))
        used["postgresql"] = _cpu_of(_listening(_port_of(self.database)))
        used["rabbitmq"] = _cpu_of(_listening(_port_of(self._transport)))
        used["client"] = sum(psutil.Process().cpu_times()[:2])
        whole = psutil.cpu_times()
        used["machine"] = whole.user + whole.nice + whole.system + whole.irq + whole.softirq
        return used

    def stop(self) -> None:
        """End everything that was started here."""
        self._stop.set()
        if self._guests is not None:
            self._guests.join()
        for group in (self._agents, self._processes):
            for process in group.values():
                process.terminate()
            for process in group.values():
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def spent(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """The difference of two readings of ``Programs.cpu``, in seconds."""
    return {name: round(after[name] - before.get(name, 0.0), 2) for name in after}


def _cpu_of(pid: int) -> float:
    """CPU seconds of a process, its living descendants, and the dead that were waited for."""
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0.0
    total = 0.0
    for one in family:
        try:
            total += sum(one.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return total


def _port_of(url: str) -> int:
    port = urlsplit(url).port
    if port is None:
        raise ValueError("the URL of a server names no port")
    return port


def _listening(port: int) -> int:
    """The process that listens on a TCP port of this machine."""
    for one in psutil.net_connections("tcp"):
        if one.status == psutil.CONN_LISTEN and one.laddr.port == port and one.pid:
            return int(one.pid)
    raise LookupError(f"nobody listens on port {port}")
