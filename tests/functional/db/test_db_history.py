# SPDX-License-Identifier: Apache-2.0
"""With much history and little at work, nothing that is asked all the time reads the history.

PostgreSQL says of each statement how many rows it looked at (EXPLAIN ANALYZE).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from database_rows import THEN, RandomIds, SystemClock, attempt, event, job, node, pool, task
from fresh_databases import fresh_database
from oslo_config import cfg
from sqlalchemy import Engine, text
from sqlalchemy import event as sqlalchemy_event

from gpuservice.api.listing import read
from gpuservice.api.v1 import accounts, catalogue, jobs, pools
from gpuservice.conductor.deps import Deps as ConductorDeps
from gpuservice.conductor.drains import Drains
from gpuservice.conductor.leases import Leases
from gpuservice.conductor.line import Line
from gpuservice.conductor.nodes import Nodes
from gpuservice.conductor.placing import Placing
from gpuservice.conductor.pools import Pools
from gpuservice.conf import opts
from gpuservice.db import migrations
from gpuservice.db.store import DatabaseStore
from gpuservice.domain.context import Caller
from gpuservice.domain.ports_store import Page, UnitOfWork, Where
from gpuservice.domain.work import Allocation, Artifact, Queue
from gpuservice.services.deps import Deps
from gpuservice.services.registry import build

#: Ended jobs with all that belongs to them; deleted nodes and pools are a tenth of that.
HISTORY = 20_000
#: More rows than this no statement may look at.
BOUND = 1500
ADA = Caller("tenant", "ada")
ROOT = Caller("tenant", "root", is_admin=True, sees_all=True)
OLD = job(status="succeeded", waiting_elements=0, attempt=1, ended_at=THEN, queue_id="q")


class NoHints:
    def send(self, hint: Any) -> None: ...

    def subscribe(self, kinds: Any, listener: Any) -> Callable[[], None]:
        return lambda: None


@pytest.fixture(scope="module")
def full(
    backend: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Engine, DatabaseStore] | None]:
    """The database; None where the others would say less than PostgreSQL does."""
    if backend != "postgresql":
        yield None
        return
    folder: Path = tmp_path_factory.mktemp("history")
    with fresh_database("postgresql", folder) as engine:
        migrations.upgrade(engine)
        store = DatabaseStore(engine, SystemClock(), RandomIds(), {"gpus": -1})
        store.write(fill)
        with engine.begin() as connection:
            for table, count in TIMES.items():
                connection.execute(text(repeated(connection, table)), {"count": count})
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))
        yield engine, store


TIMES = {
    "jobs": HISTORY,
    "attempts": HISTORY,
    "tasks": HISTORY,
    "allocations": HISTORY,
    "artifacts": HISTORY,
    "events": HISTORY,
    "nodes": HISTORY // 10,
    "pools": HISTORY // 10,
}


def fill(uow: UnitOfWork) -> None:
    """One row of each kind of history, to be repeated, and a little that is at work."""
    gone = pool(project_id="tenant", status="deleted", name_key=None, id="p-gone")
    uow.pools.add_many([gone, pool(project_id="tenant", id="p-here")])
    uow.nodes.add(node("p-here", id="n-gone", status="deleted", project_id="tenant"))
    uow.queues.add(
        Queue(
            id="q",
            created_at=THEN,
            updated_at=THEN,
            project_id="tenant",
            name="q",
            pool_ids=("p-here",),
            name_key="tenant/q",
        )
    )
    uow.jobs.add(replace(OLD, id="j-old"))
    ended = attempt(OLD, id="a-old", live=None, status="ended", outcome="succeeded", job_id="j-old")
    uow.attempts.add(ended)
    uow.tasks.add(task(ended, "n-gone", id="t-old", status="gone"))
    uow.allocations.add(
        Allocation(
            id="l-old",
            task_id="t-old",
            device_id="d",
            node_id="n-gone",
            job_id="j-old",
            project_id="tenant",
            milli=1000,
            allocated_at=THEN,
            released_at=THEN,
        )
    )
    uow.artifacts.add(
        Artifact(
            id="f-old",
            job_id="j-old",
            attempt_id="a-old",
            task_id="t-old",
            index=0,
            attempt=1,
            rank=0,
            project_id="tenant",
            path="x",
            size=1,
            sha256="ab",
            object_key="k",
            published=True,
            created_at=THEN,
        )
    )
    uow.events.add(event("j-old"))


def repeated(connection: Any, table: str) -> str:
    """An INSERT that repeats the one row of history of a table, other ids for each."""
    names = connection.execute(
        text("SELECT column_name FROM information_schema.columns WHERE table_name = :t"),
        {"t": table},
    ).scalars()
    own = {
        "id": "id || '-' || n",
        "job_id": "job_id || '-' || n",
        "attempt_id": "attempt_id || '-' || n",
        "task_id": "task_id || '-' || n",
        "target_id": "target_id || '-' || n",
        "created_at": "created_at + n * interval '1 second'",
        "seq": None,
    }
    if table in ("pools", "nodes"):
        own = {"id": own["id"], "created_at": own["created_at"]}
    chosen = {name: own.get(name, f'"{name}"') for name in names}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    columns = ", ".join(f'"{name}"' for name in chosen)
    keep = "WHERE id LIKE '%gone'" if table in ("pools", "nodes") else ""
    return (
        f"INSERT INTO {table} ({columns}) SELECT {', '.join(chosen.values())} "
        f"FROM {table}, generate_series(1, :count) n {keep}"
    )


@contextmanager
def caught(engine: Engine) -> Iterator[list[tuple[str, Any]]]:
    statements: list[tuple[str, Any]] = []

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, *rest: Any) -> None:
        if re.match(r"SELECT.*FROM", statement, re.DOTALL):
            statements.append((statement, parameters))

    sqlalchemy_event.listen(engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        sqlalchemy_event.remove(engine, "before_cursor_execute", note)


def looked_at(engine: Engine, statement: str, parameters: Any) -> int:
    """How many rows the scans of a statement looked at."""

    def count(plan: dict[str, Any]) -> int:
        mine = 0
        if "Relation Name" in plan or "Index Name" in plan:
            rows = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
            rows += plan.get("Rows Removed by Index Recheck", 0)
            mine = int(rows * plan["Actual Loops"])
        return mine + sum(count(one) for one in plan.get("Plans", ()))

    with engine.connect() as connection:
        found = connection.exec_driver_sql(
            f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters
        ).scalar_one()
        return count(found[0]["Plan"])


def listings() -> dict[str, tuple[Any, str]]:
    rows = [row for module in (catalogue, pools, accounts, jobs) for row in module.TABLE.rows]
    return {row.path: row for row in rows if row.listing is not None}  # type: ignore[misc]


def page(path: str, **query: str) -> Page:
    row: Any = listings()[path]
    found = read(row.listing, query, "tenant", True).page
    where = [replace(one, field="queue_id") if one.field == "queue" else one for one in found.where]
    return replace(found, where=tuple(where))


Ask = Callable[[Any, Any], Any]
ASKED: dict[str, Ask] = {
    "GET /jobs": lambda s, d: s.jobs.page(ADA, page("/jobs"), False),
    "GET /jobs, newest": lambda s, d: s.jobs.page(
        ADA, page("/jobs", sort="created_at:desc"), False
    ),
    "GET /jobs, all projects": lambda s, d: s.jobs.page(
        ROOT, page("/jobs", all_projects="true"), False
    ),
    "GET /jobs, running": lambda s, d: s.jobs.page(ADA, page("/jobs", status="running"), False),
    "GET /jobs, by name": lambda s, d: s.jobs.page(ADA, page("/jobs", name="other"), False),
    "GET /jobs/{id}": lambda s, d: s.jobs.show(ADA, "j-old"),
    "GET /jobs/{id}/attempts": lambda s, d: s.job_reads.attempts(
        ADA, "j-old", page("/jobs/<id>/attempts"), True
    ),
    "GET /jobs/{id}/artifacts": lambda s, d: s.job_reads.artifacts(
        ADA, "j-old", page("/jobs/<id>/artifacts"), True
    ),
    "GET /jobs/{id}/elements": lambda s, d: s.job_reads.elements(ADA, "j-old", 100, None),
    "GET /jobs/{id}/explain": lambda s, d: s.job_reads.explain(ADA, "j-old"),
    "GET /jobs/{id}/events": lambda s, d: s.events.page(
        ADA, replace(page("/events"), where=(Where("target_id", "eq", "j-old"),)), False
    ),
    "GET /events": lambda s, d: s.events.page(ADA, page("/events"), False),
    "GET /events, all projects": lambda s, d: s.events.page(
        ROOT, page("/events", all_projects="true"), False
    ),
    "GET /nodes": lambda s, d: s.nodes.page(ADA, page("/nodes"), True),
    "GET /pools": lambda s, d: s.pools.page(ADA, page("/pools"), True),
    "GET /pools/{id}": lambda s, d: s.pools.show(ADA, "p-here"),
    "GET /pools/{id}/explain": lambda s, d: s.pools.explain(ADA, "p-here"),
    "GET /queues": lambda s, d: s.queues.page(ADA, page("/queues"), True),
    "GET /queues/{id}": lambda s, d: s.queues.show(ADA, "q"),
    "GET /flavors": lambda s, d: s.flavors.page(ADA, page("/flavors"), True),
    "GET /hosts": lambda s, d: s.hosts.page(ROOT, page("/hosts"), True),
    "GET /quotas": lambda s, d: s.quotas.page(100, None),
    "GET /quotas/{id}": lambda s, d: s.quotas.show("tenant"),
    "GET /limits": lambda s, d: s.quotas.own(ADA),
    "recount": lambda s, d: d.store.read(lambda uow: uow.quotas.recount()),
    "scheduler: waiting": lambda s, d: d.store.read(lambda uow: uow.scheduling.waiting()),
    "scheduler: live tasks": lambda s, d: d.store.read(lambda uow: uow.scheduling.live_tasks()),
    "scheduler: marks": lambda s, d: d.store.read(lambda uow: uow.scheduling.marks()),
    "conductor: line": lambda s, d: Line(d).step(),
    "conductor: pools": lambda s, d: Pools(d).step(),
    "conductor: nodes": lambda s, d: Nodes(d).step(),
    "conductor: leases": lambda s, d: Leases(d).step(),
    "conductor: drains": lambda s, d: Drains(d).step(),
    "conductor: places": lambda s, d: d.store.read(
        lambda uow: Placing._choose(uow, node("p-here", status="requested"))
    ),
    "deleting a queue": lambda s, d: d.store.read(
        lambda uow: uow.jobs.count(Where("queue_id", "eq", "q"), Where("open", "eq", 1))
    ),
}


@pytest.mark.parametrize("name", ASKED)
def test_history_is_left_alone(full: tuple[Engine, DatabaseStore] | None, name: str) -> None:
    if full is None:
        return
    engine, store = full
    conf = cfg.ConfigOpts()
    opts.register_all(conf)
    conf([], project="gpuservice", default_config_files=[], default_config_dirs=[])
    nothing: Any = None
    hints: Any = NoHints()
    services = build(
        Deps(store, hints, SystemClock(), RandomIds(), conf, nothing, nothing, nothing)
    )
    deps = ConductorDeps(
        store, hints, SystemClock(), RandomIds(), conf, nothing, nothing, nothing, "test"
    )
    with caught(engine) as statements:
        ASKED[name](services, deps)
    assert statements
    for statement, parameters in statements:
        assert looked_at(engine, statement, parameters) <= BOUND, statement
