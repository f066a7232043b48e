# SPDX-License-Identifier: Apache-2.0
"""What every source of limits does."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from oslo_config import cfg

from gpuservice.conf import quota
from gpuservice.db.engine import create_engine
from gpuservice.db.store import DatabaseStore
from gpuservice.db.tables import METADATA
from gpuservice.domain.ports import QuotaDriver
from gpuservice.drivers import loader


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return 0.0


class RandomIds:
    """Random UUIDs."""

    def new(self) -> str:
        return str(uuid.uuid4())

    def secret(self) -> str:
        return secrets.token_hex(32)


@pytest.fixture
def store(conf: cfg.ConfigOpts, tmp_path: Path) -> Iterator[DatabaseStore]:
    """A database whose defaults are 8 GPUs and no bound on the rest."""
    conf.set_override("default_gpus", 8, "quota")
    engine = create_engine(f"sqlite:///{tmp_path / 'quota.db'}")
    METADATA.create_all(engine)
    yield DatabaseStore(engine, SystemClock(), RandomIds(), quota.defaults(conf))
    engine.dispose()


@pytest.fixture(params=["database"])
def driver(request: pytest.FixtureRequest, conf: cfg.ConfigOpts) -> QuotaDriver:
    found: QuotaDriver = loader.load("quota", request.param, conf)
    return found


def test_limits_are_the_projects_own_or_the_defaults(
    store: DatabaseStore, driver: QuotaDriver
) -> None:
    store.write(lambda uow: uow.quotas.set_limits("mine", {"nodes": 3, "gpus": -1}))
    mine = store.read(lambda uow: driver.limits(uow, "mine"))
    assert (mine["gpus"], mine["nodes"], mine["pools"]) == (-1, 3, -1)
    other = store.read(lambda uow: driver.limits(uow, "other"))
    assert (other["gpus"], other["nodes"]) == (8000, -1)


def test_one_limit_is_as_in_all_of_them(store: DatabaseStore, driver: QuotaDriver) -> None:
    for name, limit in store.read(lambda uow: driver.limits(uow, "p")).items():
        assert store.read(lambda uow, one=name: driver.limit(uow, "p", one)) == limit  # type: ignore[misc]
    assert store.read(lambda uow: driver.limit(uow, "p", "gpus:unheard-of")) == -1
