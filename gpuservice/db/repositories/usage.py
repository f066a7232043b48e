# SPDX-License-Identifier: Apache-2.0
"""Decayed sums of what has ended, and how far they go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from operator import eq
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Double,
    Integer,
    Table,
    and_,
    bindparam,
    cast,
    delete,
    insert,
    literal,
    or_,
    select,
    union_all,
    update,
)

from gpuservice.db.statements import chunks
from gpuservice.db.tables import (
    ALLOCATIONS,
    ATTEMPTS,
    JOBS,
    LIMIT_HISTORY,
    USAGE_DECAYED,
    USAGE_MARKS,
)
from gpuservice.domain.ports_usage import (
    USAGE,
    EndedRun,
    EndedShare,
    HistoryKey,
    HistorySum,
    Mark,
    UsageKey,
    UsageSum,
)
from gpuservice.domain.states import AttemptOutcome

_M, _A, _U, _H = USAGE_MARKS.c, ALLOCATIONS.c, USAGE_DECAYED.c, LIMIT_HISTORY.c
#: Rows of before the release that keeps it do not say whose they are.
_OWNED = and_(_A.queue_id.is_not(None), _A.user_id.is_not(None))


def _beyond(moment: Any, ident: Any, mark_at: Any, mark_ident: Any) -> ColumnElement[bool]:
    """After a mark. The first condition follows from the second: by it databases enter their
    indexes."""
    return and_(
        moment >= mark_at, or_(moment > mark_at, and_(moment == mark_at, ident > mark_ident))
    )


# Built once: that costs more than to run them.
_MOMENT = _A.released_at.type
_AT, _IDENT = bindparam("mark_at", type_=_MOMENT), bindparam("mark_ident", type_=_A.id.type)
_BEFORE, _MOST = bindparam("before", type_=_MOMENT), bindparam("most", type_=Integer)
_MARK = select(_M.ended_at, _M.ident).where(_M.name == bindparam("the_name"))
_HISTORIES = select(LIMIT_HISTORY)
_SHARES = (
    select(
        _A.id,
        _A.queue_id,
        _A.project_id,
        _A.user_id,
        _A.milli,
        _A.allocated_at,
        _A.released_at,
    )
    .where(_beyond(_A.released_at, _A.id, _AT, _IDENT), _A.released_at < _BEFORE, _OWNED)
    .order_by(_A.released_at, _A.id)
    .limit(_MOST)
)
_T, _J = ATTEMPTS.c, JOBS.c
_RUNS = (
    select(
        _T.id,
        _T.queue_id,
        _J.user_id,
        _J.kind,
        _T.started_at,
        _T.ended_at,
        _J.max_runtime_s,
    )
    .select_from(ATTEMPTS.join(JOBS, _J.id == _T.job_id))
    .where(
        _beyond(_T.ended_at, _T.id, _AT, _IDENT),
        _T.ended_at < _BEFORE,
        _T.outcome == AttemptOutcome.SUCCEEDED,
        _T.started_at.is_not(None),
        _J.max_runtime_s.is_not(None),
    )
    .order_by(_T.ended_at, _T.id)
    .limit(_MOST)
)
_SUMS = select(
    literal("").label("id"),
    _U.queue_id,
    _U.project_id,
    _U.user_id,
    _U.milli_gpu_seconds,
    _U.as_of,
    _U.as_of.label("until"),
)
_LATER = (
    select(
        _A.id,
        _A.queue_id,
        _A.project_id,
        _A.user_id,
        cast(_A.milli, Double),
        _A.allocated_at,
        _A.released_at,
    )
    .select_from(ALLOCATIONS.outerjoin(USAGE_MARKS, _M.name == USAGE))
    .where(
        _A.released_at > bindparam("since", type_=_MOMENT),
        _OWNED,
        or_(_M.name.is_(None), _beyond(_A.released_at, _A.id, _M.ended_at, _M.ident)),
    )
)
_ALL_USE = union_all(_SUMS, _LATER)


class Usage:
    """The sums."""

    def __init__(self, connection: Connection) -> None:
        self._c = connection

    def mark(self, name: str) -> Mark | None:
        """How far the sums of this name go, or None."""
        row = self._c.execute(_MARK, {"the_name": name}).one_or_none()
        return None if row is None else (row[0], row[1])

    def set_mark(self, name: str, mark: Mark) -> None:
        """From here on."""
        values = {"ended_at": mark[0], "ident": mark[1]}
        changed = self._c.execute(update(USAGE_MARKS).where(_M.name == name).values(values))
        if not changed.rowcount and self.mark(name) is None:
            self._c.execute(insert(USAGE_MARKS).values(name=name, **values))

    def ended_shares(self, after: Mark, before: datetime, limit: int) -> list[EndedShare]:
        """What was given back after the mark and before that moment."""
        values = {"mark_at": after[0], "mark_ident": after[1], "before": before, "most": limit}
        return [
            EndedShare(ident, (queue, project, user), milli, began, ended)
            for ident, queue, project, user, milli, began, ended in self._c.execute(_SHARES, values)
        ]

    def sums(self, keys: Iterable[UsageKey]) -> list[UsageSum]:
        """The sums of some."""
        return [
            UsageSum((row[0], row[1], row[2]), row[3], row[4])
            for row in _of_keys(self._c, USAGE_DECAYED, keys)
        ]

    def save_sums(self, sums: Sequence[UsageSum]) -> None:
        """Insert or replace."""
        rows = [_row(USAGE_DECAYED, (*one.key, one.milli_gpu_seconds, one.as_of)) for one in sums]
        _replace(self._c, USAGE_DECAYED, [one.key for one in sums], rows)

    def forget_sums(self, before: datetime) -> None:
        """Drop what nothing was added to since."""
        self._c.execute(delete(USAGE_DECAYED).where(_U.as_of < before))
        self._c.execute(delete(LIMIT_HISTORY).where(_H.as_of < before))

    def usage(self, since: datetime) -> tuple[list[UsageSum], list[EndedShare]]:
        """Every sum and what is not in it yet, in one query."""
        kept: list[UsageSum] = []
        tail: list[EndedShare] = []
        for ident, queue, project, user, amount, at, until in self._c.execute(
            _ALL_USE, {"since": since}
        ):
            key = (queue, project, user)
            if ident:
                tail.append(EndedShare(ident, key, int(amount), at, until))
            else:
                kept.append(UsageSum(key, amount, at))
        return kept, tail

    def ended_runs(self, after: Mark, before: datetime, limit: int) -> list[EndedRun]:
        """Attempts that succeeded within a limit."""
        values = {"mark_at": after[0], "mark_ident": after[1], "before": before, "most": limit}
        return [
            EndedRun(
                ident, (queue, user, kind), ended, (ended - began).total_seconds(), float(limit_s)
            )
            for ident, queue, user, kind, began, ended, limit_s in self._c.execute(_RUNS, values)
        ]

    def histories(self, keys: Iterable[HistoryKey] | None = None) -> list[HistorySum]:
        """The sums of some, or all."""
        rows: Iterable[Any]
        if keys is None:
            rows = self._c.execute(_HISTORIES)
        else:
            rows = _of_keys(self._c, LIMIT_HISTORY, keys)
        return [
            HistorySum((queue, user, kind), runs, run_s, limit_s, as_of)
            for queue, user, kind, runs, run_s, limit_s, as_of in rows
        ]

    def save_histories(self, sums: Sequence[HistorySum]) -> None:
        """Insert or replace."""
        rows = [
            _row(LIMIT_HISTORY, (*one.key, one.runs, one.run_s, one.limit_s, one.as_of))
            for one in sums
        ]
        _replace(self._c, LIMIT_HISTORY, [one.key for one in sums], rows)


def _matching(table: Table, part: Sequence[tuple[str, ...]]) -> ColumnElement[bool]:
    columns = list(table.primary_key.columns)
    return or_(*(and_(*map(eq, columns, key)) for key in part))


def _row(table: Table, values: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(table.c.keys(), values, strict=True))


def _of_keys(
    connection: Connection, table: Table, keys: Iterable[tuple[str, ...]]
) -> Iterable[Any]:
    for part in chunks(sorted(set(keys)), 100):
        yield from connection.execute(select(table).where(_matching(table, part)))


def _replace(
    connection: Connection,
    table: Table,
    keys: Sequence[tuple[str, ...]],
    rows: Sequence[dict[str, Any]],
) -> None:
    for part in chunks(sorted(set(keys)), 100):
        connection.execute(delete(table).where(_matching(table, part)))
    if rows:
        connection.execute(insert(table), list(rows))
