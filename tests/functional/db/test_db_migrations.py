# SPDX-License-Identifier: Apache-2.0
"""The migrations make exactly the tables that the code works with, up and down."""

from __future__ import annotations

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from database_rows import RandomIds, SystemClock
from oslo_db.exception import DBReferenceError
from sqlalchemy import Connection, Engine, inspect, text

from gpuservice.db import migrations
from gpuservice.db.store import DatabaseStore
from gpuservice.db.tables import METADATA
from gpuservice.domain.errors import Misconfigured


def differences(engine: Engine) -> list[object]:
    with engine.connect() as connection:
        return list(compare_metadata(MigrationContext.configure(connection), METADATA))


def test_upgrade_gives_the_tables_of_the_code(empty_engine: Engine) -> None:
    assert migrations.version(empty_engine) is None

    migrations.upgrade(empty_engine)

    assert migrations.version(empty_engine) == migrations.newest()
    assert differences(empty_engine) == []


def test_downgrade_leaves_nothing_and_upgrade_works_again(empty_engine: Engine) -> None:
    migrations.upgrade(empty_engine)

    migrations.downgrade(empty_engine, "base")

    assert inspect(empty_engine).get_table_names() == ["alembic_version"]
    assert migrations.version(empty_engine) is None
    migrations.upgrade(empty_engine)
    assert differences(empty_engine) == []


def test_upgrade_of_a_current_schema_changes_nothing(empty_engine: Engine) -> None:
    migrations.upgrade(empty_engine)
    migrations.upgrade(empty_engine)

    assert migrations.version(empty_engine) == migrations.newest()


def test_checks_and_unique_keys_stand_in_the_schema(engine: Engine) -> None:
    found = inspect(engine)

    checks = {str(one["name"]) for one in found.get_check_constraints("devices")}
    assert any("used_milli" in name for name in checks)
    uniques = {str(one["name"]) for one in found.get_unique_constraints("attempts")}
    indexes = {str(one["name"]) for one in found.get_indexes("attempts")}
    assert {"uq_attempts_live", "uq_attempts_number"} <= uniques | indexes


def test_a_schema_of_a_newer_release_is_refused_in_words(empty_engine: Engine) -> None:
    migrations.upgrade(empty_engine)
    with empty_engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(Misconfigured, match="at version 9999, which this release does not know"):
        migrations.upgrade(empty_engine)


def test_cohorts_that_queues_named_become_rows(empty_engine: Engine) -> None:
    """What stood in the database of the release before keeps its meaning."""
    migrations.upgrade(empty_engine, "0003")
    with empty_engine.begin() as connection:
        for number, cohort in enumerate(("red", "red", "blue", None)):
            old_row(
                connection, "queues", id=f"q{number}", name=f"q{number}", projects="[]",
                pool_ids="[]", status="open", weight=1, cohort=cohort, nominal="{}",
                borrowing_limit="{}", lending_limit="{}", preemption="none", max_priority=500,
                kinds="{}", placement="pack", name_key=f"*/q{number}",
            )  # fmt: skip

    migrations.upgrade(empty_engine)

    store = DatabaseStore(empty_engine, SystemClock(), RandomIds(), {})
    cohorts, queues = store.read(
        lambda uow: (uow.cohorts.find(order=(("name", "asc"),)), uow.queues.find())
    )
    assert [(one.name, one.projects) for one in cohorts] == [("blue", ("*",)), ("red", ("*",))]
    assert sorted(str(one.cohort) for one in queues) == ["None", "blue", "red", "red"]
    with pytest.raises(DBReferenceError):
        store.write(lambda uow: uow.queues.change("q3", {"cohort": "green"}))
    with pytest.raises(DBReferenceError):
        store.write(lambda uow: uow.cohorts.remove(cohorts[0].id))
    store.write(lambda uow: uow.cohorts.change(cohorts[0].id, {"name": "navy"}))
    renamed = store.read(lambda uow: uow.queues.get("q2"))
    assert renamed is not None and renamed.cohort == "navy"


def old_row(connection: Connection, table: str, **values: object) -> None:
    """Insert a row as the release before did."""
    row = {
        "created_at": "2026-01-01 00:00:00.000000", "updated_at": "2026-01-01 00:00:00.000000",
        "generation": 1, "version": 1, **values,
    }  # fmt: skip
    names = ", ".join(row)
    places = ", ".join(f":{name}" for name in row)
    connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({places})"), row)
