# SPDX-License-Identifier: Apache-2.0
"""What every repository can do, for any noun with an ``id``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar

from oslo_db.exception import DBDuplicateEntry
from sqlalchemy import Connection, Integer, Select, Table, delete, func, select, update

from gpuservice.db.mapping import Mapper
from gpuservice.db.prepared import row
from gpuservice.db.statements import assigned, chunks, condition, conditions
from gpuservice.domain.errors import Invalid, NameTaken
from gpuservice.domain.ports_store import Delta, Lock, Page, Where

T = TypeVar("T")

#: Sort keys after which nothing is left to order.
_UNIQUE = frozenset({"id", "seq"})


class TableRepository(Generic[T]):
    """Rows of one table. ``stamp`` gives the time of ``updated_at``."""

    mapper: Mapper[T]

    def __init__(self, connection: Connection, mapper: Mapper[T], stamp: Any) -> None:
        self._c = connection
        self.mapper = mapper
        self.table: Table = mapper.table
        self._stamp = stamp
        # A process's "version" is a text; where it is a number it counts the row's changes.
        self._versioned = isinstance(getattr(self.table.c.get("version"), "type", None), Integer)
        self._dated = "updated_at" in mapper.fields

    # -- reading ---------------------------------------------------------------------------
    def get(self, ident: str, *, lock: bool = False) -> T | None:
        """The row, or None."""
        found = self.find(Where("id", "eq", ident), lock=lock)
        return found[0] if found else None

    def get_many(
        self, idents: Iterable[str], *, lock: bool = False, skip_locked: bool = False
    ) -> list[T]:
        """The rows that exist, ordered by id."""
        wanted = sorted(set(idents))
        found: list[T] = []
        for part in chunks(wanted):
            found.extend(
                self.find(
                    Where("id", "in", part),
                    lock=lock,
                    skip_locked=skip_locked,
                    order=(("id", "asc"),),
                )
            )
        return found

    def find(
        self,
        *where: Where,
        limit: int | None = None,
        lock: Lock = False,
        skip_locked: bool = False,
        order: Sequence[tuple[str, str]] = (),
    ) -> list[T]:
        """All rows that meet every condition."""
        statement, values = self.mapper.prepared.select(where, order, limit, lock, skip_locked)
        load = self.mapper.load
        return [load(row) for row in self._c.execute(statement, values)]

    def page(self, page: Page) -> list[T]:
        """One page after the marker, by the sort keys and then the id."""
        query = self._filtered(self._select(), page.where, page.labels)
        keys = [*page.sort]
        if not any(key in _UNIQUE for key, _ in keys):
            # In the direction of the last key: one index serves the whole order.
            keys.append(("id", keys[-1][1] if keys else "asc"))
        if page.marker is not None:
            query = query.where(self._after(page, keys))
        for key, way in keys:
            column = self.table.c[key]
            # Nulls last, whatever the database's own habit.
            if column.nullable:
                query = query.order_by(column.is_(None))
            query = query.order_by(column.desc() if way == "desc" else column.asc())
        return self._load(query.limit(page.limit))

    def count(self, *where: Where, labels: Mapping[str, str] | None = None) -> int:
        """How many rows meet every condition."""
        query = self._filtered(select(func.count()).select_from(self.table), where, labels or {})
        return int(self._c.execute(query).scalar_one())

    # -- writing ---------------------------------------------------------------------------
    def add(self, item: T) -> None:
        """Insert one."""
        self.add_many([item])

    def add_many(self, items: Sequence[T]) -> None:
        """Insert all."""
        if not items:
            return
        try:
            self._c.execute(self.mapper.insertion, [self._dump(item) for item in items])
        except DBDuplicateEntry as error:
            name = getattr(items[0], "name", None)
            if name is None:
                raise
            raise NameTaken(f"The name {name!r} is in use.", pointer="name") from error

    def change(
        self, ident: str, values: Mapping[str, Any], *where: Where, edit: bool = False
    ) -> bool:
        """Update one row if it meets ``where``."""
        values = dict(values)
        if edit and "generation" in self.table.c:
            values["generation"] = Delta(1)
        try:
            return self.change_many([ident], values, *where) == 1
        except DBDuplicateEntry as error:
            if "name" not in values:
                raise
            raise NameTaken(f"The name {values['name']!r} is in use.", pointer="name") from error

    def change_many(self, idents: Sequence[str], values: Mapping[str, Any], *where: Where) -> int:
        """The same values for many rows; how many matched."""
        full = self._stamped(values)
        wanted = sorted(set(idents))
        if len(wanted) == 1:
            statement = self.mapper.prepared.update(full, where)
            return self._c.execute(statement, row(wanted[0], full, where)).rowcount
        matched = 0
        for part in chunks(wanted):
            statement = update(self.table).where(self.table.c.id.in_(part))
            for one in where:
                statement = statement.where(condition(self.table, one))
            result = self._c.execute(statement.values(assigned(self.table, full)))
            matched += result.rowcount
        return matched

    def change_each(
        self,
        changes: Sequence[tuple[str, Mapping[str, Any]]],
        *where: Where,
        silent: bool = False,
        counted: bool = True,
    ) -> int:
        """Other values for each row; all mappings have the same keys."""
        if not changes:
            return 0
        stamped: Callable[[Mapping[str, Any]], Mapping[str, Any]]
        stamped = dict if silent else self._stamped
        statement = self.mapper.prepared.update(stamped(changes[0][1]), where)
        rows = [
            row(ident, stamped(values), where)
            for ident, values in sorted(changes, key=lambda change: change[0])
        ]
        if not (where and counted):
            self._c.execute(statement, rows)
            return len(rows)
        return sum(self._c.execute(statement, one).rowcount for one in rows)

    def remove(self, ident: str, *where: Where) -> bool:
        """Delete one row if it meets ``where``."""
        statement = delete(self.table).where(self.table.c.id == ident)
        for one in where:
            statement = statement.where(condition(self.table, one))
        return self._c.execute(statement).rowcount == 1

    def remove_where(self, *where: Where) -> int:
        """Delete every row that meets ``where`` (which must say something); how many."""
        if not where:
            raise ValueError("nothing says which rows are to go")
        return self._c.execute(delete(self.table).where(conditions(self.table, where))).rowcount

    # -- pieces ----------------------------------------------------------------------------
    def _select(self) -> Select[Any]:
        return self.mapper.selection

    def _load(self, query: Select[Any]) -> list[T]:
        load = self.mapper.load
        return [load(row) for row in self._c.execute(query)]

    def _dump(self, item: T) -> dict[str, Any]:
        return self.mapper.dump(item)

    def _stamped(self, values: Mapping[str, Any]) -> dict[str, Any]:
        full = dict(values)
        if self._versioned:
            full.setdefault("version", Delta(1))
        if self._dated:
            stamp: datetime = self._stamp()
            full.setdefault("updated_at", stamp)
        return full

    def _filtered(
        self, query: Select[Any], where: Iterable[Where], labels: Mapping[str, str]
    ) -> Select[Any]:
        if labels:
            raise Invalid(f"{self.table.name} have no labels.")
        return query.where(conditions(self.table, where))

    def _after(self, page: Page, keys: Sequence[tuple[str, str]]) -> Any:
        marker = self._c.execute(
            select(*(self.table.c[key] for key, _ in keys)).where(
                self.table.c.id == page.marker, conditions(self.table, page.where)
            )
        ).one_or_none()
        if marker is None:
            raise Invalid(
                f"The marker {page.marker!r} is not in this list (any more).", pointer="marker"
            )
        after: Any = False
        for (key, way), value in reversed(list(zip(keys, marker, strict=True))):
            column = self.table.c[key]
            if value is None:  # nulls stand last: only other nulls may follow
                after = column.is_(None) & after
                continue
            beyond = column < value if way == "desc" else column > value
            if column.nullable:
                beyond = beyond | column.is_(None)
            after = beyond | ((column == value) & after)
        (key, way), value = keys[0], marker[0]
        column = self.table.c[key]
        if value is not None and not column.nullable:
            # Implied by the rest, and what lets the database enter its index at the marker.
            after = after & (column <= value if way == "desc" else column >= value)
        return after
