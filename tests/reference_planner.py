# SPDX-License-Identifier: Apache-2.0
"""A slow and obvious planner that checks the fast one: every start, and everything left waiting.

It does not choose; it says of each choice whether it was allowed at that moment (the starts of a
plan are entered one after another), and of each job left whether it would have started it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuservice.domain.inventory import MAX_TASKS_PER_NODE
from gpuservice.planner.plan_types import Plan, Promise, Start
from gpuservice.planner.snapshot import PendingJob, Request, Snapshot, TaskPlacement
from tests.reference_books import (
    INFINITE,
    Books,
    Load,
    replace_count,
    runtime_of,
    suits,
    task_milli,
)

Tasks = tuple[TaskPlacement, ...]


@dataclass(frozen=True)
class Fault:
    """One breach of a law."""

    law: str
    job_id: str
    what: str


def faults(snapshot: Snapshot, plan: Plan, law: str | None = None) -> list[Fault]:
    """Everything wrong with the starts (L1-L4, L13) and with the promises (L5) of a plan."""
    found = [*start_faults(snapshot, plan), *promise_faults(snapshot, plan)]
    return [fault for fault in found if law in (None, fault.law)]


def eligible(snapshot: Snapshot, job: PendingJob) -> bool:
    """Whether a job may be tried at all."""
    queue = next((one for one in snapshot.queues if one.id == job.queue_id), None)
    if job.blocked is not None or queue is None or not queue.open:
        return False
    return job.deadline is None or snapshot.now + runtime_of(job, queue) <= job.deadline


def after_starts(snapshot: Snapshot, plan: Plan) -> tuple[Books, list[PendingJob]]:
    """The accounts once all starts were made, and what still waits (with its elements)."""
    books = Books(snapshot)
    jobs = {job.job_id: job for job in snapshot.pending}
    started = Counter(start.job_id for start in plan.starts)
    for start in plan.starts:
        books.start(jobs[start.job_id], start.tasks)
    left = [
        replace(job, elements=job.elements - started[job.job_id])
        for job in snapshot.pending
        if started[job.job_id] < job.elements
    ]
    return books, left


# --- starts


def start_faults(snapshot: Snapshot, plan: Plan) -> Iterable[Fault]:
    """Each start, in the order of the plan, against what was left by those before it."""
    books = Books(snapshot)
    jobs = {job.job_id: job for job in snapshot.pending}
    number: Counter[str] = Counter()
    for start in plan.starts:
        job, tasks = jobs[start.job_id], start.tasks
        number[job.job_id] += 1
        for law, what in (
            *_gang(job, tasks, number[job.job_id]),
            *_constraints(books, job, tasks),
            *_limits(books, job, tasks),
        ):
            yield Fault(law, job.job_id, what)
        books.start(job, tasks)
        for law, what in overfull(books, books.load):
            yield Fault(law, job.job_id, what)


def _gang(job: PendingJob, tasks: Tasks, number: int) -> Iterable[tuple[str, str]]:
    request = job.request
    if not request.min_count <= len(tasks) <= request.count:
        yield "L2", f"{len(tasks)} tasks of {request.min_count}..{request.count}"
    if [task.rank for task in tasks] != list(range(len(tasks))):
        yield "L2", "ranks are not 0..n-1"
    if number > job.elements:
        yield "L2", f"started {number} of {job.elements} elements"


def _constraints(books: Books, job: PendingJob, tasks: Tasks) -> Iterable[tuple[str, str]]:
    if not eligible(books.snapshot, job):
        yield "L3", "started though held, closed or past what its deadline allows"
    queue = books.queues[job.queue_id]
    end = books.now + runtime_of(job, queue)
    placed = [books.nodes[task.node_id] for task in tasks]
    if len({node.pool_id for node in placed}) != 1:
        yield "L3", "spread over pools"
    for task, node in zip(tasks, placed, strict=True):
        if not node.ready or node.pool_id not in queue.pool_ids:
            yield "L3", f"{node.id} is not ready or not a candidate"
        against = books.reserved_against(node.id, job, books.now, end)
        if against is not None:
            yield "L3", f"{node.id} is reserved for others ({against.id})"
        if not _right_task(job.request, task, {one.id: one for one in node.devices}):
            yield "L3", f"rank {task.rank} has the wrong devices"
    if job.request.required and not together(books, job.request, tasks):
        yield "L3", f"not within one {job.request.within}"


def _right_task(request: Request, task: TaskPlacement, devices: dict[str, object]) -> bool:
    if (task.vcpus, task.memory_mib) != (request.vcpus, request.memory_mib):
        return False
    if len({ident for ident, _ in task.devices}) != len(task.devices):
        return False
    if len(task.devices) != (request.whole or int(request.shared)):
        return False
    return all(
        suits(request, devices[ident]) and milli == task_milli(request, devices[ident])  # type: ignore[arg-type]
        for ident, milli in task.devices
    )


def together(books: Books, request: Request, tasks: Tasks) -> bool:
    """Whether all tasks are within one place of the level that the request names."""
    nodes = {task.node_id for task in tasks}
    level = str(request.within)
    if level == "link_group":
        groups = {books.devices[one].link_group for task in tasks for one, _ in task.devices}
        return len(nodes) == 1 and len(groups) <= 1 and None not in groups
    if len(nodes) == 1:
        return True
    places = {getattr(books.nodes[one], level, None) for one in nodes}
    return level != "node" and len(places) == 1 and None not in places


def _limits(books: Books, job: PendingJob, tasks: Tasks) -> Iterable[tuple[str, str]]:
    amounts = books.amounts(tasks)
    pool = books.nodes[tasks[0].node_id].pool_id if tasks else ""
    if not books.quota_allows(job, pool, amounts):
        yield "L4", f"over the project's quota with {dict(amounts)}"
    if not books.sharing.allows(job, amounts):
        yield "L4", f"over what the queue may use with {dict(amounts)}"


def overfull(books: Books, load: Load) -> Iterable[tuple[str, str]]:
    """Devices and nodes that hold more than they have, or two projects where one may be."""
    for node in books.snapshot.nodes:
        if load.cpus[node.id] > node.vcpus or load.memory[node.id] > node.memory_mib:
            yield "L1", f"{node.id} has not that much CPU or memory"
        if load.tasks[node.id] > MAX_TASKS_PER_NODE:
            yield "L1", f"{node.id} has too many tasks"
        if node.isolation_node and len(load.owners.get(node.id, ())) > 1:
            yield "L13", f"{node.id} has tasks of several projects"
        for device in node.devices:
            if load.milli[device.id] > 1000:
                yield "L1", f"{device.id} holds {load.milli[device.id]} milli"
            if len(load.owners.get(device.id, ())) > 1:
                yield "L13", f"{device.id} has tasks of several projects"


# --- promises


def promise_faults(snapshot: Snapshot, plan: Plan) -> Iterable[Fault]:
    """Each promise at its start: room for all that then run, and all that the job asks for. Who
    goes for others is gone the next moment, and those have what they go for."""
    books, _ = after_starts(snapshot, plan)
    going = {one.gang_id for one in plan.preemptions}
    books.held = [
        replace(held, end=min(held.end, books.now + 1)) if held.gang_id in going else held
        for held in books.held
    ]
    jobs = {job.job_id: job for job in snapshot.pending}
    for promise in plan.promises:
        if promise.job_id not in jobs:
            yield Fault("L5", promise.job_id, "a promise for a job that does not wait")
            continue
        for what in _promise(books, jobs[promise.job_id], promise):
            yield Fault("L5", promise.job_id, what)
        yield from _crowded(books, jobs, promise, (*plan.promises, *plan.claims))


def _crowded(
    books: Books, jobs: Mapping[str, PendingJob], promise: Promise, others: Sequence[Promise]
) -> Iterable[Fault]:
    """Whether at a promised start all promises of then have room on their nodes.

    The devices may be others than those that the promise names, if they are as good.
    """
    load = books.at(promise.start)
    there = [one for one in others if one.start <= promise.start < one.end and one.job_id in jobs]
    for one in sorted(there, key=lambda one: one.start):
        job = jobs[one.job_id]
        for node_id, count in Counter(task.node_id for task in one.tasks).items():
            tasks = books.find_then(job, load, node_id, count)
            if tasks is None:
                yield Fault("L5", one.job_id, f"no room on {node_id} at {promise.start}")
                return
            load.take(job.project_id, tasks)
    limits = books.limits_at(promise.start)
    for one in sorted(there, key=lambda one: one.start):
        job, pool = jobs[one.job_id], books.nodes[one.tasks[0].node_id].pool_id
        amounts = books.amounts(one.tasks)
        if not limits.quota_allows(job, pool, amounts) or not limits.sharing.allows(job, amounts):
            yield Fault("L5", one.job_id, f"over its limits at {promise.start}")
        limits.limit_more(one)


def _promise(books: Books, job: PendingJob, promise: Promise) -> Iterable[str]:
    request, tasks = job.request, promise.tasks
    queue = books.queues[job.queue_id]
    if promise.start <= books.now:
        yield "promised for a moment that is not ahead"
    if promise.end - promise.start != runtime_of(job, queue) and promise.end != INFINITE:
        yield "promised for another time than the job may run"
    if job.deadline is not None and promise.end > job.deadline:
        yield "promised an end after the deadline"
    if not request.min_count <= len(tasks) <= request.count:
        yield f"promised places for {len(tasks)} tasks"
    if request.required and not together(books, request, tasks):
        yield f"promised places that are not within one {request.within}"
    for task in tasks:
        node = books.nodes[task.node_id]
        if not node.ready or node.pool_id not in queue.pool_ids:
            yield f"promised {node.id}, which is not ready or not a candidate"
        if not _right_task(request, task, {one.id: one for one in node.devices}):
            yield "promised the wrong devices"
        if books.reserved_against(task.node_id, job, promise.start, promise.end):
            yield f"promised {node.id} while it is reserved for others"


# --- what was left


def idle_faults(snapshot: Snapshot, plan: Plan) -> Iterable[Fault]:
    """L9: a job that could start on what the plan left with all promises of others kept."""
    books, left = after_starts(snapshot, plan)
    for job in left:
        others = tuple(one for one in plan.promises if one.job_id != job.job_id)
        tasks = None
        if eligible(snapshot, job):
            tasks = books.find(replace_count(job), others)
        if tasks is None:
            continue
        # A promise is of a number of devices: which ones may have changed by what started.
        more = replace(
            plan,
            starts=(*plan.starts, Start(job.job_id, tasks)),
            promises=others,
            claims=tuple(one for one in plan.claims if one.job_id != job.job_id),
        )
        if not any("no room" in fault.what for fault in promise_faults(snapshot, more)):
            yield Fault("L9", job.job_id, f"fits now: {tasks}")


def kept_back(snapshot: Snapshot, plan: Plan) -> list[PendingJob]:
    """Jobs that fit what the plan left but for promises of others or for reservations."""
    books, left = after_starts(snapshot, plan)
    return [
        job
        for job in left
        if eligible(snapshot, job) and books.could_start(job, (), frozenset({"reservations"}))
    ]


def order_faults(snapshot: Snapshot, plan: Plan) -> Iterable[Fault]:
    """L11: of equal jobs (tier, queue, user, request, limit) a later one started first."""
    started = Counter(start.job_id for start in plan.starts)
    waits: dict[object, str] = {}
    for job in sorted(snapshot.pending, key=lambda one: (one.queued_at, one.sequence)):
        if not eligible(snapshot, job):
            continue
        key = equal_jobs(job)
        if key in waits and started[job.job_id]:
            yield Fault("L11", job.job_id, f"started before {waits[key]}")
        if started[job.job_id] < job.elements:
            waits.setdefault(key, job.job_id)


def equal_jobs(job: PendingJob) -> object:
    """Jobs with one such key start in the order of their submission."""
    return (
        job.request,
        job.queue_id,
        job.project_id,
        job.user_id,
        job.priority,
        job.max_runtime_s,
        job.preemptible,
    )
