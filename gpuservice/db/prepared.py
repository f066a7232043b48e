# SPDX-License-Identifier: Apache-2.0
"""Statements by their shape: built once, then only given values.

Building a statement costs SQLAlchemy more than running it costs the database. The shapes that the
code asks for (which fields, which comparisons, which order) are few and fixed; what a client
chooses (filters and sort keys of lists) is not kept here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, Update, bindparam, false, true, update

from gpuservice.db.statements import condition
from gpuservice.domain.ports_store import Delta, Lock, Where

#: Comparisons without a value, and those with a list of values.
_BARE = frozenset({"null", "notnull"})
_LISTS = frozenset({"in", "notin"})
#: More shapes than the code has: what grows beyond is a mistake, and is then built anew.
MAX_SHAPES = 500

Shape = tuple[Any, ...]


def _conditions(
    table: Table, where: Sequence[Where], spread: bool = False
) -> list[ColumnElement[bool]]:
    """The SQL of the conditions; their values are parameters, which :func:`_values` gives.

    :param spread: a parameter for each value of a list, as executemany wants it, instead of one
        for the list.
    """
    made = []
    for number, one in enumerate(where):
        if spread and one.op in _LISTS:
            made.append(_one_of(table, number, one))
        elif _has_value(one):
            param: Any = bindparam(f"w_{number}", expanding=one.op in _LISTS)
            made.append(condition(table, Where(one.field, one.op, param)))
        else:
            made.append(condition(table, one))
    return made


def _one_of(table: Table, number: int, one: Where) -> ColumnElement[bool]:
    if not one.value:
        return false() if one.op == "in" else true()
    kind = table.c[one.field].type
    params = [bindparam(f"w_{number}_{place}", type_=kind) for place in range(len(one.value))]
    return condition(table, Where(one.field, one.op, params))


def _values(where: Sequence[Where], spread: bool = False) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for number, one in enumerate(where):
        if spread and one.op in _LISTS:
            values.update((f"w_{number}_{at}", value) for at, value in enumerate(one.value))
        elif _has_value(one):
            values[f"w_{number}"] = list(one.value) if one.op in _LISTS else one.value
    return values


def _has_value(one: Where) -> bool:
    return one.op not in _BARE and one.value is not None


def _shape(where: Iterable[Where]) -> tuple[tuple[str, str, bool], ...]:
    return tuple((one.field, one.op, one.value is None) for one in where)


class Prepared:
    """The statements of one table."""

    def __init__(self, table: Table, selection: Select[Any]) -> None:
        self._table = table
        self._selection = selection
        self._selects: dict[Shape, Select[Any]] = {}
        self._updates: dict[Shape, Update] = {}

    def select(
        self,
        where: Sequence[Where],
        order: Sequence[tuple[str, str]] = (),
        limit: int | None = None,
        lock: Lock = False,
        skip_locked: bool = False,
    ) -> tuple[Select[Any], dict[str, Any]]:
        """A selection with its parameters."""
        shape = (_shape(where), tuple(order), limit is None, lock, skip_locked)
        known = self._selects.get(shape)
        values = _values(where)
        if limit is not None:
            values["w_limit"] = limit
        if known is None:
            known = self._selection.where(*_conditions(self._table, where))
            for key, way in order:
                column = self._table.c[key]
                known = known.order_by(column.desc() if way == "desc" else column.asc())
            if limit is not None:
                known = known.limit(bindparam("w_limit"))
            if lock:
                share = lock == "share"
                known = known.with_for_update(read=share, key_share=share, skip_locked=skip_locked)
            _keep(self._selects, shape, known)
        return known, values

    def update(self, values: Mapping[str, Any], where: Sequence[Where]) -> Update:
        """An update of the row ``row_id``, which takes what :func:`row` makes of its values."""
        relative = tuple(name for name, value in values.items() if isinstance(value, Delta))
        sizes = tuple(len(one.value) for one in where if one.op in _LISTS)
        shape = (tuple(values), relative, _shape(where), sizes)
        known = self._updates.get(shape)
        if known is None:
            columns = self._table.c
            assigned: dict[str, Any] = {}
            for name in values:
                param = bindparam(f"v_{name}", type_=columns[name].type)
                assigned[name] = columns[name] + param if name in relative else param
            made = _conditions(self._table, where, spread=True)
            known = (
                update(self._table).where(columns.id == bindparam("row_id"), *made).values(assigned)
            )
            _keep(self._updates, shape, known)
        return known


def row(ident: str, values: Mapping[str, Any], where: Sequence[Where]) -> dict[str, Any]:
    """The parameters of :meth:`Prepared.update` for one row."""
    return {
        "row_id": ident,
        **{
            f"v_{name}": value.amount if isinstance(value, Delta) else value
            for name, value in values.items()
        },
        **_values(where, spread=True),
    }


def _keep(known: dict[Shape, Any], shape: Shape, statement: Any) -> None:
    if len(known) < MAX_SHAPES:
        known[shape] = statement
