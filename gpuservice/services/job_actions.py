# SPDX-License-Identifier: Apache-2.0
"""What may be done to a job: cancel, hold, release, requeue, suspend, resume."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from gpuservice.domain.array_ends import end_of_array
from gpuservice.domain.context import Caller, cause_of
from gpuservice.domain.errors import Conflict, Invalid, InvalidTransition
from gpuservice.domain.happenings import happening, status_change
from gpuservice.domain.ports import Hint
from gpuservice.domain.ports_store import Delta, UnitOfWork, Where
from gpuservice.domain.progress import SUSPENDED
from gpuservice.domain.states import JOB, JOB_ENDED, JobStatus
from gpuservice.domain.waiting import NOT_WAITING
from gpuservice.domain.work import Attempt, Job, JobElement
from gpuservice.services.deps import Deps
from gpuservice.services.element_suspends import (
    check_array,
    resume_elements,
    suspend_elements,
)
from gpuservice.services.visibility import found, owned

#: Indices in one condition: every database takes so many values in a statement.
_AT_ONCE = 500
#: Characters of indices that an event has at most, as those of a request.
_TEXT = 4096
_WAITS = (JobStatus.QUEUED, JobStatus.HELD)
_RUNS = (JobStatus.STARTING, JobStatus.RUNNING, JobStatus.PREEMPTING)


def indices_of(text: str, size: int, pointer: str = "/cancel/indices") -> list[int]:
    """``3,7-9`` as indices.

    :raises Invalid: when it is not that, or beyond the array.
    """
    chosen = bytearray(size)  # so that ranges that overlap a thousand times cost nothing
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()) or len(part) > 16:
            raise Invalid(f"indices is {text[:80]!r}; it must be like '3,7-9'.", pointer=pointer)
        first, last = int(low), int(high) if dash else int(low)
        if first > last or last >= size:
            raise Invalid(
                f"indices is {text[:80]!r}; the array has 0 to {size - 1}.",
                pointer=pointer,
            )
        chosen[first : last + 1] = b"\1" * (last + 1 - first)
    return [index for index, flag in enumerate(chosen) if flag]


def _parts(indices: Sequence[int]) -> Iterator[Sequence[int]]:
    """Slices short enough for one statement."""
    for at in range(0, len(indices), _AT_ONCE):
        yield indices[at : at + _AT_ONCE]


def ranges(indices: Sequence[int]) -> str:
    """Ascending indices as ``3,7-9``."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)


def _cancelled(now: datetime) -> dict[str, Any]:
    return {
        "status": JobStatus.CANCELLED,
        "ended_at": now,
        "failure_class": "cancelled",
        "status_reason": "cancelled",
    }


def _element_waits(job: Job, index: int, row: JobElement | None) -> bool:
    """Whether an element waits: one without a row never started, and never will once the job has
    given up what waited of it (``next_index`` is behind it then)."""
    if row is None:
        return index >= job.next_index
    return row.status in _WAITS


class JobActions:
    """Actions on jobs; what already holds is fine, what the status forbids is a conflict."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    def act(self, caller: Caller, ident: str, action: str, indices: str | None) -> None:
        """Do one of cancel, suspend, resume (of an array also to some elements), hold, release,
        requeue."""

        def work(uow: UnitOfWork) -> None:
            job = owned(uow.jobs, caller, ident, "job", lock=True)
            if action == "cancel":
                if indices is None:
                    self.cancel_whole(uow, caller, job)
                else:
                    self._cancel_some(uow, caller, job, indices)
            elif action == "requeue":
                self._requeue(uow, caller, job)
            elif action in ("suspend", "resume") and indices is not None:
                self._suspend_or_resume_some(uow, caller, job, action, indices)
            elif action == "suspend":
                self._suspend(uow, caller, job)
            else:
                self.set_hold(uow, caller, job, action == "hold")

        self._deps.store.write(work)
        self._deps.hints.send(Hint("attempts", (ident,)))
        self._deps.hints.send(Hint("jobs", (ident,)))

    def set_hold(self, uow: UnitOfWork, caller: Caller, job: Job, hold: bool) -> None:
        """Hold back (or release) what waits of the job."""
        if job.status in JOB_ENDED or job.status == JobStatus.CANCELLING:
            raise InvalidTransition("job", job.status, "hold" if hold else "release")
        if job.is_array and not hold:
            resume_elements(uow, job, None)
        if job.on_hold == hold:
            return
        if job.status == JobStatus.PREEMPTING and not hold:
            # It was suspended and still stops; then it waits again.
            uow.jobs.change(job.id, {"on_hold": False, "status_reason": None})
            self._event(uow, caller, job, "resume_requested", job.status, job.status)
            return
        if not job.waiting_elements:
            raise Conflict(f"The job is {job.status}: nothing of it waits.")
        values: dict[str, Any] = {"on_hold": hold}
        event = "hold" if hold else "release"
        if job.status in _WAITS:
            values["status"] = JOB.after(job.status, event)
            values["status_reason"] = "by request" if hold else None
            self._event(uow, caller, job, event, job.status, values["status"])
        uow.jobs.change(job.id, values)

    def cancel_whole(self, uow: UnitOfWork, caller: Caller, job: Job) -> None:
        """End the job: what waits at once, what runs by way of its nodes."""
        if job.status == JobStatus.CANCELLED or job.status == JobStatus.CANCELLING:
            return
        if job.status in JOB_ENDED:
            raise InvalidTransition("job", job.status, "cancel")
        self._event(uow, caller, job, "cancel", job.status, JobStatus.CANCELLING)
        waiting = job.waiting_elements
        uow.quotas.give_back(job.project_id, {"jobs:queued": waiting})
        values: dict[str, Any] = {
            "status": JobStatus.CANCELLING,
            "waiting_elements": 0,
            "on_hold": False,
            "cancelled_elements": Delta(waiting),
            **NOT_WAITING,
        }
        if job.is_array:
            values["next_index"] = job.elements
            uow.elements.change_where(job.id, _cancelled(uow.now()), Where("status", "in", _WAITS))
        if not job.live_elements:
            values.update(_cancelled(uow.now()))
            self._event(uow, caller, job, "cancelled", JobStatus.CANCELLING, JobStatus.CANCELLED)
        uow.jobs.change(job.id, values)
        uow.drop_explanations([job.id])
        self._stop(
            uow,
            uow.attempts.find(Where("job_id", "eq", job.id), Where("live", "eq", 1)),
            "cancelled",
        )

    def _cancel_some(self, uow: UnitOfWork, caller: Caller, job: Job, text: str) -> None:
        if not job.is_array:
            raise Invalid("The job is no array: it has no indices.", pointer="/cancel/indices")
        wanted = indices_of(text, job.elements)
        if job.status == JobStatus.CANCELLING:
            return  # all of it is being cancelled already
        if job.status in JOB_ENDED:
            raise InvalidTransition("job", job.status, "cancel")
        rows = {
            one.index: one
            for one in uow.elements.of_job(
                job.id, Where("index", "ge", wanted[0]), Where("index", "le", wanted[-1])
            )
        }
        waiting = [index for index in wanted if _element_waits(job, index, rows.get(index))]
        self._end_waiting(uow, job, waiting, rows)
        live = [index for index in wanted if index in rows and rows[index].status in _RUNS]
        for part in _parts(live):
            self._stop(
                uow,
                uow.attempts.find(
                    Where("job_id", "eq", job.id),
                    Where("live", "eq", 1),
                    Where("index", "in", part),
                ),
                "cancelled",
            )
        if waiting or live:
            self._done_to_some(uow, caller, job, "cancel", sorted((*waiting, *live)), text)
        if waiting:
            # The conductor ends an array of which nothing is left.
            left = job.waiting_elements - len(waiting)
            if not left and not job.live_elements:
                self._end_array(uow, caller, found(uow.jobs, job.id, "job"))

    def _done_to_some(
        self,
        uow: UnitOfWork,
        caller: Caller,
        job: Job,
        action: str,
        indices: Sequence[int],
        text: str,
    ) -> None:
        """One event for all: an array may have thousands of elements. Where writing down those
        that were live or waiting takes much space, the event has what was asked for."""
        which = ranges(indices)
        uow.events.add(
            happening(
                self._deps.ids,
                uow.now(),
                cause_of(caller),
                f"job.{action}",
                "job",
                job.id,
                project_id=job.project_id,
                detail={
                    "indices": which if len(which) <= _TEXT else text,
                    "elements": len(indices),
                },
            )
        )

    def _end_waiting(
        self, uow: UnitOfWork, job: Job, waiting: Sequence[int], rows: dict[int, JobElement]
    ) -> None:
        if not waiting:
            return
        now = uow.now()
        uow.quotas.give_back(job.project_id, {"jobs:queued": len(waiting)})
        uow.jobs.change(
            job.id,
            {"waiting_elements": Delta(-len(waiting)), "cancelled_elements": Delta(len(waiting))},
        )
        uow.elements.add_many(
            [
                JobElement(
                    job_id=job.id,
                    index=index,
                    project_id=job.project_id,
                    status=JobStatus.CANCELLED,
                    queued_at=job.queued_at,
                    ended_at=now,
                    failure_class="cancelled",
                )
                for index in waiting
                if index not in rows
            ]
        )
        again = [index for index in waiting if index in rows]
        for part in _parts(again):
            uow.elements.change_where(job.id, _cancelled(now), Where("index", "in", part))

    def _end_array(self, uow: UnitOfWork, caller: Caller, job: Job) -> None:
        event, status, values = end_of_array(uow, job)
        uow.jobs.change(job.id, values)
        uow.drop_explanations([job.id])
        self._event(uow, caller, job, event, job.status, status)

    def _suspend_or_resume_some(
        self, uow: UnitOfWork, caller: Caller, job: Job, action: str, text: str
    ) -> None:
        check_array(job, action)
        wanted = indices_of(text, job.elements, f"/{action}/indices")
        if action == "suspend":
            changed = suspend_elements(uow, job, wanted)
        else:
            resume_elements(uow, job, wanted)
            changed = wanted
        if changed:
            self._done_to_some(uow, caller, job, action, changed, text)

    def _suspend(self, uow: UnitOfWork, caller: Caller, job: Job) -> None:
        """Stop what runs of it as before a preemption; all of it is held from then on."""
        if job.status in JOB_ENDED or job.status == JobStatus.CANCELLING:
            raise InvalidTransition("job", job.status, "suspend")
        if job.on_hold and (job.status == JobStatus.PREEMPTING or job.status_reason == SUSPENDED):
            return
        if not job.live_elements:
            raise Conflict(f"The job is {job.status}: nothing of it runs. It may be held instead.")
        values: dict[str, Any] = {"on_hold": True, "status_reason": SUSPENDED}
        if job.status != JobStatus.PREEMPTING:
            values["status"] = JOB.after(job.status, "preempt")
            self._event(uow, caller, job, "preempting", job.status, values["status"], SUSPENDED)
        uow.jobs.change(job.id, values)
        live = uow.attempts.find(Where("job_id", "eq", job.id), Where("live", "eq", 1))
        if job.is_array:
            uow.elements.change_where(
                job.id,
                {"status": JobStatus.PREEMPTING},
                Where("status", "in", (JobStatus.STARTING, JobStatus.RUNNING)),
            )
        self._stop(uow, live, SUSPENDED)

    def _requeue(self, uow: UnitOfWork, caller: Caller, job: Job) -> None:
        if job.status in _WAITS or job.status == JobStatus.PREEMPTING:
            return
        if job.status not in (JobStatus.STARTING, JobStatus.RUNNING):
            raise InvalidTransition("job", job.status, "requeue")
        self._stop(
            uow, uow.attempts.find(Where("job_id", "eq", job.id), Where("live", "eq", 1)), "requeue"
        )
        self._event(uow, caller, job, "requeue_requested", job.status, job.status)

    @staticmethod
    def _stop(uow: UnitOfWork, attempts: Iterable[Attempt], reason: str) -> None:
        """Ask for the end of attempts; the first reason stays, but a cancel beats the rest."""
        ids = [one.id for one in attempts if one.stop_reason is None or reason == "cancelled"]
        if ids:
            uow.attempts.change_many(
                ids, {"stop_reason": reason, "stop_requested_at": uow.now(), "attention": True}
            )

    def _event(
        self,
        uow: UnitOfWork,
        caller: Caller,
        job: Job,
        event: str,
        before: str,
        after: str,
        reason: str | None = None,
    ) -> None:
        uow.events.add(
            status_change(
                self._deps.ids,
                uow.now(),
                cause_of(caller),
                "job",
                event,
                job.id,
                before,
                after,
                project_id=job.project_id,
                reason=reason,
            )
        )
