# SPDX-License-Identifier: Apache-2.0
"""The jobs of the moment as a replay begins with them: what runs with its rest, what waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from gpuservice.domain.jobspec import JobSpec
from gpuservice.domain.ports_scheduling import WaitingJob
from gpuservice.domain.ports_store import UnitOfWork
from gpuservice.domain.work import Job
from gpuservice.planner.requests import request_of
from gpuservice.planner.snapshot import QueueState, RunningGang, Snapshot
from gpuservice.simulation.opening import Begun
from gpuservice.simulation.recorded import ONE_SECOND
from gpuservice.simulation.workload import WorkloadJob, moment


@dataclass(frozen=True, slots=True)
class Live:
    """``left_out``: how many jobs are not part of it, by reason."""

    jobs: tuple[WorkloadJob, ...] = ()
    begun: tuple[Begun, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)


def live_state(uow: UnitOfWork, snapshot: Snapshot, assumed_s: int) -> Live:
    """Everything that runs and waits, in order of submission.

    What a job really needs nobody knows: it is taken to be the share of its limit that ended jobs
    used (``Snapshot.limit_ratio``), and ``assumed_s`` for one without a limit.
    """
    gangs: dict[str, list[RunningGang]] = {}
    there, lost = {node.id for node in snapshot.nodes}, 0
    for gang in snapshot.running:
        if all(task.node_id in there for task in gang.tasks):
            gangs.setdefault(gang.job_id, []).append(gang)
        else:
            lost += 1
    waiting = {row.id: row for row in _without_held_elements(uow)}
    specs = {
        ident: JobSpec.from_dict(spec)
        for ident, spec in uow.scheduling.specs([*waiting]).items()
    }  # fmt: skip
    running = {job.id: job for job in uow.jobs.get_many(gangs)}
    time = _Time(snapshot, assumed_s)
    held = {ident for ident, row in waiting.items() if row.on_hold and ident not in gangs}
    known = {*running, *(ident for ident, row in waiting.items() if not row.on_hold)}
    rows: list[tuple[datetime, str]] = [
        *((job.created_at, ident) for ident, job in running.items()),
        *(
            (row.created_at, ident) for ident, row in waiting.items()
            if ident in known - running.keys()
        ),
    ]  # fmt: skip
    jobs: list[WorkloadJob] = []
    begun: list[Begun] = []
    for _, ident in sorted(rows):
        if ident in running:
            job = running[ident]
            jobs.append(time.running(job, gangs[ident], waiting.get(ident)))
            begun.extend(time.begun(one) for one in gangs[ident])
        elif any(other in held for other, _ in specs[ident].depends_on):
            held.add(ident)
        else:
            jobs.append(time.waiting(waiting[ident], specs[ident], known))
    return Live(tuple(jobs), tuple(begun), {"held": len(held), "on_lost_nodes": lost})


def _without_held_elements(uow: UnitOfWork) -> list[WaitingJob]:
    """The waiting jobs with the elements that are not held; those of which all are, as held."""
    held = uow.elements.held()
    rows = []
    for row in uow.scheduling.waiting():
        left = row.waiting_elements - held.get(row.id, 0)
        if left <= 0:
            rows.append(replace(row, on_hold=True))
        else:
            rows.append(replace(row, waiting_elements=left))
    return rows


class _Time:
    """Times of the service as seconds from the beginning."""

    def __init__(self, snapshot: Snapshot, assumed_s: int) -> None:
        self._now = snapshot.now
        self._ratio = snapshot.limit_ratio
        self._assumed = float(assumed_s)
        self._queues: dict[str, QueueState] = {queue.id: queue for queue in snapshot.queues}

    def since(self, at: datetime) -> float:
        """How long ago it was."""
        return moment(max(0.0, self._now - at.timestamp()))

    def at(self, when: datetime | None) -> float | None:
        """When it is."""
        return None if when is None else moment(when.timestamp() - self._now)

    def needs(self, limit: int | None, queue_id: str) -> float:
        """What a job is taken to need from its start."""
        queue = self._queues.get(queue_id)
        limit = queue.default_runtime_s if limit is None and queue is not None else limit
        return max(ONE_SECOND, self._assumed if limit is None else moment(self._ratio * limit))

    def left(self, gang: RunningGang) -> float:
        """What a running one is taken to need still."""
        if gang.preempting and gang.promised_end is not None:
            return max(ONE_SECOND, moment(gang.promised_end - self._now))
        ran = max(0.0, self._now - gang.started_at)
        limit = gang.max_runtime_s
        if limit is None:
            return self._assumed
        rest = max(self._ratio * limit - ran, self._ratio * (limit - ran))
        return max(ONE_SECOND, moment(rest))

    def begun(self, gang: RunningGang) -> Begun:
        """An element that runs."""
        ends = gang.promised_end
        return Begun(
            gang.job_id,
            gang.tasks,
            moment(min(0.0, gang.started_at - self._now)),
            self.left(gang),
            None if ends is None else moment(max(ONE_SECOND, ends - self._now)),
            gang.preempted,
            gang.preempting,
        )

    def running(
        self, job: Job, gangs: Sequence[RunningGang], waiting: WaitingJob | None
    ) -> WorkloadJob:
        """A job of which something runs; what it depended on has happened."""
        rest = 0 if waiting is None or waiting.on_hold else waiting.waiting_elements
        ran = max(self._now - one.started_at for one in gangs)
        needs = self.needs(job.max_runtime_s, job.queue_id)
        return WorkloadJob(
            name=job.id,
            submit_s=0.0,
            duration_s=needs if rest else moment(ran + max(self.left(one) for one in gangs)),
            request=request_of(JobSpec.from_dict(job.spec)),
            project=job.project_id,
            queue=job.queue_id,
            user=job.user_id,
            kind=job.kind,
            priority=job.priority,
            max_runtime_s=job.max_runtime_s,
            preemptible=job.preemptible,
            array_size=len(gangs) + rest,
            max_running=job.array_max_running,
            waited_s=self.since(job.queued_at),
        )

    def waiting(self, row: WaitingJob, spec: JobSpec, known: set[str]) -> WorkloadJob:
        """A job that waits. What is not there any more it does not depend on."""
        return WorkloadJob(
            name=row.id,
            submit_s=0.0,
            duration_s=self.needs(row.max_runtime_s, row.queue_id),
            request=request_of(spec),
            project=row.project_id,
            queue=row.queue_id,
            user=row.user_id,
            kind=row.kind,
            priority=row.priority,
            max_runtime_s=row.max_runtime_s,
            preemptible=row.preemptible,
            array_size=max(1, row.waiting_elements),
            max_running=row.array_max_running,
            depends_on=tuple(one for one in spec.depends_on if one[0] in known),
            deadline_s=_later(self.at(row.deadline_at)),
            waited_s=self.since(row.queued_at),
            due_s=self.at(row.due_at),
            promised_s=self.at(row.promised_since),
        )


def _later(deadline: float | None) -> float | None:
    return None if deadline is None else max(deadline, ONE_SECOND)
