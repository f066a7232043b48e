# SPDX-License-Identifier: Apache-2.0
"""Column types that give the same Python values on every database."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import DateTime, Dialect, String, Text
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeDecorator, TypeEngine

#: Names and ids compare byte by byte everywhere (MariaDB's default would fold case).
BINARY_COLLATION = "utf8mb4_bin"


class UtcDateTime(TypeDecorator[datetime]):
    """Aware UTC datetimes with microseconds, stored as naive UTC."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """MariaDB needs the six digits asked for."""
        if dialect.name in ("mysql", "mariadb"):
            return dialect.type_descriptor(mysql.DATETIME(fsp=6))
        return dialect.type_descriptor(DateTime())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Naive UTC for the database; a naive value is a programming error."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"naive datetime {value!r}: times are aware UTC")
        return value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Aware UTC for Python."""
        return None if value is None else value.replace(tzinfo=UTC)


class Json(TypeDecorator[Any]):
    """JSON kept as text: the same on each database, and never rewritten by it."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """MariaDB's TEXT ends at 64 KiB."""
        if dialect.name in ("mysql", "mariadb"):
            return dialect.type_descriptor(mysql.MEDIUMTEXT())
        return dialect.type_descriptor(Text())

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """Compact JSON."""
        if value is None:
            return None
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """The value again."""
        return None if value is None else json.loads(value)


class JsonTuple(Json):
    """A JSON list that is a tuple in Python (the rows are frozen)."""

    cache_ok = True

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """A tuple, empty for null."""
        return () if value is None else tuple(json.loads(value))


def exact_string(length: int) -> String:
    """A string compared byte by byte."""
    return String(length).with_variant(
        mysql.VARCHAR(length, collation=BINARY_COLLATION), "mysql", "mariadb"
    )
