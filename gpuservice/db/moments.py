# SPDX-License-Identifier: Apache-2.0
"""The database's own time, as a part of any statement."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from gpuservice.db.types import UtcDateTime


class DatabaseTime(FunctionElement[Any]):
    """The moment at which it is read, not that at which the transaction began. The embedded
    database has none (null): there the process's clock is the only one."""

    inherit_cache = True
    type = UtcDateTime()


@compiles(DatabaseTime)
def _none(element: DatabaseTime, compiler: Any, **_: Any) -> str:
    return "NULL"


@compiles(DatabaseTime, "postgresql")
def _postgresql(element: DatabaseTime, compiler: Any, **_: Any) -> str:
    return "(clock_timestamp() AT TIME ZONE 'utc')"


@compiles(DatabaseTime, "mysql", "mariadb")
def _mysql(element: DatabaseTime, compiler: Any, **_: Any) -> str:
    return "UTC_TIMESTAMP(6)"


MOMENT = select(DatabaseTime())
