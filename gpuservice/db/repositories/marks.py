# SPDX-License-Identifier: Apache-2.0
"""One statement that tells which of the scheduler's rows have changed."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    Integer,
    Select,
    String,
    Table,
    cast,
    func,
    literal_column,
    null,
    select,
    union_all,
)

from gpuservice.db.moments import DatabaseTime
from gpuservice.db.tables import (
    ATTEMPTS,
    DEVICES,
    FLAVORS,
    GPU_TYPES,
    HOSTS,
    JOBS,
    NODES,
    POOLS,
    QUEUES,
    QUOTA_LIMITS,
    QUOTA_USAGE,
    TASKS,
)
from gpuservice.db.types import UtcDateTime
from gpuservice.domain.pools import IN_SIZE
from gpuservice.domain.ports_scheduling import Marks
from gpuservice.domain.states import POOL_COUNTED, TaskStatus

_GROUND, _NODE, _GANG, _WAITING, _USE, _LIMIT, _CLOCK = range(7)


def _marks(
    kind: int, ident: Any, *numbers: Any, name: Any = None, latest: Any = None
) -> Select[Any]:
    full = [*numbers, *[literal_column("0", Integer)] * (3 - len(numbers))]
    return select(
        literal_column(str(kind), Integer).label("kind"),
        ident.label("ident"),
        *(number.label(f"n{at}") for at, number in enumerate(full)),
        (cast(null(), String(128)) if name is None else name).label("name"),
        (cast(null(), UtcDateTime()) if latest is None else latest).label("latest"),
    )


def _ground(table: Table) -> Select[Any]:
    """Count and sum of versions see each change and removal, the latest row what came instead."""
    changes = cast(func.coalesce(func.sum(table.c.version), 0), BigInteger)
    return _marks(
        _GROUND,
        literal_column(f"'{table.name}'", String),
        func.count(),
        changes,
        latest=func.max(table.c.created_at, type_=UtcDateTime()),
    )


#: The deleted ones stay as history. A pool comes only by being created, which the latest tells.
_POOLS = _ground(POOLS).where(
    POOLS.c.status.in_([literal_column(f"'{status}'") for status in sorted(POOL_COUNTED)])
)
_NODES = _marks(_NODE, NODES.c.id, NODES.c.version, NODES.c.revision).where(
    NODES.c.status.in_([literal_column(f"'{status}'") for status in sorted(IN_SIZE)])
)
#: Looked up by key for each live attempt: a join may choose to read the whole history.
_JOB_VERSION = (
    select(JOBS.c.version).where(JOBS.c.id == ATTEMPTS.c.job_id).correlate(ATTEMPTS)
).scalar_subquery()
_TASKS_LEFT = (
    select(func.count())
    .select_from(TASKS)
    .where(
        TASKS.c.attempt_id == ATTEMPTS.c.id,
        TASKS.c.status != literal_column(f"'{TaskStatus.GONE}'"),
    )
    .correlate(ATTEMPTS)
).scalar_subquery()
_GANGS = _marks(_GANG, ATTEMPTS.c.id, ATTEMPTS.c.version, _JOB_VERSION, _TASKS_LEFT).where(
    ATTEMPTS.c.live == literal_column("1")
)
_JOBS = _marks(_WAITING, JOBS.c.id, JOBS.c.version).where(
    JOBS.c.open == literal_column("1"), JOBS.c.waiting_elements > literal_column("0")
)
_USES = _marks(_USE, QUOTA_USAGE.c.project_id, QUOTA_USAGE.c.in_use, name=QUOTA_USAGE.c.name)
_LIMITS = _marks(_LIMIT, QUOTA_LIMITS.c.project_id, QUOTA_LIMITS.c.value, name=QUOTA_LIMITS.c.name)
_TIME = _marks(_CLOCK, literal_column("''", String), latest=DatabaseTime())
_ALL = union_all(
    _POOLS,
    _TIME,
    *(_ground(table) for table in (FLAVORS, GPU_TYPES, HOSTS, QUEUES, DEVICES)),
    _NODES,
    _GANGS,
    _JOBS,
    _USES,
    _LIMITS,
)


_QUOTA = union_all(_USES, _LIMITS)

Quota = dict[tuple[str, str], tuple[int | None, int]]


def read(connection: Connection) -> tuple[Marks, datetime | None]:
    """The marks of this moment, and which one it is by the database's time (if it has one)."""
    marks, moment = Marks(), None
    use: dict[tuple[str, str], int] = {}
    limits: dict[tuple[str, str], int] = {}
    for kind, ident, first, second, third, name, latest in connection.execute(_ALL):
        if kind == _WAITING:
            marks.waiting[ident] = first
        elif kind == _GANG:
            marks.gangs[ident] = (first, second, third)
        elif kind == _NODE:
            marks.nodes[ident] = (first, second)
        elif kind == _USE:
            use[ident, name] = first
        elif kind == _LIMIT:
            limits[ident, name] = first
        elif kind == _CLOCK:
            moment = latest
        else:
            marks.ground[ident] = (first, second, latest)
    marks.quota.update(_quota(use, limits))
    return marks, moment


def read_quota(connection: Connection) -> Quota:
    """The marks of quota alone."""
    found: dict[int, dict[tuple[str, str], int]] = {_USE: {}, _LIMIT: {}}
    for kind, project, value, _, _, name, _ in connection.execute(_QUOTA):
        found[kind][project, name] = value
    return _quota(found[_USE], found[_LIMIT])


def _quota(use: dict[tuple[str, str], int], limits: dict[tuple[str, str], int]) -> Quota:
    return {key: (limits.get(key), use.get(key, 0)) for key in {*use, *limits}}
