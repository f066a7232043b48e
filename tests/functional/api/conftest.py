# SPDX-License-Identifier: Apache-2.0
"""``world``: the API on a fresh SQLite database; ``cluster``: with two ready nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from api_world import Client, Cluster, World
from fake_node import FakeNode, place, ready
from valid_bodies import ids_of

from gpuservice.db.engine import create_engine
from gpuservice.db.tables import METADATA


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database file with every table and no row, to be copied."""
    path = tmp_path_factory.mktemp("template") / "empty.db"
    engine = create_engine(f"sqlite:///{path}")
    METADATA.create_all(engine)
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    engine.dispose()
    return path


@pytest.fixture
def world(tmp_path: Path, empty_database: Path) -> Iterator[World]:
    """The API on its own database; the quota ledger must be exact in the end."""
    world = World(tmp_path, empty_database)
    yield world
    assert world.recount() == []
    world.engine.dispose()


@pytest.fixture
def cluster(world: World) -> Cluster:
    """Two nodes of four GPUs, and the queue ``default``."""
    return world.seed()


@pytest.fixture
def admin(world: World) -> Client:
    """The operator."""
    return world.admin


@pytest.fixture
def ada(world: World) -> Client:
    """A member of the project ``vision``."""
    return world.client("vision")


@pytest.fixture
def target(cluster: Cluster, admin: Client, ada: Client) -> dict[str, str]:
    """Ids of existing objects by noun."""
    cohort = admin.post("/cohorts", {"cohort": {"name": "some"}}).get_json()["cohort"]
    job = ada.post("/jobs", {"job": {"name": "a", "command": ["true"]}}).get_json()["job"]
    asked = admin.post("/simulations", {"simulation": {"name": "s"}}).get_json()["simulation"]
    return ids_of(cluster, jobs=job["id"], cohorts=cohort["id"], simulations=asked["id"])


@pytest.fixture
def node(world: World, cluster: Cluster) -> FakeNode:
    """The agent of the first node, ready for work."""
    return ready(world, cluster.nodes[0])


@pytest.fixture
def job_id(world: World, cluster: Cluster, ada: Client, node: FakeNode) -> str:
    """A job of ada's with a checkpoint, placed on the first node."""
    checkpoint = {"path": "ckpt/", "interval_s": 60, "ranks": "first"}
    body = {"name": "train", "script": "#!/bin/sh\ntrue\n", "checkpoint": checkpoint}
    ident: str = ada.post("/jobs", {"job": body}).get_json()["job"]["id"]
    place(world, cluster, ident, cluster.nodes[:1])
    return ident


@pytest.fixture
def task_id(node: FakeNode, job_id: str) -> str:
    """The job's only task, which the node was ordered to run."""
    (order,) = node.orders()
    return str(order["task_id"])
