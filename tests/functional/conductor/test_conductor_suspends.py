# SPDX-License-Identifier: Apache-2.0
"""Jobs, arrays and some elements of them are suspended and resumed."""

from __future__ import annotations

import pytest
from conductor_world import World
from preemptions import HEEDED, act, elements, preempt, running

from gpuservice.domain.errors import Conflict, InvalidTransition
from gpuservice.domain.inventory import Node
from gpuservice.domain.work import Attempt, Job


@pytest.fixture
def nodes(world: World) -> list[Node]:
    return world.settled(world.pool())


def test_suspended_and_resumed(world: World, nodes: list[Node]) -> None:
    job, attempt = running(world, nodes, retry={"max_attempts": 1})
    act(world, job, "suspend")
    act(world, job, "suspend")
    now = world.job(job)
    assert (now.status, now.status_reason, now.on_hold) == ("preempting", "suspended", True)
    world.step()
    (task,) = world.tasks(attempt)
    assert task.action == "stop"
    world.end(attempt, **HEEDED)
    world.step()
    now = world.job(job)
    assert (now.status, now.status_reason, now.preempted_count) == ("held", "suspended", 0)
    act(world, job, "suspend")
    act(world, job, "resume")
    act(world, job, "resume")
    now = world.job(job)
    assert (now.status, now.queued_at, now.status_reason) == ("queued", job.queued_at, None)
    second = world.start(job, nodes)
    world.end(second)
    world.step()
    assert world.job(job).status == "succeeded"
    assert world.replayed(job) == "succeeded"
    with pytest.raises(InvalidTransition):
        act(world, job, "suspend")
    world.check()


def test_resumed_before_it_has_stopped(world: World, nodes: list[Node]) -> None:
    job, attempt = running(world, nodes)
    act(world, job, "suspend")
    act(world, job, "resume")
    world.end(attempt, **HEEDED)
    world.step()
    assert (world.job(job).status, world.job(job).on_hold) == ("queued", False)
    assert world.replayed(job) == "queued"


def test_a_victim_that_is_suspended_as_well(world: World, nodes: list[Node]) -> None:
    job, attempt = running(world, nodes)
    preempt(world, world.submit(), attempt)
    act(world, job, "suspend")
    world.end(attempt, **HEEDED)
    world.step()
    now = world.job(job)
    assert (now.status, now.status_reason, now.preempted_count) == ("held", "suspended", 1)
    act(world, job, "cancel")
    assert world.job(job).status == "cancelled"


def test_only_what_runs_is_suspended(world: World, nodes: list[Node]) -> None:
    job = world.submit()
    with pytest.raises(Conflict, match="nothing of it runs"):
        act(world, job, "suspend")
    act(world, job, "resume")
    assert world.job(job).status == "queued"


def test_one_that_ends_while_it_is_suspended_is_not_held(world: World, nodes: list[Node]) -> None:
    job, attempt = running(world, nodes)
    act(world, job, "suspend")
    world.end(attempt, exit_code=0)
    world.step()
    assert (world.job(job).status, world.job(job).on_hold) == ("succeeded", False)


def test_an_array_is_suspended_as_a_whole(world: World, nodes: list[Node]) -> None:
    job = world.submit(array={"size": 3})
    world.start(job, nodes, times=2)
    first, second = world.attempts(job)
    world.report(first)
    world.report(second)
    world.step()
    act(world, job, "suspend")
    assert elements(world, job) == {0: "preempting", 1: "preempting"}
    world.step()
    world.end(first, **HEEDED)
    world.step()
    assert world.job(job).status == "preempting"
    world.end(second, exit_code=0)
    world.step()
    now = world.job(job)
    assert (now.status, now.status_reason, now.waiting_elements) == ("held", "suspended", 2)
    assert elements(world, job) == {0: "queued", 1: "succeeded"}
    act(world, job, "resume")
    assert world.job(job).status == "queued"
    world.start(job, nodes, times=2)
    for attempt in world.attempts(job):
        if attempt.live:
            world.end(attempt)
    world.step()
    assert world.job(job).status == "succeeded"
    world.check()


def array_of_two(world: World, nodes: list[Node]) -> tuple[Job, Attempt, Attempt]:
    """Two of its three elements run."""
    job = world.submit(array={"size": 3})
    world.start(job, nodes, times=2)
    first, second = world.attempts(job)
    world.report(first)
    world.report(second)
    world.step()
    return job, first, second


def test_some_elements_are_suspended_and_resumed(world: World, nodes: list[Node]) -> None:
    job, first, _ = array_of_two(world, nodes)
    act(world, job, "suspend", "0,2")
    act(world, job, "suspend", "0")
    assert elements(world, job) == {0: "preempting", 1: "running"}
    world.step()
    world.end(first, **HEEDED)
    world.step()
    assert elements(world, job) == {0: "held", 1: "running"}
    now = world.job(job)
    assert (now.status, now.waiting_elements, now.live_elements) == ("running", 2, 1)
    assert world.real_store.read(lambda uow: uow.elements.held()) == {job.id: 1}
    # What may start is the element that never did.
    assert world.start(job, nodes).index == 2
    with pytest.raises(Conflict):
        act(world, world.submit(array={"size": 2}), "suspend", "0")
    act(world, job, "resume", "0-2")
    assert elements(world, job)[0] == "queued"
    assert [one.detail["indices"] for one in world.events(job.id) if "indices" in one.detail] == [
        "0",
        "0-2",
    ]
    world.start(job, nodes)
    for attempt in world.attempts(job):
        if attempt.live:
            world.end(attempt)
    world.step()
    assert world.job(job).status == "succeeded"
    world.check()


def test_an_element_resumed_before_it_has_stopped_waits_again(
    world: World, nodes: list[Node]
) -> None:
    job, first, second = array_of_two(world, nodes)
    preempt(world, world.submit(), second)
    act(world, job, "suspend", "0-1")
    act(world, job, "resume", "0")
    world.step()
    world.end(first, **HEEDED)
    world.end(second, **HEEDED)
    world.step()
    assert elements(world, job) == {0: "queued", 1: "held"}
    act(world, job, "resume")
    assert elements(world, job) == {0: "queued", 1: "queued"}
    act(world, job, "cancel")
    assert set(elements(world, job).values()) == {"cancelled"}
    world.check()


def test_suspended_elements_are_cancelled(world: World, nodes: list[Node]) -> None:
    job, first, second = array_of_two(world, nodes)
    act(world, job, "suspend", "0-1")
    world.step()
    world.end(first, **HEEDED)
    world.end(second, **HEEDED)
    world.step()
    act(world, job, "cancel", "0")
    assert elements(world, job) == {0: "cancelled", 1: "held"}
    act(world, job, "cancel")
    assert world.job(job).status == "cancelled"
    world.check()
