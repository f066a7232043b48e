# SPDX-License-Identifier: Apache-2.0
"""The migrations make exactly the tables that the code works with, up and down."""

from __future__ import annotations

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, inspect, text

from gpuservice.db import migrations
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
