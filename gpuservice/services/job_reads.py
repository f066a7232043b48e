# SPDX-License-Identifier: Apache-2.0
"""What can be seen of a job: elements, attempts, explanation, artifacts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

from gpuservice.domain import moments
from gpuservice.domain.context import Caller
from gpuservice.domain.errors import NotFound
from gpuservice.domain.explanations import failure_advice, merged_holders
from gpuservice.domain.ports_store import Page, UnitOfWork, Where
from gpuservice.domain.reasons import Reason
from gpuservice.domain.states import JOB_ENDED, JobStatus
from gpuservice.domain.work import Allocation, Artifact, Attempt, Job, JobElement, Task
from gpuservice.services.deps import Deps
from gpuservice.services.visibility import owned


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task with the name of its node and its devices."""

    task: Task
    node_name: str
    devices: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class AttemptView:
    """An attempt with its tasks."""

    attempt: Attempt
    tasks: tuple[TaskView, ...]


class JobReads:
    """Reads below one job; each starts with whether the job exists for the caller."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    def elements(
        self, caller: Caller, ident: str, limit: int, after: int | None
    ) -> list[JobElement]:
        """Elements that have started, ended or wait for another attempt, by index."""

        def work(uow: UnitOfWork) -> list[JobElement]:
            owned(uow.jobs, caller, ident, "job")
            return uow.elements.of_job(ident, limit=limit, after=after)

        return self._deps.store.read(work)

    def attempts(
        self, caller: Caller, ident: str, page: Page, count: bool
    ) -> tuple[list[AttemptView], int | None]:
        """One page of the job's attempts, with tasks and devices (a fixed number of queries)."""
        page = _of_job(page, ident)

        def work(uow: UnitOfWork) -> tuple[list[AttemptView], int | None]:
            owned(uow.jobs, caller, ident, "job")
            total = uow.attempts.count(*page.where) if count else None
            return _attempt_views(uow, uow.attempts.page(page)), total

        return self._deps.store.read(work)

    def artifacts(
        self, caller: Caller, ident: str, page: Page, count: bool
    ) -> tuple[list[Artifact], int | None]:
        """One page of the job's published artifacts."""
        page = _of_job(page, ident, Where("published", "eq", True))

        def work(uow: UnitOfWork) -> tuple[list[Artifact], int | None]:
            owned(uow.jobs, caller, ident, "job")
            total = uow.artifacts.count(*page.where) if count else None
            return uow.artifacts.page(page), total

        return self._deps.store.read(work)

    def artifact(
        self, caller: Caller, ident: str, path: str, index: int
    ) -> tuple[Artifact, BinaryIO]:
        """One artifact by ``{attempt}/{rank}/{path}``, with its bytes."""
        attempt, _, rest = path.partition("/")
        rank, _, inner = rest.partition("/")

        def work(uow: UnitOfWork) -> Artifact:
            owned(uow.jobs, caller, ident, "job")
            rows: list[Artifact] = []
            if _number(attempt) and _number(rank):
                rows = uow.artifacts.find(
                    Where("job_id", "eq", ident),
                    Where("published", "eq", True),
                    Where("index", "eq", index),
                    Where("attempt", "eq", int(attempt)),
                    Where("rank", "eq", int(rank)),
                    Where("path", "eq", inner),
                )
            if not rows:
                raise NotFound.of("artifact", path[:200])
            return rows[0]

        row = self._deps.store.read(work)
        return row, self._deps.objects.open(row.object_key)

    def explain(self, caller: Caller, ident: str) -> dict[str, Any]:
        """Why the job waits, where it runs, or why it failed."""

        def work(uow: UnitOfWork) -> dict[str, Any]:
            job = owned(uow.jobs, caller, ident, "job")
            body: dict[str, Any] = {"job_id": job.id, "status": job.status}
            if job.status in JOB_ENDED:
                return {**body, **_ended(job)}
            if job.live_elements and not job.waiting_elements:
                attempts = uow.attempts.find(
                    Where("job_id", "eq", ident), Where("live", "eq", 1), limit=100
                )
                return {**body, **_placed(job, _attempt_views(uow, attempts))}
            return {**body, **self._waiting(uow, caller, job)}

        return self._deps.store.read(work)

    @staticmethod
    def _waiting(uow: UnitOfWork, caller: Caller, job: Job) -> dict[str, Any]:
        known = uow.explanation(job.id)
        if known is None:
            detail = "The job was not planned yet; the first plan follows within a second."
            return {
                "summary": detail,
                "position": None,
                "evaluated_at": None,
                "reasons": [{"code": Reason.EVALUATING, "detail": detail, "facts": {}}],
                "holders": [],
                "estimated_start_at": None,
                "estimate_basis": None,
                "would_start_now_if": [],
            }
        holders = merged_holders(known.body["holders"], caller.project_id, caller.is_admin)
        return {**known.body, "holders": holders, "evaluated_at": moments.shown(known.evaluated_at)}


def _of_job(page: Page, ident: str, *where: Where) -> Page:
    return replace(page, where=(Where("job_id", "eq", ident), *where, *page.where))


def _number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9


def _ended(job: Job) -> dict[str, Any]:
    summary = f"The job is {job.status}"
    summary += f": {job.status_reason}" if job.status_reason else "."
    body: dict[str, Any] = {"summary": summary, "reasons": []}
    if job.failure_class is not None:
        body["failure"] = {
            "class": job.failure_class,
            "evidence": job.evidence or {},
            "what_to_do": failure_advice(job.failure_class),
        }
    return body


def _placed(job: Job, views: Sequence[AttemptView]) -> dict[str, Any]:
    places = [
        {
            "index": view.attempt.index,
            "rank": task.task.rank,
            "node": task.node_name,
            "devices": list(task.devices),
        }
        for view in views
        for task in view.tasks
    ]
    nodes = sorted({str(place["node"]) for place in places})
    summary = f"Runs on {', '.join(nodes)}."
    if job.status == JobStatus.PREEMPTING:
        summary = f"Stops on {', '.join(nodes)} within its grace period ({job.status_reason})."
    return {"summary": summary, "reasons": [], "placement": places}


def _attempt_views(uow: UnitOfWork, attempts: Sequence[Attempt]) -> list[AttemptView]:
    tasks = uow.tasks.of_attempts([one.id for one in attempts])
    names = {node.id: node.name for node in uow.nodes.get_many({task.node_id for task in tasks})}
    shares: list[Allocation] = []
    if tasks:
        shares = uow.allocations.find(Where("task_id", "in", [task.id for task in tasks]))
    devices = {one.id: one for one in uow.devices.get_many({one.device_id for one in shares})}
    held: dict[str, list[dict[str, Any]]] = {}
    for share in shares:
        device = devices.get(share.device_id)
        held.setdefault(share.task_id, []).append(
            {
                "device_id": share.device_id,
                "milli": share.milli,
                "address": device.address if device else None,
                "index": device.ordinal if device else None,
            }
        )
    grouped: dict[str, list[TaskView]] = {}
    for task in tasks:
        grouped.setdefault(task.attempt_id, []).append(
            TaskView(task, names.get(task.node_id, ""), tuple(held.get(task.id, ())))
        )
    return [AttemptView(one, tuple(grouped.get(one.id, ()))) for one in attempts]
