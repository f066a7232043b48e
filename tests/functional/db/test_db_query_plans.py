# SPDX-License-Identifier: Apache-2.0
"""What is asked all the time goes by an index: its cost does not grow with history.

The statements are caught on their way to the database, which then explains them. PostgreSQL is
told to avoid sequential scans, so that one shows up only where no index would do. MariaDB decides
by the number of rows, which are few here; its indexes are the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from database_rows import THEN, job, new_id
from sqlalchemy import Engine, event

from gpuservice.db.store import DatabaseStore
from gpuservice.domain.ports_store import Page, TaskEnd, UnitOfWork, Where

#: Tables that keep history.
GROWING = {
    "allocations", "artifacts", "attempts", "checkpoints", "events", "explanations",
    "idempotency_keys", "job_elements", "job_labels", "jobs", "nodes", "port_leases", "tasks",
}  # fmt: skip

PROJECT = Where("project_id", "eq", "tenant")
NEWEST = (("created_at", "desc"),)
LIVE = Where("live", "eq", 1)

HOT: dict[str, Callable[[UnitOfWork], Any]] = {
    "jobs of a project": lambda uow: uow.jobs.page(Page((PROJECT,))),
    "newest jobs": lambda uow: uow.jobs.page(Page((PROJECT,), NEWEST)),
    "running jobs": lambda uow: uow.jobs.page(
        Page((PROJECT, Where("status", "eq", "running")), NEWEST)
    ),
    "jobs of every project": lambda uow: uow.jobs.page(Page((), NEWEST)),
    "jobs of a queue": lambda uow: uow.jobs.find(
        Where("queue_id", "eq", "q"), Where("open", "eq", 1)
    ),
    "a job": lambda uow: uow.jobs.get(new_id()),
    "waiting jobs": lambda uow: uow.scheduling.waiting(),
    "jobs past their deadline": lambda uow: uow.jobs.find(
        Where("open", "eq", 1), Where("deadline_at", "le", THEN), limit=100
    ),
    "live tasks": lambda uow: uow.scheduling.live_tasks(),
    "live gangs": lambda uow: uow.scheduling.live_gangs(),
    "marks": lambda uow: uow.scheduling.marks(),
    "notes of waiting jobs": lambda uow: uow.scheduling.notes(),
    "preempted elements": lambda uow: uow.scheduling.most_preempted(),
    "shares to fold": lambda uow: uow.usage.ended_shares((THEN, ""), THEN, 100),
    "runs to fold": lambda uow: uow.usage.ended_runs((THEN, ""), THEN, 100),
    "usage": lambda uow: uow.usage.usage(THEN),
    "elements": lambda uow: uow.elements.of_job(new_id(), after=3, limit=10),
    "elements by key": lambda uow: uow.elements.of_keys([(new_id(), 0), (new_id(), 1)]),
    "suspended elements": lambda uow: uow.elements.held(),
    "elements backing off": lambda uow: uow.elements.backing_off(THEN),
    "attempts to look at": lambda uow: uow.attempts.find(
        LIVE, Where("attention", "eq", True), limit=200
    ),
    "attempts that are due": lambda uow: uow.attempts.find(
        LIVE, Where("due_at", "le", THEN), limit=200
    ),
    "attempts of a job": lambda uow: uow.attempts.find(Where("job_id", "eq", new_id())),
    "attempts of a job by page": lambda uow: uow.attempts.page(
        Page((Where("job_id", "eq", new_id()),), (("index", "desc"), ("number", "desc")))
    ),
    "artifacts of a job by page": lambda uow: uow.artifacts.page(
        Page(
            (Where("job_id", "eq", new_id()),),
            (("index", "asc"), ("attempt", "asc"), ("rank", "asc"), ("path", "asc")),
        )
    ),
    "jobs of a name": lambda uow: uow.jobs.find(PROJECT, Where("name", "eq", "n")),
    "live attempt": lambda uow: uow.attempts.find(Where("job_id", "eq", new_id()), LIVE),
    "tasks of a node": lambda uow: uow.tasks.of_node(new_id()),
    "tasks of attempts": lambda uow: uow.tasks.of_attempts([new_id(), new_id()]),
    "end of tasks": lambda uow: uow.tasks.gone([TaskEnd(new_id())], THEN),
    "node of a secret": lambda uow: uow.nodes.by_secret("0" * 64),
    "nodes of a pool": lambda uow: uow.nodes.find(Where("pool_id", "eq", "p")),
    "events of a project": lambda uow: uow.events.page(Page((PROJECT,))),
    "events of a job": lambda uow: uow.events.page(
        Page((Where("target_id", "eq", new_id()),), (("seq", "desc"),))
    ),
    "artifacts of a job": lambda uow: uow.artifacts.find(Where("job_id", "eq", new_id())),
    "checkpoints of a job": lambda uow: uow.checkpoints.find(
        Where("job_id", "eq", new_id()), Where("index", "eq", 0)
    ),
    "explanation": lambda uow: uow.explanation(new_id()),
    "ports": lambda uow: uow.release_ports([new_id()]),
    "idempotency": lambda uow: uow.idempotency("p", "u", "/v1/jobs", "k"),
    "jobs by label": lambda uow: uow.jobs.page(Page((PROJECT,), labels={"team": "a"})),
}


@contextmanager
def caught(engine: Engine) -> Iterator[list[tuple[str, Any]]]:
    statements: list[tuple[str, Any]] = []

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, *rest: Any) -> None:
        if re.match(r"SELECT|UPDATE|DELETE", statement) and "FROM" in statement:
            statements.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        event.remove(engine, "before_cursor_execute", note)


def scanned(engine: Engine, statement: str, parameters: Any) -> set[str]:
    """The tables that the statement reads from end to end."""
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
            plan = "\n".join(row[-1] for row in rows)
            # In the order of an index and up to the limit is no scan of everything.
            return set(re.findall(r"SCAN (\w+)(?! USING)\b", plan))
        connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        rows = connection.exec_driver_sql(f"EXPLAIN {statement}", parameters).all()
        return set(re.findall(r"Seq Scan on (\w+)", "\n".join(row[0] for row in rows)))


@pytest.mark.parametrize("name", HOT)
def test_goes_by_an_index(store: DatabaseStore, engine: Engine, name: str) -> None:
    if engine.dialect.name == "mysql":
        return
    with caught(engine) as statements:
        store.write(HOT[name])

    assert statements
    for statement, parameters in statements:
        assert scanned(engine, statement, parameters) & GROWING == set(), statement


@pytest.mark.parametrize("way", ["asc", "desc"])
def test_a_page_enters_its_index_at_the_marker(
    store: DatabaseStore, engine: Engine, way: str
) -> None:
    marker = job()
    store.write(lambda uow: uow.jobs.add(marker))
    page = Page((PROJECT,), (("created_at", way),), 10, marker.id)
    with caught(engine) as statements:
        store.read(lambda uow: uow.jobs.page(page))

    statement, parameters = statements[-1]
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
            plan = "\n".join(str(row[-1]) for row in rows)
            assert re.search(
                r"ix_jobs_project_id_created_at_id \(project_id=\? AND created_at", plan
            )
            assert "TEMP B-TREE" not in plan
        elif engine.dialect.name == "postgresql":
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
            # Nor a sort, which is cheap while statistics say that the table is empty.
            connection.exec_driver_sql("SET LOCAL enable_sort = off")
            rows = connection.exec_driver_sql(f"EXPLAIN {statement}", parameters).all()
            plan = "\n".join(str(row[0]) for row in rows)
            assert re.search(r"Index Cond: .*created_at (>=|<=)", plan), plan
