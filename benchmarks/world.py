# SPDX-License-Identifier: Apache-2.0
"""A running service with one pool of all GPUs and one queue, and rows put straight into it."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from oslo_config import cfg
from oslo_db.exception import DBDeadlock
from sqlalchemy import text

from benchmarks.programs import GPUS, HOSTS, Programs, fresh_database, wait_until
from benchmarks.rest_client import Connection, true_job
from gpuservice.bootstrap import RandomIds, SystemClock
from gpuservice.conf import opts
from gpuservice.db.engine import create_engine_from
from gpuservice.db.store import DatabaseStore
from gpuservice.domain.jobspec import normalise
from gpuservice.domain.work import Job

#: Where tools/with_services.py says the servers are.
POSTGRESQL, RABBITMQ = "GPUSERVICE_TEST_POSTGRESQL_URL", "GPUSERVICE_TEST_RABBIT_URL"
_BATCH = 2000


class World:
    """What the measurements need of one running service."""

    def __init__(self, programs: Programs) -> None:
        self.programs = programs
        self.url = programs.url
        self.rest = Connection(programs.url)
        conf = cfg.ConfigOpts()
        opts.register_all(conf)
        conf([], default_config_files=[])
        conf.set_override("connection", programs.database, "database")
        self._engine = create_engine_from(conf)
        self._store = DatabaseStore(self._engine, SystemClock(), RandomIds())
        self.queue_id = ""

    def close(self) -> None:
        """Let go of the connections."""
        self.rest.close()
        self._engine.dispose()

    def seed(self) -> None:
        """Flavor, pool of every host, queue; returns when every node is ready."""
        wait_until(self._has_devices, "the devices are known")
        rest = self.rest
        rest.call(
            "POST",
            "/v1/flavors",
            {
                "flavor": {
                    "name": "bench",
                    "gpu_type": "a100-80gb",
                    "gpu_count": GPUS,
                    "vcpus": 64,
                    "memory_mib": 524288,
                }
            },
        )
        pool = rest.call(
            "POST",
            "/v1/pools",
            {
                "pool": {
                    "name": "bench",
                    "flavor": "bench",
                    "min_nodes": HOSTS,
                    "max_nodes": HOSTS,
                    "shared_with": ["*"],
                    "isolation": "none",
                }
            },
        )["pool"]["id"]
        self.queue_id = rest.call(
            "POST",
            "/v1/queues",
            {
                "queue": {
                    "name": "default",
                    "project_id": None,
                    "projects": ["*"],
                    "pools": [pool],
                    "max_priority": 1000,
                }
            },
        )["queue"]["id"]
        wait_until(
            lambda: rest.call("GET", f"/v1/pools/{pool}")["pool"]["status"] == "active",
            "the pool is active",
        )

    def _has_devices(self) -> bool:
        try:
            return len(self.rest.call("GET", "/v1/hosts")["hosts"]) == HOSTS
        except OSError:
            self.rest.close()
            return False

    def cordon(self, verb: str = "cordon") -> None:
        """``cordon`` or ``uncordon`` every node."""
        for node in self.rest.call("GET", "/v1/nodes")["nodes"]:
            self.rest.call("POST", f"/v1/nodes/{node['id']}/action", {verb: {}})

    def value(self, query: str) -> Any:
        """The first column of the first row of an SQL query."""
        with self._engine.connect() as connection:
            return connection.execute(text(query)).scalar()

    def values(self, query: str) -> list[Any]:
        """The first column of every row of an SQL query."""
        with self._engine.connect() as connection:
            return list(connection.execute(text(query)).scalars())

    def clear_jobs(self) -> None:
        """Empty the tables of jobs, so that every run finds the same.

        The service goes on beside it; a deadlock with one of its transactions is tried again.
        """
        wait_until(self._truncate, "the tables of jobs are empty")
        self._store.write(lambda uow: uow.quotas.repair())

    def _truncate(self) -> bool:
        try:
            with self._engine.begin() as connection:
                connection.execute(
                    text(
                        "TRUNCATE jobs, job_elements, job_labels, attempts, tasks, allocations, "
                        "explanations, events, port_leases CASCADE"
                    )
                )
        except DBDeadlock:
            return False
        return True

    def insert_jobs(self, count: int, ended: bool) -> list[str]:
        """Put waiting or ended jobs in, as the service itself would have left them."""
        spec = normalise(true_job("row")["job"], {}, None)
        now, ids = datetime.now(UTC), RandomIds()
        first = Job(
            id="",
            created_at=now,
            updated_at=now,
            project_id="bench",
            user_id="bench",
            name="row",
            queue_id=self.queue_id,
            kind=spec["kind"],
            status="queued",
            priority=spec["priority"],
            spec=spec,
            max_runtime_s=600,
            queued_at=now,
        )
        if ended:
            first = replace(
                first,
                status="succeeded",
                waiting_elements=0,
                attempt=1,
                succeeded_elements=1,
                exit_code=0,
            )
        made: list[str] = []
        for begin in range(0, count, _BATCH):
            jobs = []
            for number in range(begin, min(begin + _BATCH, count)):
                at = now - timedelta(seconds=count - number)
                job = replace(first, id=ids.new(), created_at=at, updated_at=at, queued_at=at)
                if ended:
                    job = replace(job, started_at=at, ended_at=at)
                jobs.append(job)
            self._store.write(lambda uow, rows=jobs: uow.jobs.add_many(rows))
            made.extend(job.id for job in jobs)
        self._store.write(lambda uow: uow.quotas.repair())
        with self._engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT").execute(
                text("VACUUM ANALYZE jobs")
            )
        return made


@contextmanager
def running(
    runner: str, keep: Path | None = None, scheduler: Sequence[str] = ()
) -> Iterator[World]:
    """A seeded service on a fresh database of the servers named in the environment.

    :param runner: what the agents do with tasks, ``process`` or ``nofork``.
    :param keep: an empty directory for configuration and logs, which then stay.
    :param scheduler: lines of the configuration's ``[scheduler]``.
    """
    with ExitStack() as stack:
        name = (
            str(keep)
            if keep
            else stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmarks-"))
        )
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        programs = Programs(
            Path(name),
            fresh_database(os.environ[POSTGRESQL], "benchmarks"),
            os.environ[RABBITMQ],
            port,
            runner,
            scheduler,
        )
        world = World(programs)
        try:
            programs.start()
            programs.run_agents()
            world.seed()
            yield world
        finally:
            world.close()
            programs.stop()
