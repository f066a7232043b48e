# SPDX-License-Identifier: Apache-2.0
"""From a request for a job to its row: queue, priority, limits, dependencies."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from gpuservice.domain import moments
from gpuservice.domain.context import Caller
from gpuservice.domain.data_urls import check_roots
from gpuservice.domain.errors import (
    Invalid,
    PriorityForbidden,
    QueueClosed,
    QuotaExceeded,
    UnknownReference,
)
from gpuservice.domain.jobspec import alone, normalise
from gpuservice.domain.ports_store import UnitOfWork, Where
from gpuservice.domain.quota import UNLIMITED, exceeded_alone, shown
from gpuservice.domain.reasons import Reason
from gpuservice.domain.states import JobStatus, QueueStatus
from gpuservice.domain.work import Job, Queue
from gpuservice.services.deps import Deps
from gpuservice.services.visibility import queue_for


def job_row(
    uow: UnitOfWork, deps: Deps, caller: Caller, body: Mapping[str, Any], *, hold: bool = False
) -> Job:
    """The row of a new job; nothing is written.

    :param hold: its queue may not go or close until the unit of work ends.
    :raises Invalid, QueueClosed, PriorityForbidden, QuotaExceeded: as the rules say.
    """
    queue = queue_for(uow, caller, body.get("queue", "default"), hold=hold)
    if queue.status != QueueStatus.OPEN:
        raise QueueClosed(
            f"The queue {queue.name!r} is {queue.status} and takes no new jobs.",
            pointer="/job/queue",
        )
    spec = normalise(body, queue.kinds, deps.conf.jobs.default_max_runtime_s)
    if deps.conf.agent.file_roots:
        check_roots(spec, deps.conf.agent.file_roots)
    check_priority(spec["priority"], queue)
    _check_array(spec, deps.conf.jobs.max_array)
    _check_alone(uow, caller, spec)
    _check_dependencies(uow, caller, spec)
    return _row(deps, caller, queue, spec, uow.now())


def _row(deps: Deps, caller: Caller, queue: Queue, spec: dict[str, Any], now: datetime) -> Job:
    array = spec["array"]
    return Job(
        id=deps.ids.new(),
        created_at=now,
        updated_at=now,
        project_id=caller.project_id,
        user_id=caller.user_id,
        name=spec["name"],
        queue_id=queue.id,
        kind=spec["kind"],
        status=JobStatus.HELD if spec["hold"] else JobStatus.QUEUED,
        on_hold=spec["hold"],
        priority=spec["priority"],
        spec=spec,
        labels=spec["labels"],
        preemptible=spec["preemptible"],
        max_runtime_s=spec["max_runtime_s"],
        deadline_at=moment(spec["deadline_at"]),
        array_size=array["size"] if array else None,
        array_max_running=array["max_running"] if array else None,
        array_max_failures=array["max_failures"] if array else None,
        waiting_elements=array["size"] if array else 1,
        queued_at=now,
        **unplanned(spec["hold"]),
    )


def unplanned(held: bool) -> dict[str, Any]:
    """What a list says of a waiting job until it is planned (anew)."""
    code, summary = (
        (Reason.HELD, "The job is held.")
        if held
        else (Reason.EVALUATING, "The job was not planned yet.")
    )
    return {
        "waiting_code": code,
        "waiting_summary": summary,
        "waiting_position": None,
        "waiting_estimated_start_at": None,
    }


def moment(text: str | None) -> datetime | None:
    """An ISO 8601 time of a body, taken as UTC when it names no zone."""
    if text is None:
        return None
    try:
        return moments.parsed(text)
    except ValueError as error:
        raise Invalid(
            f"deadline_at is {text[:80]!r}; it must be an ISO 8601 time from 1970 to 9998.",
            pointer="/job/deadline_at",
        ) from error


def check_priority(priority: int, queue: Queue) -> None:
    """Raise ``PriorityForbidden`` above what the queue allows."""
    if priority > queue.max_priority:
        raise PriorityForbidden(
            f"The priority {priority} is above {queue.max_priority}, the highest of the queue "
            f"{queue.name!r}.",
            pointer="/job/priority",
            meta={"max_priority": queue.max_priority},
        )


def _check_array(spec: Mapping[str, Any], largest: int) -> None:
    if spec["array"] and spec["array"]["size"] > largest:
        raise Invalid(
            f"The array has {spec['array']['size']} elements; at most {largest} are allowed.",
            pointer="/job/array/size",
        )


def _check_alone(uow: UnitOfWork, caller: Caller, spec: Mapping[str, Any]) -> None:
    """A request that exceeds a limit by itself would wait for ever: it is refused now."""
    asked = alone(spec)
    limits = uow.quotas.effective_limits(caller.project_id)
    name = exceeded_alone(asked, limits)
    if name is not None:
        facts = {
            "limit": name,
            "value": shown(name, limits[name]),
            "used": 0,
            "asked": shown(name, asked[name]),
        }
        raise QuotaExceeded(
            f"The job needs {facts['asked']} of {name!r} at once; the limit is {facts['value']}.",
            pointer="/job/resources",
            meta=facts,
        )


def check_queued(uow: UnitOfWork, job: Job) -> None:
    """Whether the job may wait beside those of its project that wait already; nothing is taken.

    :raises QuotaExceeded: otherwise.
    """
    name = "jobs:queued"
    state = next((one for one in uow.quotas.states(job.project_id) if one.name == name), None)
    if state is None or state.limit == UNLIMITED:
        return
    if state.in_use + job.waiting_elements > state.limit:
        facts = {
            "limit": name,
            "value": state.limit,
            "used": state.in_use,
            "asked": job.waiting_elements,
        }
        raise QuotaExceeded(
            f"The limit {name!r} is {state.limit}; {state.in_use} are in use and "
            f"{job.waiting_elements} more were asked for.",
            meta=facts,
        )


def _check_dependencies(uow: UnitOfWork, caller: Caller, spec: Mapping[str, Any]) -> None:
    wanted = [one["job"] for one in spec["depends_on"]]
    if not wanted:
        return
    known = {
        job.id
        for job in uow.jobs.find(Where("id", "in", wanted))
        if job.project_id == caller.project_id
    }
    for index, ident in enumerate(wanted):
        if ident not in known:
            raise UnknownReference(
                f"There is no job {ident!r} that may be used here.",
                pointer=f"/job/depends_on/{index}/job",
            )
