# SPDX-License-Identifier: Apache-2.0
"""The conductor over a SQLite file and the simulated cloud, with a clock that tests move.

``World`` plays everyone else: it submits jobs, starts them with the scheduler's own commit,
registers nodes and reports tasks as the agents do.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conductor_ports import HandClock, KeptHints, RandomIds
from mortal_process import FragileCloud, FragileStore, Life
from oslo_config import cfg
from sqlalchemy import event

from gpuservice.conductor.deps import Deps
from gpuservice.conductor.loop import Conductor
from gpuservice.conf import opts, quota
from gpuservice.db.engine import create_engine
from gpuservice.db.store import DatabaseStore
from gpuservice.domain.inventory import Flavor, Node, Pool
from gpuservice.domain.jobspec import normalise
from gpuservice.domain.ports_store import Page, TaskEnd, UnitOfWork, Where
from gpuservice.domain.work import Attempt, Event, Job, ServiceRecord, Task
from gpuservice.drivers.logs.file import FileLogStore
from gpuservice.drivers.objects.file import FileObjectStore
from gpuservice.planner.plan_types import Start
from gpuservice.planner.snapshot import TaskPlacement
from gpuservice.scheduler.commit import CommitSettings, Committer

GPU_TYPE = "a100-80gb"
OWNER = "operators"


class World:
    """One service with its cloud."""

    def __init__(self, folder: Path, template: Path, **overrides: Any) -> None:
        shutil.copy(template, folder / "conductor.db")
        self.conf = configuration(folder, overrides)
        self.engine = create_engine(f"sqlite:///{folder / 'conductor.db'}")
        event.listen(self.engine, "connect", _unsynced)
        self.clock, self.ids, self.hints = HandClock(), RandomIds(), KeptHints()
        self.real_store = DatabaseStore(
            self.engine, self.clock, self.ids, quota.defaults(self.conf)
        )
        self.life = Life()
        self.api_lives = True
        self.store = FragileStore(self.real_store, self.life)
        self.cloud = FragileCloud(self.conf, self.life)
        self.logs, self.objects = FileLogStore(self.conf), FileObjectStore(self.conf)
        self.restart()
        self.epoch = self.real_store.write(lambda uow: uow.raise_epoch("main", "test"))
        self._queue = self.ids.new()

    def restart(self) -> None:
        """The conductor, as after a crash: nothing is left of the old one but rows and files."""
        self.life.dead = False
        self.conductor = Conductor(
            Deps(
                self.store,
                self.hints,
                self.clock,
                self.ids,
                self.conf,
                self.cloud,
                self.logs,
                self.objects,
                f"conductor-{uuid.uuid4().hex[:8]}",
            )
        )

    def step(self, times: int = 1, seconds: float = 1.0) -> None:
        """Passes of the conductor, with time between them."""
        for _ in range(times):
            self.clock.pass_(seconds)
            if self.api_lives:
                self.real_store.write(self._beat)
            self.conductor.step()

    def _beat(self, uow: UnitOfWork) -> None:
        """The heartbeat of an API process."""
        now = self.clock.now()
        if not uow.services.change("api", {"seen_at": now}):
            uow.services.add(
                ServiceRecord(
                    id="api",
                    binary="gpuservice-api",
                    host="test",
                    seen_at=now,
                    started_at=now,
                    version="1",
                )
            )

    # -- nodes -----------------------------------------------------------------------------
    def pool(self, nodes: int = 1, gpus: int = 4, **values: Any) -> Pool:
        """A pool that somebody asked for, and its flavor."""
        now, ident = self.clock.now(), self.ids.new()
        flavor = Flavor(
            id=self.ids.new(),
            created_at=now,
            updated_at=now,
            name=f"flavor-{ident}",
            gpu_type=GPU_TYPE,
            gpu_count=gpus,
            vcpus=16,
            memory_mib=65536,
        )
        row: dict[str, Any] = {
            "id": ident,
            "created_at": now,
            "updated_at": now,
            "project_id": OWNER,
            "name": f"pool-{ident[:4]}",
            "flavor_id": flavor.id,
            "min_nodes": nodes,
            "max_nodes": max(nodes, 4),
            "target_nodes": nodes,
            "shared_with": ("*",),
            "name_key": ident,
        }
        pool = Pool(**{**row, **values})

        def work(uow: UnitOfWork) -> None:
            uow.quotas.take(pool.project_id, {"pools": 1})
            uow.flavors.add(flavor)
            uow.pools.add(pool)

        self.real_store.write(work)
        return pool

    def fresh_pool(self, pool: Pool) -> Pool:
        found = self.real_store.read(lambda uow: uow.pools.get(pool.id))
        assert found is not None
        return found

    def nodes(self, pool: Pool, *statuses: str) -> list[Node]:
        """The pool's nodes that are not deleted (or in these statuses), oldest first."""
        where = Where("status", "in", statuses) if statuses else Where("status", "ne", "deleted")
        return self.real_store.read(
            lambda uow: uow.nodes.find(
                Where("pool_id", "eq", pool.id), where, order=(("created_at", "asc"), ("id", "asc"))
            )
        )

    def register(self) -> int:
        """Every configuring node whose server is active reports for duty; how many."""
        count = 0
        for node in self.real_store.read(
            lambda uow: uow.nodes.find(Where("status", "eq", "configuring"))
        ):
            count += 1
            self.real_store.write(lambda uow, one=node: self._admit(uow, one))  # type: ignore[misc]
        return count

    def _admit(self, uow: UnitOfWork, node: Node) -> None:
        uow.nodes.change(
            node.id,
            {
                "status": "checking",
                "secret_hash": f"secret of {node.id}"[:64],
                "last_renewal_at": uow.now(),
                "lease_s": self.conf.agent.lease_s,
                "instance": "i",
            },
        )

    def renew(self, *nodes: Node) -> None:
        """These nodes are heard of now."""
        for node in nodes:
            self.real_store.write(
                lambda uow, one=node: uow.nodes.change(one.id, {"last_renewal_at": uow.now()})  # type: ignore[misc]
            )

    def settled(self, pool: Pool, passes: int = 12) -> list[Node]:
        """Step until the pool's nodes are ready; fails when they are not in time."""
        for _ in range(passes):
            self.step()
            self.register()
            nodes = self.nodes(pool)
            if len(nodes) == pool.size and all(one.status == "ready" for one in nodes):
                self.step()
                return self.nodes(pool)
        raise AssertionError([(one.status, one.fault) for one in self.nodes(pool)])

    # -- jobs ------------------------------------------------------------------------------
    def submit(self, **body: Any) -> Job:
        """A queued job, of project ``tenant`` unless it is said."""
        project = body.pop("project_id", "tenant")
        array = body.get("array")
        spec = normalise({"name": "j", "command": ["true"], **body}, {}, None)
        now = self.clock.now()
        size = array["size"] if array else None
        job = Job(
            id=self.ids.new(),
            created_at=now,
            updated_at=now,
            project_id=project,
            user_id="ada",
            name="j",
            queue_id=self._queue,
            kind="training",
            status="queued",
            priority=500,
            spec=spec,
            queued_at=now,
            max_runtime_s=spec["max_runtime_s"],
            array_size=size,
            waiting_elements=size or 1,
            array_max_failures=(spec["array"] or {}).get("max_failures"),
        )

        def work(uow: UnitOfWork) -> None:
            uow.quotas.take(project, {"jobs:queued": job.waiting_elements})
            uow.jobs.add(job)
            uow.events.add(
                Event(
                    id=self.ids.new(),
                    at=now,
                    project_id=project,
                    actor="ada",
                    action="job.create",
                    target_type="job",
                    target_id=job.id,
                    detail={"to": "queued"},
                )
            )

        self.real_store.write(work)
        return job

    def start(self, job: Job, nodes: Sequence[Node], gpus: int = 1, times: int = 1) -> Attempt:
        """Start elements of a job, one rank on each node, by the scheduler's commit."""

        def look(uow: UnitOfWork) -> Any:
            free: dict[str, list[str]] = {}
            for device in uow.devices.find(
                Where("used_milli", "eq", 0), order=(("ordinal", "asc"),)
            ):
                free.setdefault(str(device.node_id), []).append(device.id)
            rows = {one.id: one for one in uow.nodes.get_many(node.id for node in nodes)}
            pools = {
                one.id: one for one in uow.pools.get_many({one.pool_id for one in rows.values()})
            }
            return free, rows, pools

        free, rows, pools = self.real_store.read(look)
        starts = []
        for _ in range(times):
            starts.append(
                Start(
                    job.id,
                    tuple(
                        TaskPlacement(
                            rank,
                            node.id,
                            tuple((free[node.id].pop(0), 1000) for _ in range(gpus)),
                            1,
                            1024,
                        )
                        for rank, node in enumerate(nodes)
                    ),
                )
            )
        settings = CommitSettings(self.conf.jobs.start_timeout_s, tuple(range(20000, 20100)))
        outcome = Committer(self.real_store, self.hints, self.ids, "main", settings).commit(
            self.epoch, starts, rows, pools
        )
        assert len(outcome.started) == times, outcome
        return self.attempts(job)[-1]

    def attempts(self, job: Job) -> list[Attempt]:
        return self.real_store.read(
            lambda uow: uow.attempts.find(
                Where("job_id", "eq", job.id), order=(("index", "asc"), ("number", "asc"))
            )
        )

    def tasks(self, attempt: Attempt) -> list[Task]:
        return self.real_store.read(lambda uow: uow.tasks.of_attempts([attempt.id]))

    def job(self, job: Job) -> Job:
        found = self.real_store.read(lambda uow: uow.jobs.get(job.id))
        assert found is not None
        return found

    def report(self, attempt: Attempt, state: str = "running", *ranks: int) -> None:
        """Nodes say that (these) tasks are in ``state``."""
        tasks = [one for one in self.tasks(attempt) if not ranks or one.rank in ranks]

        def work(uow: UnitOfWork) -> None:
            uow.tasks.change_many([one.id for one in tasks], {"status": state})
            uow.attempts.change(attempt.id, {"attention": True})

        self.real_store.write(work)

    def end(self, attempt: Attempt, *ranks: int, **how: Any) -> None:
        """Nodes say that (these) tasks are gone; ``how`` as in ``TaskEnd`` (exit code 0)."""
        how = {"exit_code": 0, **how}
        tasks = [one for one in self.tasks(attempt) if not ranks or one.rank in ranks]
        self.real_store.write(
            lambda uow: uow.tasks.gone([TaskEnd(one.id, **how) for one in tasks], uow.now())
        )

    def events(self, target: str) -> list[Event]:
        """What happened to something, in order."""
        return self.real_store.read(
            lambda uow: uow.events.page(
                Page((Where("target_id", "eq", target),), (("seq", "asc"),), 1000)
            )
        )

    def replayed(self, job: Job) -> str:
        """The status that the events of a job without an array lead to, each from the last."""
        status = "queued"
        for one in self.events(job.id):
            if "from" in one.detail:
                assert one.detail["from"] == status, (one, status)
                status = one.detail["to"]
        return status

    # -- laws ------------------------------------------------------------------------------
    def held_milli(self) -> int:
        """Shares of devices in use."""
        return self.real_store.read(lambda uow: sum(one.used_milli for one in uow.devices.find()))

    def check(self) -> None:
        """What always holds: the ledger is exact, devices hold what live allocations say."""
        wrong = self.real_store.read(lambda uow: uow.quotas.recount())
        assert wrong == []
        held = self.real_store.read(
            lambda uow: sum(one.milli for one in uow.allocations.find(Where("released_at", "null")))
        )
        assert held == self.held_milli()
        assert all(
            node.live_tasks >= 0 for node in self.real_store.read(lambda uow: uow.nodes.find())
        )


def _unsynced(connection: Any, record: Any) -> None:
    """No test here takes the power away from the database's disk."""
    connection.execute("PRAGMA synchronous=OFF")


def configuration(folder: Path, overrides: dict[str, Any]) -> cfg.ConfigOpts:
    """Options with everything stored below ``folder``; overrides are ``group__name=value``."""
    conf = cfg.ConfigOpts()
    opts.register_all(conf)
    conf([], project="gpuservice", default_config_files=[], default_config_dirs=[])
    values: dict[str, Any] = {
        "logs__directory": str(folder / "logs"),
        "artifacts__directory": str(folder / "objects"),
        "simulated__state_dir": str(folder / "cloud"),
        "simulated__hosts": 4,
        "simulated__gpus_per_host": 8,
        "simulated__vcpus": 64,
        "cloud__settle_s": 2.0,
        **overrides,
    }
    for key, value in values.items():
        group, _, name = key.partition("__")
        conf.set_override(name, value, group)
    return conf
