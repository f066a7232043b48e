# SPDX-License-Identifier: Apache-2.0
"""``plan(snapshot, policy) -> Plan``: the whole decision, pure and deterministic."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from gpuservice.domain.reasons import Reason
from gpuservice.planner.capacity import Candidates, candidates
from gpuservice.planner.explanation import Explainer
from gpuservice.planner.feasibility import Feasibility
from gpuservice.planner.ledger import build, healthy_cells
from gpuservice.planner.ordering import line
from gpuservice.planner.placement import Tasks, place
from gpuservice.planner.plan_types import Plan, Promise, Start
from gpuservice.planner.pools import wanted_sizes
from gpuservice.planner.promises import FOREVER, Future, Release
from gpuservice.planner.quota import Headroom
from gpuservice.planner.snapshot import PendingJob, Policy, QueueState, Request, Snapshot

#: Why a job that was tried may still be promised a start.
_PROMISABLE = (Reason.INSUFFICIENT_GPUS, Reason.BACKFILL_WOULD_DELAY)


class Left(NamedTuple):
    """A job that the plan leaves waiting, in one word why, and the number of its shape."""

    job: PendingJob
    word: str
    shape: int


@dataclass(slots=True)
class Pass:
    """The working state of one plan."""

    snapshot: Snapshot
    policy: Policy
    future: Future
    feasibility: Feasibility
    queues: dict[str, QueueState]
    headroom: Headroom
    starts: list[Start] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)  # by shape
    shapes: dict[object, int] = field(default_factory=dict)

    def shape(self, job: PendingJob) -> int:
        """What a job is known by: equal shapes fail alike until something is freed."""
        key = (job.request, job.queue_id, job.project_id, job.max_runtime_s)
        return self.shapes.setdefault(key, len(self.shapes))

    def pools(self, job: PendingJob) -> tuple[str, ...]:
        """The job's candidate pools, in the queue's order."""
        queue = self.queues.get(job.queue_id)
        return queue.pool_ids if queue else ()

    def where(self, job: PendingJob, request: Request | None = None) -> tuple[Candidates, ...]:
        """The pools in which the job's quota lets it (or a variant of its request) start."""
        return self.headroom.within(
            self.future.ledger, self.pools(job), job.project_id, request or job.request
        )

    def anywhere(self, job: PendingJob) -> tuple[Candidates, ...]:
        """The pools of the job, whatever its quota says."""
        return candidates(self.future.ledger, self.pools(job), job.project_id)

    def places_now(
        self, job: PendingJob, request: Request, runtime: int | None, future: Future | None = None
    ) -> tuple[Tasks | None, bool]:
        """(places that delay no promise, whether it would fit without promises)."""
        future = future or self.future
        where = self.where(job, request)
        free = place(future.ledger, request, where)
        if free is None or not future.promises:
            return free, free is not None
        now = self.snapshot.now
        end = FOREVER if runtime is None else now + runtime
        return place(future.window(now, end), request, where), True


def plan(snapshot: Snapshot, policy: Policy | None = None) -> Plan:
    """Decide what starts where, what is promised, and why the rest waits.

    1. build the ledger; 2. go through the line; 3. start what fits and delays no promise;
    4. promise a start to the first that do not fit; 5. size autoscaled pools; 6. explain.
    """
    policy = policy or Policy()
    state = _begin(snapshot, policy)
    for job in line(snapshot.pending):
        _consider(state, job)
    waiting_for_nodes = [one.job for one in state.left if one.word in _PROMISABLE]
    wanted = wanted_sizes(snapshot, waiting_for_nodes, state.pools)
    waiting = Explainer(state, wanted).explain() if policy.explain else ()
    return Plan(tuple(state.starts), waiting, tuple(state.future.promises), wanted)


def _begin(snapshot: Snapshot, policy: Policy) -> Pass:
    ledger = build(snapshot)
    releases = [
        Release(
            FOREVER if gang.promised_end is None else max(gang.promised_end, snapshot.now + 1),
            gang.tasks,
        )
        for gang in snapshot.running
    ]
    future = Future(snapshot.now, ledger, healthy_cells(snapshot, ledger.layout), releases)
    return Pass(
        snapshot,
        policy,
        future,
        Feasibility(snapshot),
        {queue.id: queue for queue in snapshot.queues},
        Headroom(snapshot),
    )


def _consider(state: Pass, job: PendingJob) -> None:
    """Start as many elements of the job as may and can start; note why the rest waits."""
    shape = state.shape(job)
    blocked = _blocked(state, job)
    if blocked is not None:
        state.left.append(Left(job, blocked, shape))
        return
    reason = state.failed.get(shape)
    for _ in range(job.elements if reason is None else 0):
        reason = _try(state, job)
        if reason is not None:
            state.failed[shape] = reason
            break
    if reason is not None:
        if reason in _PROMISABLE:
            _promise(state, job)
        state.left.append(Left(job, reason, shape))


def _blocked(state: Pass, job: PendingJob) -> str | None:
    """What keeps the job from being tried at all."""
    if job.blocked is not None:
        return job.blocked
    queue = state.queues.get(job.queue_id)
    return Reason.QUEUE_CLOSED if queue is None or not queue.open else None


def _try(state: Pass, job: PendingJob) -> str | None:
    """Start one element, or say in one word why not."""
    if not state.headroom.may_run(job.project_id):
        return Reason.PROJECT_QUOTA
    tasks, fits = state.places_now(job, job.request, job.max_runtime_s)
    if tasks is not None:
        _start(state, job, tasks)
        return None
    if fits:
        return Reason.BACKFILL_WOULD_DELAY
    if not state.feasibility.possible(job.request, state.pools(job)):
        return Reason.IMPOSSIBLE
    if _only_quota(state, job):
        return Reason.PROJECT_QUOTA
    return Reason.INSUFFICIENT_GPUS


def _only_quota(state: Pass, job: PendingJob) -> bool:
    """Whether the project's quota keeps the job from starting, whatever else does.

    Such a job gets no promise: it would keep places from others until its own project's jobs
    end, whose ends are not what the promise was made from.
    """
    where = state.where(job)
    least = job.request.min_count
    if where and all(one.most < least for one in where):
        return True
    return place(state.future.ledger, job.request, state.anywhere(job)) is not None


def _start(state: Pass, job: PendingJob, tasks: Tasks) -> None:
    ledger = state.future.ledger
    ledger.take(tasks, ledger.layout.projects.of(job.project_id))
    now = state.snapshot.now
    state.future.started(tasks, FOREVER if job.max_runtime_s is None else now + job.max_runtime_s)
    state.starts.append(Start(job.job_id, tasks))
    state.headroom.take(ledger, job, tasks)


def _promise(state: Pass, job: PendingJob) -> None:
    """Give the job a start that lower ones must respect, while promises are left."""
    future, limit = state.future, state.policy.promises
    if 0 <= limit <= len(future.promises):
        return
    runtime = FOREVER if job.max_runtime_s is None else float(job.max_runtime_s)
    found = future.earliest(job.request, state.where(job), runtime)
    if found is not None:
        start, tasks = found
        future.promises.append(Promise(job.job_id, start, start + runtime, job.project_id, tasks))
