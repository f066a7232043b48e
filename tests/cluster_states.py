# SPDX-License-Identifier: Apache-2.0
"""Snapshots that follow one from another: with these gangs on the nodes, after those starts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gpuservice.planner.plan_types import Start
from gpuservice.planner.snapshot import PendingJob, RunningGang, Snapshot, TaskPlacement
from tests.reference_books import INFINITE, Books, runtime_of


def gang_of(
    job: PendingJob,
    tasks: tuple[TaskPlacement, ...],
    started_at: float,
    promised_end: float | None,
    *,
    number: int = 0,
) -> RunningGang:
    """The live attempt of a job."""
    return RunningGang(
        job.job_id,
        job.project_id,
        tasks,
        promised_end,
        f"{job.job_id}/{number}",
        job.queue_id,
        job.user_id,
        job.priority,
        started_at,
        job.preemptible,
        preempted=job.preempted,
        request=job.request,
        max_runtime_s=job.max_runtime_s,
    )


def after(snapshot: Snapshot, starts: Iterable[Start], ends: float | None = None) -> Snapshot:
    """The snapshot once the starts were committed (its pending jobs unchanged)."""
    jobs_by_id = {job.job_id: job for job in snapshot.pending}
    books = Books(snapshot)
    gangs = list(snapshot.running)
    for number, start in enumerate(starts):
        job = jobs_by_id[start.job_id]
        books.start(job, start.tasks)
        runtime = runtime_of(job, books.queues.get(job.queue_id))
        end = ends if runtime == INFINITE else snapshot.now + runtime
        gangs.append(gang_of(job, start.tasks, snapshot.now, end, number=number))
    return replace(with_running(snapshot, gangs), headroom=books.left)


def with_running(snapshot: Snapshot, gangs: Iterable[RunningGang]) -> Snapshot:
    """The snapshot's nodes with exactly ``gangs`` on them."""
    made = replace(snapshot, running=tuple(gangs))
    load = Books(made).load

    def owner(thing: str) -> str | None:
        return next(iter(load.owners.get(thing, ())), None)

    return replace(
        made,
        nodes=tuple(
            replace(
                one,
                used_vcpus=load.cpus[one.id],
                used_memory_mib=load.memory[one.id],
                live_tasks=load.tasks[one.id],
                occupant=owner(one.id),
                devices=tuple(
                    replace(device, used_milli=load.milli[device.id], occupant=owner(device.id))
                    for device in one.devices
                ),
            )
            for one in snapshot.nodes
        ),
    )
