# SPDX-License-Identifier: Apache-2.0
"""Units of work: whole or not at all, run again on conflicts, reads that see one moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest
from database_rows import RandomIds, SystemClock, event, host, job, submit
from oslo_db.exception import DBConnectionError, DBDeadlock
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from gpuservice.db import store as store_module
from gpuservice.db.engine import create_engine
from gpuservice.db.store import DatabaseStore, is_transient
from gpuservice.domain.errors import Busy
from gpuservice.domain.ports_store import UnitOfWork, Where


def counts(store: DatabaseStore) -> tuple[int, dict[str, int]]:
    return store.read(lambda uow: (uow.jobs.count(), uow.quotas.usage("tenant")))


def test_an_exception_leaves_nothing(store: DatabaseStore) -> None:
    def work(uow: UnitOfWork) -> None:
        submit(uow)
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        store.write(work)
    assert counts(store) == (0, {})


def test_reads_write_nothing(store: DatabaseStore) -> None:
    def work(uow: UnitOfWork) -> int:
        return uow.jobs.count()

    assert store.read(work) == 0
    store.write(submit)
    assert store.read(work) == 1


def test_runs_again_on_a_deadlock_with_one_effect(store: DatabaseStore) -> None:
    runs = []

    def work(uow: UnitOfWork) -> str:
        runs.append(1)
        made = submit(uow)
        if len(runs) < 4:
            raise DBDeadlock(RuntimeError("deadlock"))
        return made.id

    ident = store.write(work)

    assert len(runs) == 4
    assert counts(store) == (1, {"jobs:queued": 1})
    assert store.read(lambda uow: uow.jobs.get(ident)) is not None


def test_gives_up_after_five(store: DatabaseStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "PAUSE_S", 0)
    runs = []

    def work(uow: UnitOfWork) -> None:
        runs.append(1)
        submit(uow)
        raise DBDeadlock(RuntimeError("deadlock"))

    with pytest.raises(Busy) as refused:
        store.write(work)
    assert len(runs) == 5
    assert refused.value.meta["retry_after_s"] >= 1
    assert counts(store) == (0, {})


class _Serialization(Exception):
    pgcode = "40001"


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        (OperationalError("s", {}, _Serialization()), True),
        (OperationalError("s", {}, RuntimeError(1020, "Record has changed")), True),
        (OperationalError("s", {}, RuntimeError(1205, "Lock wait timeout")), True),
        (OperationalError("s", {}, RuntimeError(1213, "Deadlock")), True),
        (OperationalError("s", {}, RuntimeError("database is locked")), True),
        (OperationalError("s", {}, RuntimeError(1064, "syntax")), False),
        (DBDeadlock(RuntimeError()), True),
        (DBConnectionError(RuntimeError()), False),
        (KeyError("database"), False),
    ],
)
def test_what_is_worth_another_run(error: Exception, transient: bool) -> None:
    assert is_transient(error) is transient


def test_two_transactions_in_each_others_way(store: DatabaseStore) -> None:
    """Rows locked in opposite orders: a real deadlock where there are row locks."""
    one, two = host(state="a"), host(state="a")
    store.write(lambda uow: uow.hosts.add_many([one, two]))
    met = threading.Barrier(2)
    runs = {0: 0, 1: 0}

    def run(which: int) -> None:
        first, second = (one, two) if which else (two, one)

        def work(uow: UnitOfWork) -> None:
            runs[which] += 1
            uow.hosts.change(first.id, {"rack": f"{which}"})
            if runs[which] == 1 and store.engine.dialect.name != "sqlite":
                met.wait(10)
            uow.hosts.change(second.id, {"rack": f"{which}"})
            uow.events.add(event(first.id))

        store.write(work)

    threads = [threading.Thread(target=run, args=(which,)) for which in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    hosts = store.read(lambda uow: uow.hosts.find())
    assert len({one.rack for one in hosts}) == 1
    assert {one.version for one in hosts} == {3}
    if store.engine.dialect.name != "sqlite":
        assert sorted(runs.values()) == [1, 2]


def test_a_read_sees_one_moment(store: DatabaseStore) -> None:
    store.write(submit)

    def work(uow: UnitOfWork) -> tuple[int, int, int]:
        before = uow.jobs.count()
        store.write(submit)
        return before, uow.jobs.count(), uow.quotas.usage("tenant")["jobs:queued"]

    assert store.read(work) == (1, 1, 1)
    assert counts(store) == (2, {"jobs:queued": 2})


def test_a_write_sees_what_others_committed_meanwhile(store: DatabaseStore, engine: Engine) -> None:
    if engine.dialect.name == "sqlite":
        return  # nobody else writes meanwhile

    def work(uow: UnitOfWork) -> tuple[int, int]:
        before = uow.jobs.count()
        store.write(submit)
        return before, uow.jobs.count()

    assert store.write(work) == (0, 1)


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
from database_rows import RandomIds, SystemClock, submit
from gpuservice.db.engine import create_engine
from gpuservice.db.store import DatabaseStore

def work(uow):
    submit(uow)
    os.kill(os.getpid(), signal.SIGKILL)

DatabaseStore(create_engine(sys.argv[1]), SystemClock(), RandomIds()).write(work)
"""


def test_a_killed_process_leaves_nothing(store: DatabaseStore, engine: Engine) -> None:
    url = engine.url.render_as_string(hide_password=False)
    here = os.path.dirname(__file__)

    ended = subprocess.run([sys.executable, "-c", KILLED, url, here], check=False, timeout=60)

    assert ended.returncode == -signal.SIGKILL
    store.write(submit)
    assert counts(store) == (1, {"jobs:queued": 1})


OTHERS = {
    "postgresql": "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()",
    "mysql": "SELECT CONCAT('KILL ', id) FROM information_schema.processlist"
    " WHERE db = DATABASE() AND id <> CONNECTION_ID()",
}


def test_broken_connections_are_replaced(store: DatabaseStore, engine: Engine) -> None:
    if engine.dialect.name == "sqlite":
        return  # there are none
    assert counts(store) == (0, {})
    own = create_engine(engine.url.render_as_string(hide_password=False))
    with own.begin() as connection:
        for row in connection.exec_driver_sql(OTHERS[engine.dialect.name]).all():
            if engine.dialect.name == "mysql":
                connection.exec_driver_sql(row[0])
    own.dispose()

    store.write(submit)
    assert counts(store) == (1, {"jobs:queued": 1})


def test_a_database_that_is_away(engine: Engine) -> None:
    if engine.dialect.name == "sqlite":
        return  # a file is there or the program does not start
    url = engine.url.set(host="127.0.0.1", port=1, query={})
    away = DatabaseStore(create_engine(str(url)), SystemClock(), RandomIds())

    for use in (away.read, away.write):
        with pytest.raises(Busy):
            use(lambda uow: uow.jobs.count())


def test_skip_locked(store: DatabaseStore, engine: Engine) -> None:
    if engine.dialect.name == "sqlite":
        return  # the whole file is locked
    rows = [job(), job()]
    store.write(lambda uow: uow.jobs.add_many(rows))
    ids = [row.id for row in rows]

    def work(uow: UnitOfWork) -> list[str]:
        uow.jobs.get(ids[0], lock=True)
        free = store.write(lambda other: other.jobs.get_many(ids, lock=True, skip_locked=True))
        found = store.write(
            lambda other: other.jobs.find(Where("id", "in", ids), lock=True, skip_locked=True)
        )
        assert found == free
        return [one.id for one in free]

    assert store.write(work) == [ids[1]]
