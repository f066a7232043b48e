# SPDX-License-Identifier: Apache-2.0
"""How tests have jobs make room: by the scheduler's commit, or by an action of their owner."""

from __future__ import annotations

from typing import Any

from conductor_world import World

from gpuservice.domain.context import Caller
from gpuservice.domain.inventory import Node
from gpuservice.domain.work import Attempt, Job
from gpuservice.planner.plan_types import Preemption
from gpuservice.scheduler.preempting import Preempted, Preempting
from gpuservice.services.deps import Deps
from gpuservice.services.job_actions import JobActions

#: How a task ends that heeds its signal, and one that is killed after its grace.
HEEDED = {"exit_code": 143, "stopped": True}
KILLED = {"exit_code": None, "signal": 9, "stopped": True}


def running(world: World, nodes: list[Node], **body: Any) -> tuple[Job, Attempt]:
    """A job whose first attempt runs."""
    job = world.submit(**body)
    attempt = world.start(job, nodes)
    world.report(attempt)
    world.step()
    return job, attempt


def preempting(world: World) -> Preempting:
    """The scheduler's commit."""
    return Preempting(world.real_store, world.hints, world.ids, "main")


def preempt(world: World, preemptor: Job, *victims: Attempt) -> Preempted:
    """Have attempts make room for a waiting job."""
    wanted = [Preemption(one.id, one.job_id, preemptor.id, "priority") for one in victims]
    return preempting(world).commit(world.epoch, wanted)


def act(world: World, job: Job, action: str, indices: str | None = None) -> None:
    """An action as the job's owner asks for it."""
    deps = Deps(
        world.real_store,
        world.hints,
        world.clock,
        world.ids,
        world.conf,
        world.logs,
        world.objects,
        None,  # type: ignore[arg-type]  # actions plan nothing
    )
    JobActions(deps).act(Caller("tenant", "ada"), job.id, action, indices)


def elements(world: World, job: Job) -> dict[int, str]:
    """The status of each element that has a row."""
    rows = world.real_store.read(lambda uow: uow.elements.of_job(job.id))
    return {row.index: row.status for row in rows}
