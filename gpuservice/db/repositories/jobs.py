# SPDX-License-Identifier: Apache-2.0
"""Jobs, with their labels and the marker of those that have not ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Select, delete, exists, insert

from gpuservice.db.repositories.generic import TableRepository
from gpuservice.db.statements import chunks, conditions
from gpuservice.db.tables import JOB_LABELS
from gpuservice.domain.ports_store import Where
from gpuservice.domain.states import JOB_ENDED
from gpuservice.domain.work import Job


class Jobs(TableRepository[Job]):
    """The jobs."""

    def add_many(self, items: Sequence[Job]) -> None:
        """Insert jobs and their labels."""
        super().add_many(items)
        self._write_labels([(job.id, job.labels) for job in items])

    def change_many(self, idents: Sequence[str], values: Mapping[str, Any], *where: Where) -> int:
        """Labels are kept in step: they change by one job at a time, on a locked row."""
        matched = super().change_many(idents, values, *where)
        if matched and "labels" in values:
            for part in chunks(list(idents)):
                self._c.execute(delete(JOB_LABELS).where(JOB_LABELS.c.job_id.in_(part)))
            self._write_labels([(ident, values["labels"]) for ident in idents])
        return matched

    def remove(self, ident: str, *where: Where) -> bool:
        """Delete the job with its labels."""
        removed = super().remove(ident, *where)
        if removed:
            self._c.execute(delete(JOB_LABELS).where(JOB_LABELS.c.job_id == ident))
        return removed

    def _dump(self, item: Job) -> dict[str, Any]:
        return {**super()._dump(item), "open": None if item.status in JOB_ENDED else 1}

    def _stamped(self, values: Mapping[str, Any]) -> dict[str, Any]:
        full = super()._stamped(values)
        if "status" in full:
            full["open"] = None if full["status"] in JOB_ENDED else 1
        return full

    def _filtered(
        self, query: Select[Any], where: Iterable[Where], labels: Mapping[str, str]
    ) -> Select[Any]:
        query = query.where(conditions(self.table, where))
        for label, value in labels.items():
            query = query.where(
                exists().where(
                    JOB_LABELS.c.job_id == self.table.c.id,
                    JOB_LABELS.c.label == label,
                    JOB_LABELS.c.value == value,
                )
            )
        return query

    def _write_labels(self, labelled: Iterable[tuple[str, Mapping[str, str]]]) -> None:
        rows = [
            {"job_id": job_id, "label": label, "value": value}
            for job_id, labels in labelled
            for label, value in labels.items()
        ]
        if rows:
            self._c.execute(insert(JOB_LABELS), rows)
