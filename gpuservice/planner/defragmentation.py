# SPDX-License-Identifier: Apache-2.0
"""Defragmentation: preemptible jobs move where that starts a waiting gang."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuservice.planner.placement import Tasks, place
from gpuservice.planner.running import Gang
from gpuservice.planner.snapshot import PendingJob
from gpuservice.planner.world import Shape

if TYPE_CHECKING:
    from gpuservice.planner.passes import Pass
    from gpuservice.planner.preemption import Preempting


def moves(preempting: Preempting, job: PendingJob, shape: Shape, promised: float | None) -> bool:
    """Defragmentation: let preemptible jobs go that find a place elsewhere at once, if that
    starts the job and costs less than it saves; whether it does."""
    state = preempting.state
    if not state.policy.defragment or job.claimed or promised is None:
        return False
    eligible = [
        one
        for one in preempting.candidates()
        if one.gang.gang_id not in preempting.going
        and one.gang.job_id != job.job_id
        and one.gang.request is not None
    ]
    chosen = preempting.victims_for(job, shape, eligible, "defragment") if eligible else None
    if chosen is None:
        return False
    victims, tasks = chosen
    saved = sum(milli for task in tasks for _, milli in task.devices) * (promised - state.now)
    if saved <= state.policy.lost_s * sum(one.milli for one in victims):
        return False
    if not _all_fit_elsewhere(state, job, victims, tasks):
        return False
    preempting.carry_out(job, shape, victims, tasks, "defragment")
    return True


def _all_fit_elsewhere(state: Pass, job: PendingJob, victims: list[Gang], tasks: Tasks) -> bool:
    world = state.world
    mark = world.ledger.mark
    try:
        for gang in victims:
            world.ledger.give(gang.gang.tasks)
        world.ledger.take(tasks, world.layout.projects.of(job.project_id))
        for gang in victims:
            request = gang.gang.request
            assert request is not None
            shape = world.shapes[world.shape(request, gang.gang.queue_id, gang.gang.project_id)]
            places = place(world.ledger, request, shape.where)
            if places is None:
                return False
            world.ledger.take(places, world.layout.projects.of(gang.gang.project_id))
        return True
    finally:
        world.ledger.undo_to(mark)
