# SPDX-License-Identifier: Apache-2.0
"""Array elements that have started, ended or wait for another attempt; keyed by (job, index)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, func, select, update

from gpuservice.db.statements import assigned, chunks, conditions
from gpuservice.db.tables import ELEMENT_ROWS, ELEMENTS
from gpuservice.domain.ports_store import Delta, Where
from gpuservice.domain.states import JobStatus
from gpuservice.domain.work import JobElement

_C = ELEMENTS.c


class Elements:
    """The array elements."""

    def __init__(self, connection: Connection) -> None:
        self._c = connection

    def get(self, job_id: str, index: int, *, lock: bool = False) -> JobElement | None:
        """One element row, or None if it never started."""
        query = ELEMENT_ROWS.selection.where(_C.job_id == job_id, _C.index == index)
        if lock:
            query = query.with_for_update()
        row = self._c.execute(query).one_or_none()
        return None if row is None else ELEMENT_ROWS.load(row)

    def of_job(
        self, job_id: str, *where: Where, limit: int | None = None, after: int | None = None
    ) -> list[JobElement]:
        """Element rows of a job by index."""
        query = ELEMENT_ROWS.selection.where(_C.job_id == job_id, conditions(ELEMENTS, where))
        if after is not None:
            query = query.where(_C.index > after)
        query = query.order_by(_C.index)
        if limit is not None:
            query = query.limit(limit)
        return [ELEMENT_ROWS.load(row) for row in self._c.execute(query)]

    def of_keys(self, keys: Sequence[tuple[str, int]]) -> list[JobElement]:
        """Element rows of many (job, index).

        Row values would be exact, but databases do not look them up in the key's index.
        """
        found: list[JobElement] = []
        for part in chunks(sorted(set(keys)), 200):
            query = ELEMENT_ROWS.selection.where(
                _C.job_id.in_(sorted({job_id for job_id, _ in part})),
                _C.index.in_(sorted({index for _, index in part})),
            )
            mine = set(part)
            for row in self._c.execute(query):
                element = ELEMENT_ROWS.load(row)
                if (element.job_id, element.index) in mine:
                    found.append(element)
        return found

    def add_many(self, elements: Sequence[JobElement]) -> None:
        """Insert."""
        if elements:
            self._c.execute(ELEMENT_ROWS.insertion, [ELEMENT_ROWS.dump(one) for one in elements])

    def change(self, job_id: str, index: int, values: Mapping[str, Any], *where: Where) -> bool:
        """Conditional update of one."""
        return self.change_where(job_id, values, Where("index", "eq", index), *where) == 1

    def change_where(self, job_id: str, values: Mapping[str, Any], *where: Where) -> int:
        """Conditional update of all of a job in one statement; how many."""
        statement = update(ELEMENTS).where(_C.job_id == job_id, conditions(ELEMENTS, where))
        full = {"version": Delta(1), **values}
        return self._c.execute(statement.values(assigned(ELEMENTS, full))).rowcount

    def remove_of(self, job_id: str) -> None:
        """Delete all of a job."""
        self._c.execute(delete(ELEMENTS).where(_C.job_id == job_id))

    def held(self) -> dict[str, int]:
        """How many elements of each job are suspended on their own."""
        query = (
            select(_C.job_id, func.count()).where(_C.status == JobStatus.HELD).group_by(_C.job_id)
        )
        return dict(self._c.execute(query).all())

    def backing_off(self, now: datetime) -> dict[str, int]:
        """How many elements of each job wait for the end of a retry's backoff."""
        query = (
            select(_C.job_id, func.count())
            .where(_C.status == JobStatus.QUEUED, _C.not_before > now)
            .group_by(_C.job_id)
        )
        return dict(self._c.execute(query).all())
