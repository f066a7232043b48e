# SPDX-License-Identifier: Apache-2.0
"""From a frozen dataclass of the domain to its table, and from table rows back to it.

The dataclass is the list of columns: one source for both, so that they cannot drift apart. What a
dataclass cannot say (lengths, keys, checks, indexes, technical columns) is given to ``table_of``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Insert,
    Integer,
    MetaData,
    Select,
    Table,
    Text,
    insert,
    select,
)
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import TypeEngine

from gpuservice.db.prepared import Prepared
from gpuservice.db.types import Json, JsonTuple, UtcDateTime, exact_string

T = TypeVar("T")

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "pk": "pk_%(table_name)s",
    }
)

#: Fields whose plain name is a reserved word somewhere.
COLUMN_NAMES = {"index": "element_index", "signal": "signal_number", "rank": "task_rank"}

_BY_ANNOTATION: dict[str, Callable[[], TypeEngine[Any]]] = {
    "str": lambda: exact_string(255),
    "int": Integer,
    "bool": Boolean,
    "datetime": UtcDateTime,
}


def _column_type(annotation: str, length: int | None) -> TypeEngine[Any]:
    base = annotation.removesuffix(" | None")
    if base == "str" and length is not None:
        return Text() if length > 1024 else exact_string(length)
    if base.startswith("tuple["):
        return JsonTuple()
    if base.startswith("dict["):
        return Json()
    return _BY_ANNOTATION[base]()


def _length(name: str) -> int | None:
    if name == "id" or (name.endswith("_id") and name not in ("server_id", "baremetal_id")):
        return 64
    if name in ("status", "kind", "state", "health", "mode", "engine", "outcome"):
        return 32
    if name.endswith("_hash") or name in ("sha256", "digest", "gang_secret"):
        return 64
    return None


def table_of(
    cls: type,
    name: str,
    *items: SchemaItem,
    key: Sequence[str] = ("id",),
    lengths: Mapping[str, int] | None = None,
    big: Sequence[str] = (),
    auto: str | None = None,
) -> Table:
    """The table of a dataclass.

    :param items: further columns, constraints and indexes.
    :param key: the fields of the primary key.
    :param lengths: string lengths by field (over 1024: TEXT).
    :param big: integer fields that need 64 bits.
    :param auto: a 64-bit autoincrement field.
    """
    columns: list[SchemaItem] = []
    for one in dataclasses.fields(cls):
        annotation = str(one.type)
        kind: TypeEngine[Any]
        if one.name == auto:
            kind = BigInteger().with_variant(Integer(), "sqlite")
        elif one.name in big:
            kind = BigInteger()
        else:
            kind = _column_type(annotation, (lengths or {}).get(one.name, _length(one.name)))
        columns.append(
            Column(
                COLUMN_NAMES.get(one.name, one.name),
                kind,
                key=one.name,
                primary_key=one.name == auto if auto else one.name in key,
                autoincrement=one.name == auto,
                nullable=annotation.endswith("| None") and one.name not in key and one.name != auto,
            )
        )
    return Table(name, METADATA, *columns, *items)


class Mapper(Generic[T]):
    """Turns rows of one table into dataclasses and back."""

    def __init__(self, cls: type[T], table: Table) -> None:
        self.cls = cls
        self.table = table
        self.fields: tuple[str, ...] = tuple(one.name for one in dataclasses.fields(cls))  # type: ignore[arg-type]
        self.columns = [table.c[name] for name in self.fields]
        # Built once: SQLAlchemy then finds their compiled forms without looking at each column.
        self.selection: Select[Any] = select(*self.columns)
        self.insertion: Insert = insert(table)
        self.prepared = Prepared(table, self.selection)

    def load(self, row: Sequence[Any]) -> T:
        """The dataclass of a row selected with ``columns``."""
        return self.cls(**dict(zip(self.fields, row, strict=True)))

    def dump(self, item: T) -> dict[str, Any]:
        """The column values of a dataclass, by field name."""
        return {name: getattr(item, name) for name in self.fields}
