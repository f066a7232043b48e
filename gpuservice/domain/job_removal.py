# SPDX-License-Identifier: Apache-2.0
"""What goes with an ended job: everything but events and allocations, which are the account."""

from __future__ import annotations

from gpuservice.domain.context import Cause
from gpuservice.domain.happenings import happening
from gpuservice.domain.ports import Ids
from gpuservice.domain.ports_store import UnitOfWork, Where
from gpuservice.domain.work import Job

#: Attempts in one condition: every database takes so many values in a statement.
_AT_ONCE = 500


def remove_job(uow: UnitOfWork, job: Job, ids: Ids, cause: Cause) -> None:
    """Remove an ended job's rows and say so; its logs and objects are the caller's to delete."""
    uow.drop_explanations([job.id])
    attempts = [one.id for one in uow.attempts.find(Where("job_id", "eq", job.id))]
    for at in range(0, len(attempts), _AT_ONCE):
        uow.tasks.remove_where(Where("attempt_id", "in", attempts[at : at + _AT_ONCE]))
    mine = Where("job_id", "eq", job.id)
    uow.attempts.remove_where(mine)
    uow.elements.remove_of(job.id)
    uow.checkpoints.remove_where(mine)
    uow.artifacts.remove_where(mine)
    uow.jobs.remove(job.id)
    uow.events.add(
        happening(ids, uow.now(), cause, "job.delete", "job", job.id, project_id=job.project_id)
    )
