# SPDX-License-Identifier: Apache-2.0
"""Live attempts as the planner is told of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from gpuservice.domain.ports_scheduling import LiveGang, LiveTask
from gpuservice.domain.states import AttemptStatus
from gpuservice.planner import snapshot as plan_input


def held_milli(tasks: Sequence[LiveTask]) -> dict[str, int]:
    """The milli-GPUs that each attempt holds."""
    held: dict[str, int] = {}
    for task in tasks:
        milli = sum(share for _, share in task.shares)
        held[task.attempt_id] = held.get(task.attempt_id, 0) + milli
    return held


def running_gangs(
    gangs: Sequence[LiveGang],
    tasks: Sequence[LiveTask],
    wants: Mapping[str, tuple[plan_input.Request, int]],
    protected_s: float,
) -> tuple[plan_input.RunningGang, ...]:
    """Every attempt that holds something.

    :param wants: by job what it asked for, and its grace in seconds.
    """
    places: dict[str, list[plan_input.TaskPlacement]] = {}
    for task in tasks:
        places.setdefault(task.attempt_id, []).append(
            plan_input.TaskPlacement(
                task.rank, task.node_id, task.shares, task.vcpus, task.memory_mib
            )
        )
    return tuple(
        running_gang(gang, tuple(places[gang.attempt_id]), wants.get(gang.job_id), protected_s)
        for gang in gangs
        if gang.attempt_id in places
    )


def running_gang(
    gang: LiveGang,
    tasks: tuple[plan_input.TaskPlacement, ...],
    wanted: tuple[plan_input.Request, int] | None,
    protected_s: float,
) -> plan_input.RunningGang:
    """An attempt whose tasks hold these places."""
    request, grace_s = wanted or (None, 0)
    stopping = gang.status == AttemptStatus.STOPPING or gang.stop_requested_at is not None
    ends = [] if gang.promised_end_at is None else [gang.promised_end_at]
    if gang.stop_requested_at is not None:
        ends.append(gang.stop_requested_at + timedelta(seconds=grace_s))
    return plan_input.RunningGang(
        job_id=gang.job_id,
        project_id=gang.project_id,
        tasks=tasks,
        promised_end=min(ends).timestamp() if ends else None,
        gang_id=gang.attempt_id,
        queue_id=gang.queue_id,
        user_id=gang.user_id,
        priority=gang.priority,
        started_at=(gang.started_at or gang.created_at).timestamp(),
        preemptible=gang.preemptible,
        preempting=stopping,
        preempted=gang.preempted_count,
        protected_s=protected_s,
        request=request,
        max_runtime_s=gang.max_runtime_s,
    )
