# SPDX-License-Identifier: Apache-2.0
"""The service as it is deployed: two of each program on RabbitMQ and a database, and agents."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import requests
from guests import Guests
from programs import Program, kill_all, processes_naming, task_processes, until
from rest import Rest
from sqlalchemy.engine import make_url

from gpuservice.bootstrap import RandomIds, SystemClock
from gpuservice.db.engine import create_engine
from gpuservice.db.store import DatabaseStore

RABBIT = "GPUSERVICE_TEST_RABBIT_URL"
DATABASES = {
    "postgresql": "GPUSERVICE_TEST_POSTGRESQL_URL",
    "mariadb": "GPUSERVICE_TEST_MARIADB_URL",
}
#: Where all users may look: started by root, agents give tasks a /tmp and a /var/tmp of their own.
PLACES = Path("/var/lib" if os.geteuid() == 0 else "/var/tmp")
GPU_TYPE = "a100-80gb"

_CONFIG = """
[DEFAULT]
transport_url = {rabbit}
[database]
connection = {database}
max_retries = -1
retry_interval = 1
[api]
auth_strategy = noauth
listen_address = 127.0.0.1
listen_port = {port}
public_url = {url}
[logs]
directory = {place}/logs
[artifacts]
directory = {place}/objects
[simulated]
state_dir = {place}/cloud
hosts = {hosts}
gpus_per_host = {gpus}
[cloud]
settle_s = 1
[conductor]
inventory_interval_s = 2
loss_margin_s = {loss_margin_s}
[agent]
lease_s = {lease_s}
interval_s = 1
orphan_after_s = 5
[jobs]
start_timeout_s = 60
{more}
"""


def free_port() -> int:
    """A TCP port of the loopback that nobody uses now."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def fresh_database(backend: str) -> Iterator[str]:
    """The URL of a new, empty database, dropped at the end."""
    url = os.environ[DATABASES[backend]]
    name = f"gpuservice_{uuid.uuid4().hex[:12]}"
    server = create_engine(url, pool_size=1)

    def execute(statement: str) -> None:
        with server.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(statement)

    execute(f"CREATE DATABASE {name}")
    try:
        yield make_url(url).set(database=name).render_as_string(hide_password=False)
    finally:
        force = " WITH (FORCE)" if backend == "postgresql" else ""
        execute(f"DROP DATABASE {name}{force}")
        server.dispose()


class Cluster:
    """Two of each program, and a machine for each server of the simulated cloud.

    :param lease_s: the agents' lease; ``more`` is appended to the configuration.
    """

    def __init__(
        self,
        database: str,
        place: Path,
        *,
        hosts: int,
        gpus: int,
        lease_s: int = 10,
        loss_margin_s: int = 2,
        more: str = "",
    ) -> None:
        self.place = place
        self.hosts, self.gpus, self.lease_s = hosts, gpus, lease_s
        self.database = database
        self.ports = [free_port(), free_port()]
        self.urls = [f"http://127.0.0.1:{port}" for port in self.ports]
        self.configs = [self._configure(number, loss_margin_s, more) for number in (0, 1)]
        self.programs = [
            Program(
                kind,
                f"{kind}-{number}",
                [f"gpuservice.cmd.{kind}", "--config-file", str(self.configs[number])],
                place / f"{kind}-{number}.log",
            )
            for kind in ("api", "conductor", "scheduler")
            for number in (0, 1)
        ]
        self.guests = Guests(
            place / "cloud",
            place / "nodes",
            self.urls,
            {"orphan_after_s": 5, "uid_directory": str(place / "uids")},
        )
        self.admin = Rest(self.urls, "operator", "admin")
        self.store = DatabaseStore(create_engine(database, pool_size=2), SystemClock(), RandomIds())

    def _configure(self, number: int, loss_margin_s: int, more: str) -> Path:
        path = self.place / f"gpuservice-{number}.conf"
        path.write_text(
            _CONFIG.format(
                rabbit=os.environ[RABBIT],
                database=self.database.replace("$", "$$"),
                port=self.ports[number],
                url=self.urls[number],
                place=self.place,
                hosts=self.hosts,
                gpus=self.gpus,
                loss_margin_s=loss_margin_s,
                lease_s=self.lease_s,
                more=more,
            )
        )
        path.chmod(0o600)
        return path

    # -- life ------------------------------------------------------------------------------
    def upgrade(self) -> None:
        """Bring the schema up."""
        subprocess.run(
            [
                sys.executable,
                "-m",
                "gpuservice.cmd.manage",
                "--config-file",
                str(self.configs[0]),
                "db",
                "upgrade",
            ],
            check=True,
            timeout=60,
        )

    def start(self) -> None:
        """Bring the schema up, start every program, wait until the API knows the hosts.

        They, and the types of their GPUs, come with the first pass of a conductor.
        """
        self.upgrade()
        for program in self.programs:
            program.start()
        for url in self.urls:
            until(lambda at=url: _answers(at), f"the API at {url}")
        until(lambda: len(list(self.admin.all("hosts"))) == self.hosts, "the hosts")
        self.guests.start()

    def stop(self) -> None:
        """End everything; what does not end by itself is an error of the program."""
        for program in self.programs:
            program.send(15)
        codes = {program.name: program.end(None) for program in self.programs}
        self.guests.stop()
        self.store.engine.dispose()
        left = processes_naming(self.place)
        kill_all(list(left))
        assert not left, f"still in the process table: {left}"
        wrong = {name: code for name, code in codes.items() if code not in (0, None)}
        last = {one.name: one.log_text[-4000:] for one in self.programs if one.name in wrong}
        assert not wrong, f"not a clean end: {wrong}\n" + "\n".join(last.values())

    def of_kind(self, kind: str) -> list[Program]:
        """Programs of a kind (api, conductor, scheduler, agent)."""
        if kind == "agent":
            return list(self.guests.agents.values())
        return [program for program in self.programs if program.kind == kind]

    # -- what a test needs there -------------------------------------------------------------
    def furnish(
        self,
        nodes: int | None = None,
        isolation: str = "none",
        name: str = "shared",
    ) -> dict[str, Any]:
        """A flavor of whole hosts, a ready pool over them, and a queue open to everybody."""
        self.admin.post(
            "/flavors",
            {
                "flavor": {
                    "name": "whole",
                    "gpu_type": GPU_TYPE,
                    "gpu_count": self.gpus,
                    "vcpus": 64,
                    "memory_mib": 524288,
                }
            },
        )
        size = self.hosts if nodes is None else nodes
        pool = self.admin.post(
            "/pools",
            {
                "pool": {
                    "name": name,
                    "flavor": "whole",
                    "min_nodes": size,
                    "max_nodes": size,
                    "shared_with": ["*"],
                    "isolation": isolation,
                }
            },
        )["pool"]
        self.admin.post(
            "/queues",
            {
                "queue": {
                    "name": "default",
                    "project_id": None,
                    "projects": ["*"],
                    "pools": [pool["id"]],
                    "max_priority": 1000,
                }
            },
        )
        self.wait_ready(size)
        return dict(pool)

    def wait_ready(self, size: int, patience_s: float = 60.0) -> None:
        """Wait until that many nodes are ready."""
        seen: list[str] = []

        def look() -> bool:
            nodes = list(self.admin.all("nodes", all_projects="true"))
            seen[:] = [f"{node['status']} {node['fault']}" for node in nodes]
            return sum(node["status"] == "ready" for node in nodes) >= size

        try:
            until(look, f"{size} ready nodes", patience_s)
        except AssertionError as late:
            raise AssertionError(f"{late}: {seen}") from late

    def caller(self, project: str) -> Rest:
        """A member of a project."""
        return Rest(self.urls, project)

    def node_of(self, job: dict[str, Any], rank: int = 0) -> dict[str, Any]:
        """The node that a task of the newest attempt of a job is on."""
        attempt = self.admin.get(f"/jobs/{job['id']}/attempts")["attempts"][0]
        task = next(one for one in attempt["tasks"] if one["rank"] == rank)
        return dict(self.admin.get(f"/nodes/{task['node_id']}")["node"])

    # -- what must hold at the end -----------------------------------------------------------
    def check_ledger(self) -> None:
        """The quota ledger equals a recount."""
        assert self.store.read(lambda uow: uow.quotas.recount()) == []

    def check_idle(self) -> None:
        """Every device is free, no task is left, and the ledger is right."""
        until(lambda: not self._used(), "free devices")
        until(lambda: not task_processes_below(self.place), "the end of every task's processes")
        self.check_ledger()

    def _used(self) -> list[dict[str, Any]]:
        return [device for device in self.admin.all("devices") if device["used_milli"]]


def task_processes_below(place: Path) -> list[int]:
    """Task processes of this cluster: those that work below its directory."""
    own = processes_naming(place)
    return [pid for pid in task_processes() if pid in own]


def _answers(url: str) -> bool:
    try:
        return bool(requests.get(f"{url}/healthcheck", timeout=2).ok)
    except requests.RequestException:
        return False


@contextmanager
def running_cluster(backend: str, **options: Any) -> Iterator[Cluster]:
    """A cluster of its own database, started; all of it is gone at the end."""
    place = Path(tempfile.mkdtemp(prefix="gpuservice-", dir=PLACES))
    place.chmod(0o711)
    try:
        with fresh_database(backend) as database:
            cluster = Cluster(database, place, **options)
            try:
                cluster.start()
                yield cluster
            except BaseException:
                _keep_logs(place)
                raise
            finally:
                cluster.stop()
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _keep_logs(place: Path) -> None:
    """Copy the programs' logs to where GPUSERVICE_TEST_KEEP points, for whoever looks into it."""
    keep = os.environ.get("GPUSERVICE_TEST_KEEP")
    if keep:
        for log in [*place.glob("*.log"), *place.glob("nodes/*.log")]:
            shutil.copy(log, keep)
