# SPDX-License-Identifier: Apache-2.0
"""Attempts go on from what nodes report: to running, to an end, to the next try."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from conductor_world import World

from gpuservice.domain.ports_store import Where
from gpuservice.domain.work import Artifact


def usage(world: World) -> dict[str, int]:
    """What is in use of the tenant's quota, zeros left out."""
    used = world.real_store.read(lambda uow: uow.quotas.usage("tenant"))
    return {name: value for name, value in used.items() if value}


def test_a_job_runs_and_succeeds(world: World) -> None:
    nodes = world.settled(world.pool())
    job = world.submit()
    attempt = world.start(job, nodes)
    world.report(attempt, "running")
    world.step()
    assert world.job(job).status == "running"
    assert world.attempts(job)[0].status == "running"
    world.end(attempt)
    world.step()
    ended = world.job(job)
    assert (ended.status, ended.exit_code, ended.succeeded_elements) == ("succeeded", 0, 1)
    assert ended.started_at is not None and ended.ended_at is not None
    assert usage(world) == {} and world.held_milli() == 0
    assert world.replayed(job) == "succeeded"


def test_a_gang_runs_once_all_ranks_do_and_stops_with_the_first_that_fails(world: World) -> None:
    nodes = world.settled(world.pool(nodes=3))
    job = world.submit(tasks={"count": 3}, grace_period_s=5)
    attempt = world.start(job, nodes)
    world.report(attempt, "running", 1, 2)
    world.step()
    assert world.attempts(job)[0].status == "starting"
    world.report(attempt)
    world.step()
    assert world.attempts(job)[0].status == "running"
    revisions = {
        node.id: node.revision
        for node in world.nodes(world.real_store.read(lambda uow: uow.pools.find())[0])
    }
    world.end(attempt, 1, exit_code=3)
    world.step()
    stopping = world.attempts(job)[0]
    assert (stopping.status, stopping.stop_reason) == ("stopping", "failed")
    left = [task for task in world.tasks(attempt) if task.status != "gone"]
    assert {task.action for task in left} == {"stop"}
    for task in left:
        node = world.real_store.read(lambda uow, one=task: uow.nodes.get(one.node_id))  # type: ignore[misc]
        assert node is not None and node.revision > revisions[node.id]
    world.end(attempt, 0, 2, exit_code=None, signal=15)
    world.step()
    ended = world.job(job)
    assert (ended.status, ended.failure_class, ended.exit_code) == ("failed", "user_code", 3)
    assert ended.evidence is not None and ended.evidence["rank"] == 1
    (stop,) = [e for e in world.events(attempt.id) if e.action == "attempt.stop"]
    assert stop.reason == "failed"


@pytest.mark.parametrize(
    ("how", "status", "reason"),
    [
        ({"exit_code": 1}, "failed", "user_code: exit code 1"),
        (
            {"exit_code": None, "signal": 11},
            "failed",
            "user_code: killed by signal 11 (SIGSEGV)",
        ),
        ({"exit_code": None, "signal": 63}, "failed", "user_code: killed by signal 63"),
        (
            {"exit_code": None, "signal": 9, "oom": True},
            "failed",
            "out_of_memory: killed by signal 9 (SIGKILL)",
        ),
        (
            {"exit_code": None, "signal": 15, "timed_out": True},
            "timed_out",
            "time_limit: killed by signal 15 (SIGTERM)",
        ),
        (
            {"exit_code": 0, "failure_class": "permission", "failure_evidence": "output 'x'"},
            "failed",
            "permission: output 'x'",
        ),
    ],
)
def test_ends_are_told_apart(
    world: World, how: dict[str, object], status: str, reason: str
) -> None:
    nodes = world.settled(world.pool())
    job = world.submit()
    attempt = world.start(job, nodes)
    world.end(attempt, **how)
    world.step()
    ended = world.job(job)
    assert (ended.status, ended.failure_class) == (status, reason.partition(":")[0])
    assert ended.status_reason == reason
    assert usage(world) == {}


def test_a_lost_node_is_tried_again_with_growing_pauses_and_then_fails(world: World) -> None:
    nodes = world.settled(world.pool())
    job = world.submit(retry={"max_attempts": 3, "backoff_s": 10})
    lost = {
        "exit_code": None,
        "failure_class": "node_failure",
        "claimed_started_at": world.clock.now(),
    }
    for number, pause in ((1, 10), (2, 20)):
        attempt = world.start(job, nodes)
        world.end(attempt, **lost)
        world.step()
        waiting = world.job(job)
        assert waiting.status == "queued" and waiting.not_before is not None
        assert (waiting.not_before - world.clock.now()).total_seconds() == pause
        assert usage(world) == {"jobs:queued": 1} and waiting.attempt == number
        world.clock.pass_(pause)
    world.end(world.start(job, nodes), **lost)
    world.step()
    assert (world.job(job).status, world.job(job).failure_class) == ("failed", "node_failure")
    assert [one.outcome for one in world.attempts(job)] == ["node_failure"] * 3
    assert world.replayed(job) == "failed" and usage(world) == {}


def test_a_request_to_requeue_never_counts(world: World) -> None:
    nodes = world.settled(world.pool())
    job = world.submit(retry={"max_attempts": 1})
    for _ in range(3):
        attempt = world.start(job, nodes)
        world.report(attempt)
        world.step()
        world.real_store.write(
            lambda uow, one=attempt: uow.attempts.change(  # type: ignore[misc]
                one.id, {"stop_reason": "requeue", "attention": True}
            )
        )
        world.step()
        assert world.attempts(job)[-1].status == "stopping"
        world.end(attempt)
        world.step()
        assert world.job(job).status == "queued"
    assert {one.outcome for one in world.attempts(job)} == {"preempted"}


def test_the_service_keeps_the_limit_when_the_node_does_not(world: World) -> None:
    nodes = world.settled(world.pool())
    job = world.submit(max_runtime_s=100, grace_period_s=5)
    attempt = world.start(job, nodes)
    world.report(attempt)
    world.step()
    world.renew(*nodes)
    world.step(1, 114)
    assert world.attempts(job)[0].status == "running"
    world.real_store.write(lambda uow: uow.jobs.change(job.id, {"max_runtime_s": 200}))
    world.step(1, 50)
    assert world.attempts(job)[0].status == "running"
    world.renew(*nodes)
    world.step(1, 60)
    assert world.attempts(job)[0].stop_reason == "time_limit"
    world.end(attempt, exit_code=None, signal=15)
    world.step()
    assert world.job(job).status == "timed_out"


def test_a_rank_that_nobody_starts_is_dropped_first_and_then_given_up(
    make_world: Callable[..., World],
) -> None:
    world = make_world(jobs__start_timeout_s=60, agent__lease_s=600)
    nodes = world.settled(world.pool(nodes=2))
    job = world.submit(tasks={"count": 2}, retry={"backoff_s": 0})
    attempt = world.start(job, nodes)
    world.report(attempt, "running", 1)
    world.step(1, 61)
    stopping = world.attempts(job)[0]
    assert (stopping.status, stopping.stop_reason) == ("stopping", "start_timeout")
    # Nothing is free yet: the node might still start it.
    assert world.held_milli() == 2000
    world.end(attempt, 1, exit_code=None, signal=15)
    world.step(1, 10)
    assert world.held_milli() == 1000
    world.step(1, 31)
    world.step()
    assert world.held_milli() == 0
    assert world.attempts(job)[0].outcome == "node_failure"
    assert world.job(job).status == "queued"


def test_results_show_when_the_attempt_ended(world: World) -> None:
    nodes = world.settled(world.pool())
    job = world.submit()
    attempt = world.start(job, nodes)
    (task,) = world.tasks(attempt)
    artifact = Artifact(
        id=world.ids.new(),
        job_id=job.id,
        attempt_id=attempt.id,
        task_id=task.id,
        index=0,
        attempt=1,
        rank=0,
        project_id="tenant",
        path="1/0/out",
        size=1,
        sha256="0" * 64,
        object_key="k",
        created_at=world.clock.now(),
    )
    world.real_store.write(lambda uow: uow.artifacts.add(artifact))
    world.report(attempt)
    world.step()
    assert not world.real_store.read(lambda uow: uow.artifacts.find())[0].published
    world.end(attempt)
    world.step()
    assert world.real_store.read(lambda uow: uow.artifacts.find())[0].published


def test_a_deleted_job_goes_with_its_end(world: World) -> None:
    nodes = world.settled(world.pool())
    job = world.submit()
    attempt = world.start(job, nodes)
    world.logs.append(f"{job.id}/{attempt.id}/t/stdout", 0, b"x", 100)

    def cancel(uow: object) -> None:
        uow.jobs.change(job.id, {"status": "cancelling", "delete_requested": True})  # type: ignore[attr-defined]
        uow.attempts.change(attempt.id, {"stop_reason": "cancelled", "attention": True})  # type: ignore[attr-defined]

    world.real_store.write(cancel)
    world.step()
    assert world.attempts(job)[0].status == "stopping"
    world.end(attempt, exit_code=None, signal=15)
    world.step()
    assert world.real_store.read(lambda uow: uow.jobs.get(job.id)) is None
    assert world.logs.read(f"{job.id}/{attempt.id}/t/stdout", 0, 10).data == b""
    assert usage(world) == {}
    assert world.events(job.id)[-1].action == "job.delete"
    assert world.attempts(job) == [] and world.tasks(attempt) == []
    account = world.real_store.read(lambda uow: uow.allocations.find())
    assert [one.milli for one in account] == [1000]


def test_an_array_is_deleted_with_its_elements(world: World) -> None:
    nodes = world.settled(world.pool(gpus=8))
    job, other = world.submit(array={"size": 2}), world.submit(array={"size": 2})
    world.start(job, nodes, times=2)
    world.start(other, nodes, times=2)
    world.real_store.write(lambda uow: uow.jobs.change(job.id, {"delete_requested": True}))
    for attempt in world.attempts(job):
        world.end(attempt)
    world.step()
    read = world.real_store.read
    assert read(lambda uow: uow.jobs.get(job.id)) is None
    assert read(lambda uow: (uow.elements.of_job(job.id), uow.elements.of_job(other.id)))[0] == []
    assert len(read(lambda uow: uow.elements.of_job(other.id))) == 2
    assert world.attempts(job) == [] and len(world.attempts(other)) == 2


# -- arrays ------------------------------------------------------------------------------------
def test_an_array_succeeds_when_all_its_elements_did(world: World) -> None:
    nodes = world.settled(world.pool(gpus=8))
    job = world.submit(array={"size": 6})
    world.start(job, nodes, times=4)
    for attempt in world.attempts(job):
        world.report(attempt)
    world.step()
    assert world.job(job).status == "running"
    for attempt in world.attempts(job):
        world.end(attempt)
    world.step()
    assert (world.job(job).status, world.job(job).live_elements) == ("running", 0)
    world.start(job, nodes, times=2)
    for attempt in world.attempts(job)[-2:]:
        world.end(attempt)
    world.step()
    ended = world.job(job)
    assert (ended.status, ended.succeeded_elements) == ("succeeded", 6)
    assert usage(world) == {}


def test_an_element_whose_pause_is_over_waits_for_no_other(world: World) -> None:
    nodes = world.settled(world.pool(gpus=8))
    job = world.submit(array={"size": 2}, retry={"backoff_s": 100, "on": ["user_code"]})
    world.start(job, nodes, times=2)
    low, high = world.attempts(job)
    world.end(high, exit_code=1)
    world.step()
    world.clock.pass_(60)
    world.renew(*nodes)
    world.end(low, exit_code=1)
    world.step()
    world.clock.pass_(60)
    again = world.start(job, nodes)
    assert (again.index, again.number) == (1, 2)


def test_an_array_that_failed_too_often_starts_no_more(world: World) -> None:
    nodes = world.settled(world.pool(gpus=8))
    job = world.submit(array={"size": 10, "max_failures": 1})
    world.start(job, nodes, times=4)
    first, second, third, fourth = world.attempts(job)
    world.end(first, exit_code=1)
    world.step()
    assert world.job(job).waiting_elements == 6
    world.end(second, exit_code=1)
    world.step()
    assert world.job(job).waiting_elements == 0 and world.job(job).status == "running"
    assert usage(world) == {"jobs:running": 2, "gpus": 2000, "gpus:a100-80gb": 2000}
    world.end(third)
    world.end(fourth, exit_code=None, failure_class="node_failure")  # would be tried again
    world.step()
    ended = world.job(job)
    assert ended.status == "failed"
    counts = (ended.succeeded_elements, ended.failed_elements, ended.cancelled_elements)
    assert counts == (1, 2, 7) and usage(world) == {}
    assert ended.status_reason == (
        "2 of 10 elements failed, 7 were cancelled; first: index 0, user_code: exit code 1"
    )
    assert (ended.failure_class, ended.exit_code) == ("user_code", 1)
    assert ended.evidence is not None
    assert (ended.evidence["index"], ended.evidence["exit_code"]) == (0, 1)


def test_one_bad_job_does_not_hold_up_the_rest(world: World) -> None:
    nodes = world.settled(world.pool())
    bad, good = world.submit(), world.submit()
    for job in (bad, good):
        world.end(world.start(job, nodes), exit_code=1)
    world.real_store.write(lambda uow: uow.jobs.change(bad.id, {"spec": {"broken": True}}))
    world.step()
    assert world.job(good).status == "failed"
    assert world.job(bad).status == "starting"
    assert [
        one.id
        for one in world.real_store.read(lambda uow: uow.attempts.find(Where("live", "eq", 1)))
    ] == [world.attempts(bad)[0].id]


def test_what_ended_before_anybody_heard_of_its_start_did_start(world: World) -> None:
    nodes = world.settled(world.pool())
    job = world.submit()
    world.end(world.start(job, nodes))
    world.step()
    (attempt,) = world.attempts(job)
    assert attempt.started_at is not None and attempt.ended_at is not None
    assert attempt.started_at <= attempt.ended_at
