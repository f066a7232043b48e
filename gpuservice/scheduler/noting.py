# SPDX-License-Identifier: Apache-2.0
"""What a plan says of jobs that wait on, kept with them: when they are due, and that they were
promised a start.

A promise ranks a job from the first time on until it starts, also when it is gone meanwhile.
These are notes: they do not change a job's version, and are written only when they are new.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from gpuservice.domain import moments
from gpuservice.domain.ports_store import Store, UnitOfWork, Where
from gpuservice.planner.plan_types import Plan
from gpuservice.planner.session import rank
from gpuservice.planner.snapshot import PendingJob
from gpuservice.scheduler.collect import Note

#: Jobs noted in one transaction.
BATCH = 500

Changes = list[tuple[str, dict[str, Any]]]
_WAITS = Where("waiting_elements", "gt", 0)


class Noting:
    """Writes the notes of plans for one shard."""

    def __init__(self, store: Store, shard: str) -> None:
        self._store = store
        self._shard = shard

    def keep(
        self,
        epoch: int,
        made: Plan,
        now: float,
        pending: Sequence[PendingJob],
        started: Collection[str],
    ) -> dict[str, Note]:
        """Note what is new of jobs that did not start; (due, promised since) of these jobs. Raises
        ``StaleEpoch`` when another leads.

        :param now: the moment of the snapshot, with its ``pending`` jobs.
        """
        promises = {one.job_id: moments.reckoned(one.start) for one in made.promises}
        if not (made.due or promises):
            return {}
        # Promises of one plan keep the order in which they were given.
        since = {
            one.job_id: moments.reckoned(rank(now, number))
            for number, one in enumerate(made.promises)
        }
        notes: dict[str, Note] = {}
        due: Changes = []
        promised: Changes = []
        for job in pending:
            if job.job_id in started:
                continue
            first = job.promised is None and job.job_id in promises
            fresh = job.due is None and job.job_id in made.due
            if fresh:
                due.append((job.job_id, {"due_at": _moment(made.due[job.job_id])}))
            if first:
                values = {
                    "promised_since": since[job.job_id],
                    "promised_start_at": promises[job.job_id],
                }
                promised.append((job.job_id, values))
            if fresh or first:
                notes[job.job_id] = (
                    _moment(made.due[job.job_id] if fresh else job.due),
                    since[job.job_id] if first else moments.reckoned(job.promised),
                )
        self._write(epoch, due, "due_at")
        self._write(epoch, promised, "promised_since")
        return notes

    def _write(self, epoch: int, changes: Changes, field: str) -> None:
        """Those that have none yet and still wait."""
        for at in range(0, len(changes), BATCH):
            part = changes[at : at + BATCH]

            def work(uow: UnitOfWork, part: Changes = part) -> None:
                uow.check_epoch(self._shard, epoch)
                uow.jobs.change_each(part, Where(field, "null"), _WAITS, silent=True, counted=False)

            self._store.write(work)


def _moment(seconds: float | None) -> datetime | None:
    """A moment; one beyond the calendar is its end, so that it is known."""
    if seconds is None:
        return None
    return moments.reckoned(max(seconds, 0.0)) or moments.LATEST
