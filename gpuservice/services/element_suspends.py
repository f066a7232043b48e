# SPDX-License-Identifier: Apache-2.0
"""Some elements of an array suspended and resumed: the others go on."""

from __future__ import annotations

from collections.abc import Sequence

from gpuservice.domain.errors import Conflict, Invalid, InvalidTransition
from gpuservice.domain.ports_store import UnitOfWork, Where
from gpuservice.domain.progress import PREEMPTED, SUSPENDED
from gpuservice.domain.states import JOB_ENDED, JobStatus
from gpuservice.domain.work import Attempt, Job

_RUNS = (JobStatus.STARTING, JobStatus.RUNNING)
#: Indices in one condition: every database takes so many values in a statement.
_AT_ONCE = 500


def check_array(job: Job, action: str) -> None:
    """Raise unless the job has elements, and has not ended."""
    if not job.is_array:
        raise Invalid("The job is no array: it has no indices.", pointer=f"/{action}/indices")
    if job.status in JOB_ENDED or job.status == JobStatus.CANCELLING:
        raise InvalidTransition("job", job.status, action)


def suspend_elements(uow: UnitOfWork, job: Job, wanted: Sequence[int]) -> list[int]:
    """Stop those that run; each is held once it has stopped. Which they are.

    :raises Conflict: when none of them runs or is suspended already.
    """
    rows = _rows(uow, job, wanted)
    live = [index for index in wanted if rows.get(index) in _RUNS]
    known = (JobStatus.PREEMPTING, JobStatus.HELD)
    if not live and not any(rows.get(index) in known for index in wanted):
        raise Conflict("None of these elements runs.")
    going = [index for index in wanted if rows.get(index) in (*_RUNS, JobStatus.PREEMPTING)]
    for part in _parts(going):
        uow.elements.change_where(
            job.id,
            {"status": JobStatus.PREEMPTING},
            Where("index", "in", part),
            Where("status", "in", _RUNS),
        )
        _ask(uow, _attempts(uow, job, part), SUSPENDED, (None, PREEMPTED))
    return live


def resume_elements(uow: UnitOfWork, job: Job, wanted: Sequence[int] | None) -> None:
    """Let those that are held wait again (None: all), and those that still stop afterwards."""
    for part in [()] if wanted is None else _parts(wanted):
        chosen = () if wanted is None else (Where("index", "in", part),)
        uow.elements.change_where(
            job.id,
            {"status": JobStatus.QUEUED, "status_reason": None},
            Where("status", "eq", JobStatus.HELD),
            *chosen,
        )
        stopping = uow.attempts.find(Where("job_id", "eq", job.id), Where("live", "eq", 1), *chosen)
        _ask(uow, stopping, "requeue", (SUSPENDED,))


def _rows(uow: UnitOfWork, job: Job, wanted: Sequence[int]) -> dict[int, str]:
    found = uow.elements.of_job(
        job.id, Where("index", "ge", wanted[0]), Where("index", "le", wanted[-1])
    )
    return {row.index: row.status for row in found}


def _attempts(uow: UnitOfWork, job: Job, part: Sequence[int]) -> list[Attempt]:
    return uow.attempts.find(
        Where("job_id", "eq", job.id), Where("live", "eq", 1), Where("index", "in", part)
    )


def _ask(
    uow: UnitOfWork, attempts: Sequence[Attempt], reason: str, instead_of: Sequence[str | None]
) -> None:
    """Have attempts end for this reason, unless another than those stands already."""
    ids = [one.id for one in attempts if one.stop_reason in instead_of]
    if not ids:
        return
    values = {"stop_reason": reason, "attention": True}
    uow.attempts.change_many(ids, values)
    fresh = [one.id for one in attempts if one.id in ids and one.stop_requested_at is None]
    uow.attempts.change_many(fresh, {"stop_requested_at": uow.now()})


def _parts(indices: Sequence[int]) -> list[Sequence[int]]:
    return [indices[at : at + _AT_ONCE] for at in range(0, len(indices), _AT_ONCE)]
