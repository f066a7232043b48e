# SPDX-License-Identifier: Apache-2.0
"""Small pieces of SQL that several repositories share: conditions, values, insert-or-ignore."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Insert,
    Select,
    Table,
    and_,
    bindparam,
    select,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite

from gpuservice.domain.errors import Invalid
from gpuservice.domain.ports_store import Delta, Where

K = TypeVar("K")
V = TypeVar("V")


def _or_null(column: Any, differs: ColumnElement[bool]) -> ColumnElement[bool]:
    """Null differs from every value; columns that cannot be null keep the plain condition."""
    return differs | column.is_(None) if column.nullable else differs


def _listed(value: Any) -> Any:
    """A parameter stays one: its values come with each execution."""
    return value if isinstance(value, BindParameter) else list(value)


_OPS: dict[str, Callable[[Any, Any], ColumnElement[bool]]] = {
    "eq": lambda column, value: column == value,
    "ne": lambda column, value: _or_null(column, column != value),
    "in": lambda column, value: column.in_(_listed(value)),
    "notin": lambda column, value: _or_null(column, column.not_in(_listed(value))),
    "lt": lambda column, value: column < value,
    "le": lambda column, value: column <= value,
    "gt": lambda column, value: column > value,
    "ge": lambda column, value: column >= value,
    "null": lambda column, value: column.is_(None),
    "due": lambda column, value: column.is_(None) | (column <= value),
    "notnull": lambda column, value: column.is_not(None),
}


def condition(table: Table, where: Where) -> ColumnElement[bool]:
    """The SQL of one condition."""
    column = table.c.get(where.field)
    if column is None:
        raise Invalid(f"{where.field!r} is not a field of {table.name}.")
    return _OPS[where.op](column, where.value)


def conditions(table: Table, where: Iterable[Where]) -> ColumnElement[bool]:
    """All conditions together (true when there are none)."""
    return and_(True, *(condition(table, one) for one in where))


def assigned(table: Table, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values for an UPDATE, :class:`Delta` turned into column arithmetic."""
    return {
        name: table.c[name] + value.amount if isinstance(value, Delta) else value
        for name, value in values.items()
    }


def insert_ignoring(connection: Connection, table: Table) -> Insert:
    """An INSERT that does nothing when the key exists."""
    name = connection.dialect.name
    if name == "postgresql":
        return postgresql.insert(table).on_conflict_do_nothing()
    if name == "sqlite":
        return sqlite.insert(table).on_conflict_do_nothing()
    return mysql.insert(table).prefix_with("IGNORE")


def grouped(pairs: Iterable[tuple[K, V]]) -> Iterator[tuple[V, list[K]]]:
    """Keys by equal value, in a stable order: one set-wise statement per group."""
    groups: dict[V, list[K]] = {}
    for key, value in pairs:
        groups.setdefault(value, []).append(key)
    for value, keys in groups.items():
        yield value, sorted(keys)  # type: ignore[type-var]


def chunks(items: Sequence[K], size: int = 500) -> Iterator[Sequence[K]]:
    """Slices short enough for one statement on every database."""
    for at in range(0, len(items), size):
        yield items[at : at + size]


def lock_rows(connection: Connection, table: Table, ids: Iterable[str]) -> None:
    """Lock rows that are about to be updated, by id and in that order, for the transaction.

    A single row is left to its update. SQLite has no row locks and needs none: a writing
    transaction has the whole file.
    """
    wanted = sorted(set(ids))
    if len(wanted) == 1 or connection.dialect.name == "sqlite":
        return
    for part in chunks(wanted):
        connection.execute(_locking(table), {"ids": part})


@cache
def _locking(table: Table) -> Select[Any]:
    """Built once: that costs more than to run it."""
    ident = table.c.id
    some = ident.in_(bindparam("ids", expanding=True))
    return select(ident).where(some).order_by(ident).with_for_update()
