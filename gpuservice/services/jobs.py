# SPDX-License-Identifier: Apache-2.0
"""Jobs: create, try, list, show, change, delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from gpuservice.domain.context import Caller, cause_of
from gpuservice.domain.errors import Conflict, Forbidden
from gpuservice.domain.happenings import happening
from gpuservice.domain.job_removal import remove_job
from gpuservice.domain.jobspec import priority_of
from gpuservice.domain.ports import DryRun, Hint
from gpuservice.domain.ports_store import Page, UnitOfWork, Where
from gpuservice.domain.states import JOB_ENDED
from gpuservice.domain.work import Allocation, Attempt, Job, Task
from gpuservice.services.deps import Deps
from gpuservice.services.idempotency import Once
from gpuservice.services.job_actions import JobActions
from gpuservice.services.job_rules import check_priority, check_queued, job_row
from gpuservice.services.visibility import check_generation, found, owned

#: Bytes of requests in a page of jobs, about; jobs that are read at once.
PAGE_BYTES = 4 << 20
_PIECE = 50


@dataclass(frozen=True, slots=True)
class JobView:
    """A job with the names that its answer shows."""

    job: Job
    queue: str
    nodes: tuple[str, ...] = ()
    granted: tuple[dict[str, Any], ...] = field(default=())


class Jobs:
    """Jobs."""

    def __init__(self, deps: Deps, actions: JobActions) -> None:
        self._deps = deps
        self._actions = actions

    def create(self, caller: Caller, body: Mapping[str, Any], once: Once) -> JobView:
        """Put a job in line; the quota of waiting jobs is taken with it."""

        def work(uow: UnitOfWork) -> JobView:
            once.begin(uow)
            job = job_row(uow, self._deps, caller, body, hold=True)
            uow.jobs.add(job)
            uow.events.add(
                happening(
                    self._deps.ids,
                    uow.now(),
                    cause_of(caller),
                    "job.create",
                    "job",
                    job.id,
                    project_id=job.project_id,
                    detail={"to": job.status, "elements": job.elements},
                )
            )
            view = JobView(job, str(body.get("queue", "default")))
            once.keep(uow, view)
            # Last: all of a project's submissions wait for each other from here to the commit.
            uow.quotas.take(caller.project_id, {"jobs:queued": job.waiting_elements})
            return view

        view = self._deps.store.write(work)
        self._deps.hints.send(Hint("jobs", (view.job.id,)))
        return view

    def dry_run(self, caller: Caller, body: Mapping[str, Any]) -> tuple[JobView, DryRun]:
        """What would happen; every rule of ``create`` holds, nothing is kept."""

        def work(uow: UnitOfWork) -> Job:
            job = job_row(uow, self._deps, caller, body)
            check_queued(uow, job)
            return job

        job = self._deps.store.read(work)
        return JobView(job, str(body.get("queue", "default"))), self._deps.planning.dry_run(job)

    def page(
        self, caller: Caller, page: Page, count: bool
    ) -> tuple[list[JobView], int | None, bool]:
        """One page, the count if wanted, and whether the page was cut short: a job may be a
        megabyte, and a list must fit in memory and in an answer."""

        def work(uow: UnitOfWork) -> tuple[list[JobView], int | None, bool]:
            jobs, cut = _within_bytes(uow, _by_queue_id(uow, page))
            total = uow.jobs.count(*page.where, labels=page.labels) if count else None
            return views(uow, jobs), total, cut

        return self._deps.store.read(work)

    def show(self, caller: Caller, ident: str) -> JobView:
        """One."""
        return self._deps.store.read(
            lambda uow: views(uow, [owned(uow.jobs, caller, ident, "job")])[0]
        )

    def change(
        self, caller: Caller, ident: str, patch: Mapping[str, Any], generation: int | None
    ) -> JobView:
        """Change priority, labels, time limit or hold."""

        def work(uow: UnitOfWork) -> JobView:
            job = owned(uow.jobs, caller, ident, "job", lock=True)
            check_generation(job, generation)
            values = self._values(uow, caller, job, patch)
            if values:
                uow.jobs.change(ident, values, edit=True)
                if "max_runtime_s" in values and job.live_elements:
                    self._apply_limit(uow, job, values["max_runtime_s"])
                uow.events.add(
                    happening(
                        self._deps.ids,
                        uow.now(),
                        cause_of(caller),
                        "job.change",
                        "job",
                        ident,
                        project_id=job.project_id,
                        detail={"fields": sorted(patch)},
                    )
                )
            if "hold" in patch:
                self._actions.set_hold(uow, caller, found(uow.jobs, ident, "job"), patch["hold"])
            return views(uow, [found(uow.jobs, ident, "job")])[0]

        view = self._deps.store.write(work)
        self._deps.hints.send(Hint("attempts", (ident,)))
        self._deps.hints.send(Hint("jobs", (ident,)))
        return view

    @staticmethod
    def _apply_limit(uow: UnitOfWork, job: Job, limit_s: int | None) -> None:
        """What runs of the job ends by the new limit: its nodes are told it, and the conductor
        reckons anew when its time is over."""
        live = uow.attempts.find(Where("job_id", "eq", job.id), Where("live", "eq", 1))
        uow.nodes.bump_revision(
            sorted({task.node_id for task in uow.tasks.of_attempts([one.id for one in live])})
        )
        # They stay live meanwhile: whoever ends an attempt locks its job first.
        uow.attempts.change_each(
            [
                (attempt.id, {"attention": True, "promised_end_at": _end(attempt, limit_s)})
                for attempt in live
            ]
        )

    @staticmethod
    def _values(
        uow: UnitOfWork, caller: Caller, job: Job, patch: Mapping[str, Any]
    ) -> dict[str, Any]:
        values: dict[str, Any] = {}
        if job.status in JOB_ENDED and set(patch) - {"labels"}:
            raise Conflict(f"The job is {job.status}; only its labels may still change.")
        if "labels" in patch:
            merged = {**job.labels, **patch["labels"]}
            values["labels"] = {key: value for key, value in merged.items() if value is not None}
        if "priority" in patch:
            priority = priority_of(patch["priority"])
            check_priority(priority, found(uow.queues, job.queue_id, "queue"))
            values["priority"] = priority
        if "max_runtime_s" in patch:
            raised = _raised(job.max_runtime_s, patch["max_runtime_s"])
            if job.live_elements and raised and not caller.is_manager:
                raise Forbidden(
                    "Raising the time limit of a running job is a manager's.",
                    pointer="/job/max_runtime_s",
                )
            values["max_runtime_s"] = patch["max_runtime_s"]
        return values

    def delete(self, caller: Caller, ident: str, generation: int | None) -> bool:
        """Delete an ended job with logs and artifacts (True), or cancel a live one, which goes
        at its end (False)."""

        def work(uow: UnitOfWork) -> Job | None:
            job = owned(uow.jobs, caller, ident, "job", lock=True)
            check_generation(job, generation)
            if job.status not in JOB_ENDED:
                uow.jobs.change(ident, {"delete_requested": True})
                self._actions.cancel_whole(uow, caller, job)
                job = found(uow.jobs, ident, "job")
                if job.status not in JOB_ENDED:
                    return None
            remove_job(uow, job, self._deps.ids, cause_of(caller))
            return job

        job = self._deps.store.write(work)
        self._deps.hints.send(Hint("attempts", (ident,)))
        if job is None:
            return False
        self._deps.logs.delete(ident)
        self._deps.objects.delete(ident)
        return True


def _end(attempt: Attempt, limit_s: int | None) -> datetime | None:
    if limit_s is None:
        return None
    return (attempt.started_at or attempt.created_at) + timedelta(seconds=limit_s)


def _raised(before: int | None, after: int | None) -> bool:
    if before is None:
        return False
    return after is None or after > before


def _by_queue_id(uow: UnitOfWork, page: Page) -> Page:
    """A filter by queue name as one by id."""
    where: list[Where] = []
    for one in page.where:
        if one.field != "queue_id":
            where.append(one)
            continue
        wanted = one.value if isinstance(one.value, list) else [one.value]
        ids = [row.id for row in uow.queues.find(Where("name", "in", wanted))]
        op = "notin" if one.op == "ne" else "in"
        where.append(Where("queue_id", op, [*ids, *wanted]))
    return Page(tuple(where), page.sort, page.limit, page.marker, page.labels)


def _within_bytes(uow: UnitOfWork, page: Page) -> tuple[list[Job], bool]:
    """The page as far as its requests stay within bounds, and whether it ended before its time.

    It is read in pieces, so that what is not shown is not held in memory either.
    """
    jobs: list[Job] = []
    left, marker = PAGE_BYTES, page.marker
    while len(jobs) < page.limit:
        wanted = min(_PIECE, page.limit - len(jobs))
        rows = uow.jobs.page(replace(page, limit=wanted, marker=marker))
        for row in rows:
            if left <= 0:
                return jobs, True
            left -= _bytes(row)
            jobs.append(row)
        if len(rows) < wanted:
            return jobs, False
        marker = rows[-1].id
    return jobs, False


def _bytes(job: Job) -> int:
    """About how much its request takes; of its fields these alone may be large."""
    spec = job.spec
    words = (*(spec["command"] or ()), spec["script"] or "", *spec["env"].values())
    places = (word or "" for one in (*spec["inputs"], *spec["outputs"]) for word in one.values())
    return 1000 + sum(map(len, words)) + sum(map(len, places))


def views(uow: UnitOfWork, jobs: Sequence[Job]) -> list[JobView]:
    """Jobs with queue names, and where live ones are (a fixed number of queries)."""
    queues = {row.id: row.name for row in uow.queues.get_many({job.queue_id for job in jobs})}
    live = [job.id for job in jobs if job.live_elements]
    attempts: list[Attempt] = []
    if live:
        attempts = uow.attempts.find(Where("job_id", "in", live), Where("live", "eq", 1))
    tasks: dict[str, list[Task]] = {}
    for task in uow.tasks.of_attempts([one.id for one in attempts]):
        tasks.setdefault(task.job_id, []).append(task)
    names = {
        node.id: node.name
        for node in uow.nodes.get_many({task.node_id for group in tasks.values() for task in group})
    }
    held = _held(uow, [task.id for group in tasks.values() for task in group])
    return [
        JobView(
            job,
            queues.get(job.queue_id, ""),
            tuple(sorted({names[task.node_id] for task in tasks.get(job.id, ())})),
            tuple(
                _granted(task, names, held.get(task.id, [])) for task in tasks.get(job.id, ())[:100]
            ),
        )
        for job in jobs
    ]


def _held(uow: UnitOfWork, task_ids: Sequence[str]) -> dict[str, list[Allocation]]:
    held: dict[str, list[Allocation]] = {}
    if task_ids:
        for one in uow.allocations.find(
            Where("task_id", "in", list(task_ids)), Where("released_at", "null")
        ):
            held.setdefault(one.task_id, []).append(one)
    return held


def _granted(task: Task, names: Mapping[str, str], held: Sequence[Allocation]) -> dict[str, Any]:
    shared = any(one.milli < 1000 for one in held)
    return {
        "index": task.index,
        "rank": task.rank,
        "node": names[task.node_id],
        "gpu_milli": task.gpu_milli,
        "devices": [{"device_id": one.device_id, "milli": one.milli} for one in held],
        "sharing": "cooperative" if shared else "exclusive",
    }
