# SPDX-License-Identifier: Apache-2.0
"""Waiting jobs that can never start: a dependency that cannot come true, a deadline that passed."""

from __future__ import annotations

from typing import Any

from gpuservice.conductor.deps import CAUSE, Deps
from gpuservice.domain.dependencies import NEVER, verdict
from gpuservice.domain.happenings import status_change
from gpuservice.domain.jobspec import JobSpec
from gpuservice.domain.ports_store import Delta, UnitOfWork, Where
from gpuservice.domain.states import JOB, JobStatus
from gpuservice.domain.waiting import NOT_WAITING
from gpuservice.domain.work import Job

#: Jobs whose dependencies are looked at in one pass.
_PART = 1000


class Line:
    """Ends what waits in vain."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        #: Where the next look at dependencies begins; each pass looks at a part of the line.
        self._after = ""

    def step(self) -> int:
        """Look at deadlines and dependencies; how many jobs ended."""
        doomed = self._deps.store.read(self._doomed)
        return sum(self._end(job_id, why) for job_id, why in doomed)

    def _end(self, job_id: str, why: str) -> bool:
        return self._deps.store.write(lambda uow: self._fail(uow, job_id, why))

    def _doomed(self, uow: UnitOfWork) -> list[tuple[str, str]]:
        late = uow.jobs.find(
            Where("open", "eq", 1),
            Where("deadline_at", "le", uow.now()),
            Where("status", "in", (JobStatus.QUEUED, JobStatus.HELD)),
        )
        found = [(job.id, "deadline") for job in late]
        waiting = uow.jobs.find(
            Where("open", "eq", 1),
            Where("waiting_code", "eq", "dependency"),
            Where("id", "gt", self._after),
            order=(("id", "asc"),),
            limit=_PART,
        )
        self._after = waiting[-1].id if len(waiting) == _PART else ""
        specs = {job.id: JobSpec.from_dict(job.spec) for job in waiting}
        others = {
            job.id: (job.status, job.started_at is not None)
            for job in uow.jobs.get_many(
                {ident for spec in specs.values() for ident, _ in spec.depends_on}
            )
        }
        found.extend(
            (job_id, "dependency")
            for job_id, spec in specs.items()
            if verdict(spec.depends_on, others)[0] == NEVER
        )
        return found

    def _fail(self, uow: UnitOfWork, job_id: str, why: str) -> bool:
        job = uow.jobs.get(job_id, lock=True)
        if job is None or not JOB.allows(job.status, "fail") or job.live_elements:
            return False
        if job.status not in (JobStatus.QUEUED, JobStatus.HELD):
            return False
        uow.quotas.give_back(job.project_id, {"jobs:queued": job.waiting_elements})
        uow.jobs.change(job_id, self._values(uow, job, why))
        uow.drop_explanations([job_id])
        uow.events.add(
            status_change(
                self._deps.ids,
                uow.now(),
                CAUSE,
                "job",
                "fail",
                job_id,
                job.status,
                JobStatus.FAILED,
                project_id=job.project_id,
                reason=why,
            )
        )
        return True

    @staticmethod
    def _values(uow: UnitOfWork, job: Job, why: str) -> dict[str, Any]:
        reason = (
            "a job that it depends on did not end as needed"
            if why == "dependency"
            else "its deadline passed before it could start"
        )
        return {
            "status": JobStatus.FAILED,
            "failure_class": why,
            "ended_at": uow.now(),
            "status_reason": reason,
            "failed_elements": Delta(job.waiting_elements),
            "waiting_elements": 0,
            **NOT_WAITING,
        }
