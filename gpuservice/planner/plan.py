# SPDX-License-Identifier: Apache-2.0
"""``plan(snapshot, policy) -> Plan``: the whole decision, pure and deterministic."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuservice.domain.reasons import Reason
from gpuservice.planner.capacity import Candidates, candidates
from gpuservice.planner.explanation import Explainer
from gpuservice.planner.feasibility import Feasibility
from gpuservice.planner.ledger import build, healthy_cells
from gpuservice.planner.ordering import line
from gpuservice.planner.placement import Tasks, place
from gpuservice.planner.plan_types import Plan, Promise, Start
from gpuservice.planner.pools import wanted_sizes
from gpuservice.planner.promises import FOREVER, Future, Release, future_candidates
from gpuservice.planner.snapshot import PendingJob, Policy, QueueState, Request, Snapshot

#: What a job is known by when it is tried: equal shapes fail alike until something is freed.
ShapeKey = tuple[Request, str, str, int | None]


@dataclass(slots=True)
class Pass:
    """The working state of one plan."""

    snapshot: Snapshot
    policy: Policy
    future: Future
    feasibility: Feasibility
    queues: dict[str, QueueState]
    own: dict[str, frozenset[str]]
    headroom: dict[tuple[str, str], int]
    starts: list[Start] = field(default_factory=list)
    left: list[tuple[PendingJob, str]] = field(default_factory=list)
    failed: dict[ShapeKey, str] = field(default_factory=dict)

    def pools(self, job: PendingJob) -> frozenset[str]:
        """The job's candidate pools."""
        queue = self.queues.get(job.queue_id)
        return frozenset(queue.pool_ids) if queue else frozenset()

    def where(self, job: PendingJob, request: Request | None = None) -> Candidates:
        """Where the job (or a variant of its request) may go now."""
        return candidates(
            self.future.ledger, self.pools(job), job.project_id,
            self.own.get(job.project_id, frozenset()), request or job.request, self.headroom)

    def places_now(self, job: PendingJob, request: Request, runtime: int | None
                   ) -> tuple[Tasks | None, bool]:
        """(places that delay no promise, whether it would fit without promises)."""
        where = self.where(job, request)
        now = self.snapshot.now
        end = FOREVER if runtime is None else now + runtime
        free = place(self.future.ledger, request, where)
        if free is None or not self.future.promises:
            return free, free is not None
        return place(self.future.window(now, end), request, where), True


def plan(snapshot: Snapshot, policy: Policy | None = None) -> Plan:
    """Decide what starts where, what is promised, and why the rest waits.

    1. build the ledger; 2. go through the line; 3. start what fits and delays no promise;
    4. promise a start to the first that do not fit; 5. size autoscaled pools; 6. explain.
    """
    policy = policy or Policy()
    state = _begin(snapshot, policy)
    for job in line(snapshot.pending):
        _consider(state, job)
    wanted = wanted_sizes(snapshot, [job for job, _ in state.left], state.pools)
    waiting = Explainer(state, wanted).explain() if policy.explain else ()
    return Plan(tuple(state.starts), waiting, tuple(state.future.promises), wanted)


def _begin(snapshot: Snapshot, policy: Policy) -> Pass:
    ledger = build(snapshot)
    own: dict[str, set[str]] = {}
    for pool in snapshot.pools:
        own.setdefault(pool.project_id, set()).add(pool.id)
    releases = [
        Release(FOREVER if gang.promised_end is None
                else max(gang.promised_end, snapshot.now + 1), gang.tasks)
        for gang in snapshot.running
    ]
    future = Future(snapshot.now, ledger, healthy_cells(snapshot, ledger.layout), releases)
    return Pass(
        snapshot, policy, future, Feasibility(snapshot),
        {queue.id: queue for queue in snapshot.queues},
        {project: frozenset(pools) for project, pools in own.items()}, dict(snapshot.headroom))


def _consider(state: Pass, job: PendingJob) -> None:
    """Start as many elements of the job as may and can start; note why the rest waits."""
    if job.blocked is not None:
        state.left.append((job, job.blocked))
        return
    key = (job.request, job.queue_id, job.project_id, job.max_runtime_s)
    reason = state.failed.get(key)
    for _ in range(job.elements if reason is None else 0):
        reason = _try(state, job)
        if reason is not None:
            state.failed[key] = reason
            break
    if reason is not None:
        state.left.append((job, reason))


def _try(state: Pass, job: PendingJob) -> str | None:
    """Start one element, or say in one word why not."""
    left = state.headroom.get((job.project_id, "jobs:running"))
    if left is not None and left < 1:
        return Reason.PROJECT_QUOTA
    tasks, fits = state.places_now(job, job.request, job.max_runtime_s)
    if tasks is not None:
        _start(state, job, tasks)
        return None
    if fits:
        return Reason.BACKFILL_WOULD_DELAY
    if not state.feasibility.possible(job.request, state.pools(job)):
        return Reason.IMPOSSIBLE
    if not _quota_allows(state, job):
        return Reason.PROJECT_QUOTA
    _promise(state, job)
    return Reason.INSUFFICIENT_GPUS


def _quota_allows(state: Pass, job: PendingJob) -> bool:
    """Whether it is not (only) the project's quota that keeps the job from starting."""
    where = candidates(state.future.ledger, state.pools(job), job.project_id,
                       state.own.get(job.project_id, frozenset()), job.request, {})
    return place(state.future.ledger, job.request, where) is None


def _start(state: Pass, job: PendingJob, tasks: Tasks) -> None:
    ledger = state.future.ledger
    ledger.take(tasks, ledger.layout.projects.of(job.project_id))
    now = state.snapshot.now
    state.future.started(
        tasks, FOREVER if job.max_runtime_s is None else now + job.max_runtime_s)
    state.starts.append(Start(job.job_id, tasks))
    _count(state, job, tasks)


def _count(state: Pass, job: PendingJob, tasks: Tasks) -> None:
    """Take from the project's headroom what this very plan gives it."""
    running = (job.project_id, "jobs:running")
    if running in state.headroom:
        state.headroom[running] -= 1
    layout = state.future.ledger.layout
    own = state.own.get(job.project_id, frozenset())
    for task in tasks:
        node = layout.nodes[layout.node_row[task.node_id]]
        milli = sum(share for _, share in task.devices)
        if node.pool_id in own or not milli:
            continue
        for name in ("gpus", f"gpus:{node.devices[0].gpu_type}"):
            key = (job.project_id, name)
            if key in state.headroom:
                state.headroom[key] -= milli


def _promise(state: Pass, job: PendingJob) -> None:
    """Give the job a start that lower ones must respect, while promises are left."""
    future = state.future
    limit = state.policy.promises
    if 0 <= limit <= len(future.promises):
        return
    project = future.ledger.layout.projects.of(job.project_id)
    where = future_candidates(future.ledger, state.pools(job), project)
    runtime = FOREVER if job.max_runtime_s is None else float(job.max_runtime_s)
    found = future.earliest(job.request, where, runtime)
    if found is not None:
        start, tasks = found
        future.promises.append(
            Promise(job.job_id, start, start + runtime, job.project_id, tasks))
