# SPDX-License-Identifier: Apache-2.0
"""The port ``Planning``: a dry run on the state of the moment, one at a time in a process.

What was worked out for one dry run serves the next: only what changed meanwhile is read and
followed, however many jobs wait, and within ``FRESH_S`` nothing is read anew.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuservice.domain import moments
from gpuservice.domain.errors import Busy
from gpuservice.domain.explanations import merged_holders
from gpuservice.domain.inventory import Flavor
from gpuservice.domain.jobspec import JobSpec
from gpuservice.domain.ports import DryRun
from gpuservice.domain.ports_scheduling import WaitingJob
from gpuservice.domain.ports_store import Store, UnitOfWork
from gpuservice.domain.reasons import Reason
from gpuservice.domain.work import Job
from gpuservice.planner.keeping import Keeping
from gpuservice.planner.plan_types import Plan, Waiting
from gpuservice.planner.snapshot import PendingJob, Policy, PoolState, Request, TaskPlacement
from gpuservice.scheduler.collect import Collected, Collector, pending_job
from gpuservice.scheduler.dry_cost import Costs
from gpuservice.scheduler.explaining import body_of

#: A dry run waits this long (seconds) for the one before it.
_PATIENCE_S = 2.0
#: A snapshot no older than this (seconds) is good for the next dry run.
FRESH_S = 0.5
#: Tasks whose places are told.
_SHOWN = 1000

_Others = Mapping[str, tuple[str, bool]]


class SnapshotPlanning:
    """Plans one hypothetical job behind everything that waits now.

    :param fresh_s: how old a snapshot may be.
    """

    def __init__(
        self,
        store: Store,
        collector: Collector,
        policy: Policy,
        monotonic: Callable[[], float] = time.monotonic,
        fresh_s: float = FRESH_S,
    ) -> None:
        self._store = store
        self._collector = collector
        self._policy = policy
        self._lock = threading.Lock()
        self._keeping = Keeping()
        self._monotonic, self._fresh_s = monotonic, fresh_s
        self._last: tuple[float, Collected, dict[str, Flavor]] | None = None

    def dry_run(self, job: Job) -> DryRun:
        """What would happen to the job; raises ``Busy`` when too many ask at once."""
        if not self._lock.acquire(timeout=_PATIENCE_S):
            raise Busy("Too many dry runs at once; try again.", meta={"retry_after_s": 2})
        try:
            return self._run(job)
        except Exception:
            # What it was in the middle of is not to be built upon.
            self._keeping, self._last = Keeping(), None
            raise
        finally:
            self._lock.release()

    def _run(self, job: Job) -> DryRun:
        spec = JobSpec.from_dict(job.spec)

        collected, flavors = self._collected()
        others: _Others = {}
        if spec.depends_on:
            others = self._store.read(lambda uow: _statuses(uow, spec))
        snapshot = collected.snapshot
        pending = _pending(job, spec, others, snapshot.now)
        made = self._keeping.plan(
            replace(snapshot, pending=(*snapshot.pending, pending)),
            replace(self._policy, explain=True, focus=job.id),
        )
        found = _Found(job, made)
        body = None if found.entry is None else body_of(found.entry)
        if body is not None:
            # Whoever asks for a dry run is told of its own project's jobs, as in explain.
            body["holders"] = merged_holders(body["holders"], job.project_id, False)
        costs = Costs(collected.pools, flavors)
        return DryRun(
            found.status,
            _shown(found.tasks, collected),
            body,
            found.start(snapshot.now),
            found.basis,
            costs.of(
                job,
                pending.request,
                _candidates(collected, pending.request, job),
                found.tasks[0] if found.tasks else (),
                collected,
            ),
            self._preempted(job, made, collected),
        )

    def _collected(self) -> tuple[Collected, dict[str, Flavor]]:
        """The state of the moment, or of one just before it."""
        now = self._monotonic()
        if self._last is None or now - self._last[0] > self._fresh_s:

            def read(uow: UnitOfWork) -> tuple[Collected, dict[str, Flavor]]:
                return self._collector.collect(uow), {row.id: row for row in uow.flavors.find()}

            self._last = (now, *self._store.read(read))
        return self._last[1], self._last[2]

    def _preempted(self, job: Job, made: Plan, collected: Collected) -> dict[str, Any]:
        """Whom it would preempt; jobs of other projects are a number."""
        going = {one.gang_id for one in made.preemptions if one.for_job_id == job.id}
        gangs = [gang for gang in collected.snapshot.running if gang.gang_id in going]
        own = sorted({gang.job_id for gang in gangs if gang.project_id == job.project_id})
        named = self._store.read(lambda uow: uow.jobs.get_many(own)) if own else []
        return {
            "count": len(gangs),
            "jobs": [{"job_id": row.id, "name": row.name} for row in named],
            "others": sum(gang.project_id != job.project_id for gang in gangs),
        }


class _Found:
    """What a plan says of the job."""

    def __init__(self, job: Job, made: Plan) -> None:
        self.entry: Waiting | None = next(
            (one for one in made.waiting if one.job_id == job.id), None
        )
        starts = [one.tasks for one in made.starts if one.job_id == job.id]
        promised = [one for one in made.promises if one.job_id == job.id]
        #: By element, where it would run.
        self.tasks: list[tuple[TaskPlacement, ...]] = starts or [one.tasks for one in promised]
        self.status, self.basis = "waits", None if self.entry is None else "estimated"
        if starts:
            self.status, self.basis = "starts_now", "now"
        elif promised:
            self.basis = "promised"
        elif self.entry is not None:
            if self.entry.reasons[0].code == Reason.IMPOSSIBLE:
                self.status = "impossible"
            if self.entry.estimated_start is None:
                self.basis = None

    def start(self, now: float) -> Any:
        """When."""
        if self.basis == "now":
            return moments.reckoned(now)
        return None if self.entry is None else moments.reckoned(self.entry.estimated_start)


def _statuses(uow: UnitOfWork, spec: JobSpec) -> _Others:
    """Of the jobs that it would depend on."""
    wanted = {ident for ident, _ in spec.depends_on}
    return {row.id: (row.status, row.started_at is not None) for row in uow.jobs.get_many(wanted)}


def _pending(job: Job, spec: JobSpec, others: _Others, now: float) -> PendingJob:
    """The job as if it had been submitted now."""
    row = WaitingJob(**{name: getattr(job, name) for name in WaitingJob.__slots__})
    made = pending_job(row, spec, job.queued_at, others, False, 0, 0)
    return replace(made, queued_at=now, sequence=int(now * 1e6))


def _candidates(collected: Collected, request: Request, job: Job) -> list[PoolState]:
    """The pools on which it might run, by the type of their GPUs."""
    snapshot = collected.snapshot
    queue = next((one for one in snapshot.queues if one.id == job.queue_id), None)
    return [
        pool
        for pool in snapshot.pools
        if queue is not None
        and pool.id in queue.pool_ids
        and (not request.gpu_types or pool.template.gpu_type in request.gpu_types)
    ]


def _shown(
    elements: Sequence[Sequence[TaskPlacement]], collected: Collected
) -> tuple[dict[str, Any], ...]:
    """Places with the names of nodes."""
    places = [
        {
            "index": index,
            "rank": task.rank,
            "node": collected.nodes[task.node_id].name,
            "devices": [device for device, _ in task.devices],
        }
        for index, tasks in enumerate(elements)
        for task in tasks
    ]
    return tuple(places[:_SHOWN])
