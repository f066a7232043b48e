# SPDX-License-Identifier: Apache-2.0
"""Programs whose servers are away: at their start they wait, at their end they end all the same."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cluster import DATABASES, PLACES, RABBIT, Cluster, free_port, fresh_database
from dropping_proxy import DroppingProxy
from programs import until
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

pytestmark = pytest.mark.services


def _port(variable: str) -> int:
    port = make_url(os.environ[variable]).port
    assert port, f"{variable} names no port"
    return port


@pytest.fixture
def proxies() -> Iterator[dict[str, DroppingProxy]]:
    """What stands before RabbitMQ and PostgreSQL."""
    made = {
        "rabbitmq": DroppingProxy(_port(RABBIT)),
        "postgresql": DroppingProxy(_port(DATABASES["postgresql"])),
    }
    yield made
    for proxy in made.values():
        proxy.close()


def _behind(url: str, port: int) -> str:
    return make_url(url).set(port=port).render_as_string(hide_password=False)


@contextmanager
def _schema(port: int) -> Iterator[tuple[Cluster, Callable[[], int]]]:
    """A cluster, not started, whose programs find their database behind ``port``; and how many
    programs told the database that they live."""
    with (
        fresh_database("postgresql") as database,
        tempfile.TemporaryDirectory(prefix="gpuservice-", dir=PLACES) as place,
    ):
        cluster = Cluster(database, Path(place), hosts=1, gpus=1)
        cluster.upgrade()
        cluster.store.engine.dispose()
        for config in cluster.configs:
            config.write_text(config.read_text().replace(database, _behind(database, port)))
        witness = create_engine(database)

        def beats() -> int:
            with witness.connect() as connection:
                return connection.execute(text("SELECT count(*) FROM services")).scalar_one()

        yield cluster, beats
        for program in cluster.programs:
            program.end()
        witness.dispose()


@pytest.mark.parametrize("lost", [("rabbitmq",), ("postgresql",), ("rabbitmq", "postgresql")])
def test_they_end_well(
    lost: tuple[str, ...], proxies: dict[str, DroppingProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RABBIT, _behind(os.environ[RABBIT], proxies["rabbitmq"].port))
    with _schema(proxies["postgresql"].port) as (cluster, beats):
        programs = [cluster.of_kind(kind)[0] for kind in ("api", "conductor", "scheduler")]
        for program in programs:
            program.start()
        until(lambda: beats() == len(programs) and proxies["rabbitmq"].used, "the programs")
        for name in lost:
            proxies[name].cut()
        for program in programs:
            program.send(signal.SIGTERM)
        for program in programs:
            assert program.end(None) == 0, program.log_text


def test_they_wait_for_their_database() -> None:
    port = free_port()
    with _schema(port) as (cluster, beats):
        programs = [cluster.of_kind(kind)[0] for kind in ("api", "conductor", "scheduler")]
        for program in programs:
            program.start()
        for program in programs:
            until(lambda one=program: "cannot be reached yet" in one.log_text, "its word of it")
        proxy = DroppingProxy(_port(DATABASES["postgresql"]), port)
        until(lambda: beats() == len(programs), "the programs")
        for program in programs:
            assert program.end() == 0, program.log_text
        proxy.close()
