# SPDX-License-Identifier: Apache-2.0
"""Jobs make room: for others by a plan, or because they are suspended."""

from __future__ import annotations

from typing import Any

import pytest
from conductor_world import World
from preemptions import HEEDED, KILLED, act, elements, preempt, preempting, running

from gpuservice.domain.errors import StaleEpoch
from gpuservice.domain.inventory import Node
from gpuservice.domain.work import Job
from gpuservice.planner.plan_types import Preemption


@pytest.fixture
def nodes(world: World) -> list[Node]:
    return world.settled(world.pool())


def last(world: World, job: Job, action: str) -> Any:
    return [one for one in world.events(job.id) if one.action == action][-1]


@pytest.mark.parametrize("how", [HEEDED, KILLED, {**HEEDED, "exit_code": 1}])
def test_a_victim_waits_again_at_its_old_place(
    world: World, nodes: list[Node], how: dict[str, Any]
) -> None:
    job, attempt = running(world, nodes, retry={"max_attempts": 1}, grace_period_s=7)
    other = world.submit()
    revision = world.nodes(world.real_store.read(lambda uow: uow.pools.find())[0])[0].revision
    world.hints.sent.clear()

    assert preempt(world, other, attempt).claimed == [other.id]

    (told,) = [hint for hint in world.hints.sent if hint.kind == "nodes"]
    assert told.ids == (nodes[0].id,)
    (node,) = world.real_store.read(lambda uow: uow.nodes.get_many([nodes[0].id]))
    assert node.revision > revision
    (task,) = world.tasks(attempt)
    assert task.action == "stop"
    stopping = world.attempts(job)[0]
    assert (stopping.status, stopping.stop_reason) == ("stopping", "preempted")
    assert (world.job(job).status, world.job(other).claimed) == ("preempting", True)
    event = last(world, job, "job.preempting")
    assert (event.reason, event.detail["for_job"]) == ("priority", other.id)
    assert last(world, other, "job.preempting_others").detail == {"victims": 1, "jobs": [job.id]}
    world.step()
    assert world.job(job).status == "preempting"

    world.end(attempt, **how)
    world.step()

    again = world.job(job)
    assert (again.status, again.preempted_count, again.queued_at) == ("queued", 1, job.queued_at)
    assert again.status_reason == "requeued after preempted"
    ended = world.attempts(job)[0]
    assert (ended.outcome, ended.failure_class, ended.live) == ("preempted", "preempted", None)
    assert world.replayed(job) == "queued"
    # Its only attempt was none: it is tried again, and the next failure is the first.
    second = world.start(job, nodes)
    world.end(second, exit_code=1)
    world.step()
    assert world.job(job).status == "failed"
    world.check()


@pytest.mark.parametrize(
    ("how", "status", "reason"),
    [
        ({"exit_code": 0, "stopped": True}, "succeeded", None),
        ({"exit_code": 0}, "succeeded", None),
        ({"exit_code": 3}, "failed", "user_code"),
        ({"exit_code": None, "signal": 9, "oom": True, "stopped": True}, "failed", "out_of_memory"),
        (
            {"exit_code": None, "signal": 9, "timed_out": True, "stopped": True},
            "timed_out",
            "time_limit",
        ),
    ],
)
def test_what_ends_by_itself_within_its_grace_has_ended(
    world: World, nodes: list[Node], how: dict[str, Any], status: str, reason: str | None
) -> None:
    job, attempt = running(world, nodes)
    preempt(world, world.submit(), attempt)
    world.end(attempt, **how)
    world.step()
    ended = world.job(job)
    assert (ended.status, ended.failure_class, ended.preempted_count) == (status, reason, 0)
    assert world.replayed(job) == status
    world.check()


def test_ranks_that_lose_their_peers_have_not_failed(world: World) -> None:
    nodes = world.settled(world.pool(nodes=3))
    job, attempt = running(world, nodes, tasks={"count": 3})
    preempt(world, world.submit(), attempt)
    world.end(attempt, 0, **KILLED)
    world.end(attempt, 1, **{**HEEDED, "exit_code": 1})
    world.step()
    assert world.job(job).status == "preempting"
    world.end(attempt, 2, exit_code=None, failure_class="node_failure")
    world.step()
    assert (world.job(job).status, world.job(job).preempted_count) == ("queued", 1)
    world.check()


def test_one_that_had_not_started_yet(world: World, nodes: list[Node]) -> None:
    job = world.submit()
    attempt = world.start(job, nodes)
    preempt(world, world.submit(), attempt)
    world.end(attempt, exit_code=None)
    world.step()
    assert (world.job(job).status, world.job(job).preempted_count) == ("queued", 1)
    assert world.replayed(job) == "queued"


def test_a_cancel_meanwhile_wins(world: World, nodes: list[Node]) -> None:
    job, attempt = running(world, nodes)
    preempt(world, world.submit(), attempt)
    act(world, job, "cancel")
    assert world.job(job).status == "cancelling"
    world.end(attempt, **HEEDED)
    world.step()
    assert (world.job(job).status, world.job(job).preempted_count) == ("cancelled", 0)
    assert world.attempts(job)[0].outcome == "cancelled"
    assert world.replayed(job) == "cancelled"
    world.check()


def test_nothing_is_marked_where_one_victim_has_gone(world: World, nodes: list[Node]) -> None:
    """All that make room for one job, or none: another plan may need fewer."""
    first, gone = running(world, nodes)
    job, attempt = running(world, nodes)
    world.end(gone)
    world.step()
    other, third = world.submit(), world.submit()
    outcome = preempting(world).commit(
        world.epoch,
        [
            Preemption(gone.id, first.id, other.id, "reclaim"),
            Preemption(attempt.id, job.id, other.id, "reclaim"),
        ],
    )
    assert (outcome.claimed, outcome.overtaken) == ([], [other.id])
    assert (world.job(job).status, world.job(other).claimed) == ("running", False)
    assert world.attempts(job)[0].status == "running"
    act(world, third, "hold")
    assert preempt(world, third, attempt).overtaken == [third.id]
    assert preempt(world, other, attempt).claimed == [other.id]
    assert preempt(world, world.submit(), attempt).claimed == []
    with pytest.raises(StaleEpoch):
        preempting(world).commit(
            world.epoch - 1, [Preemption(attempt.id, job.id, other.id, "reclaim")]
        )


def test_one_overtaken_preemption_does_not_keep_the_others(world: World, nodes: list[Node]) -> None:
    pairs = [running(world, nodes) for _ in range(3)]
    waiting = [world.submit() for _ in pairs]
    act(world, pairs[1][0], "cancel")
    outcome = preempting(world).commit(
        world.epoch,
        [
            Preemption(attempt.id, job.id, other.id, "priority")
            for (job, attempt), other in zip(pairs, waiting, strict=True)
        ],
    )
    assert outcome.claimed == [waiting[0].id, waiting[2].id]
    assert [world.job(job).status for job, _ in pairs] == ["preempting", "cancelling", "preempting"]


def test_no_job_of_another_project_is_named(world: World, nodes: list[Node]) -> None:
    job, attempt = running(world, nodes)
    other = world.submit(project_id="stranger")
    preempt(world, other, attempt)
    said = [one.detail for target in (job, other) for one in world.events(target.id)]
    assert other.id not in str([one.detail for one in world.events(job.id)])
    assert last(world, other, "job.preempting_others").detail == {"victims": 1, "jobs": []}
    assert all(job.id not in str(one) for one in said if "victims" in one)


def test_a_claim_goes_with_the_start(world: World, nodes: list[Node]) -> None:
    job, attempt = running(world, nodes)
    other, third = world.submit(), world.submit()
    preempt(world, other, attempt)
    world.end(attempt, **HEEDED)
    world.step()
    world.start(other, nodes)
    assert not world.job(other).claimed
    preempt(world, third, world.start(job, nodes))
    preempting(world).unclaim(world.epoch, [third.id, other.id])
    assert not world.job(third).claimed


def test_elements_of_an_array_make_room_one_by_one(world: World, nodes: list[Node]) -> None:
    job = world.submit(array={"size": 3})
    world.start(job, nodes, times=2)
    first, second = world.attempts(job)
    for one in (first, second):
        world.report(one)
    world.step()
    other = world.submit()
    preempt(world, other, first)
    assert world.job(job).status == "running"
    assert elements(world, job) == {0: "preempting", 1: "running"}
    world.end(first, **HEEDED)
    world.step()
    assert elements(world, job) == {0: "queued", 1: "running"}
    now = world.job(job)
    assert (now.preempted_count, now.waiting_elements, now.live_elements) == (1, 2, 1)
    element = world.real_store.read(lambda uow: uow.elements.get(job.id, 0))
    assert element is not None and element.preempted_count == 1
    assert element.queued_at == job.queued_at
    events = [one for one in world.events(job.id) if one.detail.get("index") == 0]
    assert [one.detail["to"] for one in events] == ["starting", "running", "preempting", "queued"]
    again = world.start(job, nodes)
    assert world.attempts(job)[1].index == 0 and again.live
    world.check()
