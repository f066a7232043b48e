# SPDX-License-Identifier: Apache-2.0
"""The order of the line, seen where all jobs ask for the same and only the order decides."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from planner_worlds import GREEDY, law

from gpuservice.planner.plan import plan
from gpuservice.planner.snapshot import (
    DeviceState,
    NodeState,
    NodeTemplate,
    PendingJob,
    PoolState,
    QueueState,
    Request,
    Snapshot,
)
from tests.job_worlds import NOW

ONE_GPU = Request()


def _line(many: list[tuple[int, int, int]]) -> tuple[PendingJob, ...]:
    """(queue, priority, age) -> jobs of one GPU, all else equal."""
    return tuple(
        PendingJob(
            f"job-{number:03}",
            "red",
            "ann",
            f"queue-{queue}",
            ONE_GPU,
            priority,
            NOW - age,
            number,
            600,
        )
        for number, (queue, priority, age) in enumerate(many)
    )


def alike(gpus: int, weights: tuple[float, ...], line: tuple[PendingJob, ...]) -> Snapshot:
    """One node, one queue a weight, a line of jobs of one GPU."""
    devices = tuple(DeviceState(f"d{one:03}", "t4", 16384) for one in range(gpus))
    queues = tuple(
        QueueState(f"queue-{number}", ("pool",), weight=weight)
        for number, weight in enumerate(weights)
    )
    pool = PoolState("pool", "operator", 1, NodeTemplate("t4", gpus, 16384, 64, 65536), size=1)
    return Snapshot(NOW, (NodeState("n", "pool", 64, 65536, devices),), (pool,), queues, line)


lines = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([100, 500, 700]), st.integers(0, 9)), max_size=14
).map(_line)


@law
@given(lines, st.integers(0, 8), st.sampled_from(["fair", "fifo"]))
def test_a_higher_tier_goes_first(line: tuple[PendingJob, ...], gpus: int, order: str) -> None:
    made = plan(alike(gpus, (1.0, 2.0, 1.0), line), replace(GREEDY, order=order))
    started = {start.job_id for start in made.starts}
    assert len(started) == min(gpus, len(line))
    best_left = max((job.priority for job in line if job.job_id not in started), default=0)
    assert all(job.priority >= best_left for job in line if job.job_id in started)


@law
@given(lines, st.integers(0, 8))
def test_fifo_is_the_order_of_submission_within_a_tier(
    line: tuple[PendingJob, ...], gpus: int
) -> None:
    made = plan(alike(gpus, (1.0, 2.0, 1.0), line), replace(GREEDY, order="fifo"))
    expected = sorted(line, key=lambda job: (-job.priority, job.queued_at, job.sequence))
    assert [start.job_id for start in made.starts] == [job.job_id for job in expected[:gpus]]


@law
@given(lines, st.integers(0, 8), st.sampled_from(["fair", "fifo", "multifactor"]))
def test_l11_within_a_queue_and_tier_the_first_submitted_goes_first(
    line: tuple[PendingJob, ...], gpus: int, order: str
) -> None:
    made = plan(alike(gpus, (1.0, 2.0, 1.0), line), replace(GREEDY, order=order))
    started = {start.job_id for start in made.starts}
    for job in line:
        for other in line:
            same = (job.queue_id, job.priority) == (other.queue_id, other.priority)
            first = (job.queued_at, job.sequence) < (other.queued_at, other.sequence)
            if same and first and other.job_id in started:
                assert job.job_id in started


@law
@given(
    st.lists(st.integers(0, 14), min_size=3, max_size=3),
    st.integers(1, 16),
    st.tuples(*[st.sampled_from([1.0, 2.0, 4.0])] * 3),
)
def test_one_plan_gives_queues_their_weight(
    waiting: list[int], gpus: int, weights: tuple[float, float, float]
) -> None:
    """What this very plan gave counts: no queue gets more while another has less by weight."""
    line = _line([(queue, 500, 0) for queue, many in enumerate(waiting) for _ in range(many)])
    made = plan(alike(gpus, weights, line), GREEDY)
    queue_of = {job.job_id: int(job.queue_id[-1]) for job in line}
    given_to = Counter(queue_of[start.job_id] for start in made.starts)
    for hungry in range(3):
        if given_to[hungry] == waiting[hungry]:
            continue
        for other in range(3):
            if given_to[other]:
                last = (given_to[other] - 1) / weights[other]
                assert last <= given_to[hungry] / weights[hungry] + 1e-9


@law
@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 6), st.sampled_from([1.0, 2.0]))
def test_a_queue_that_had_far_more_waits_for_one_that_had_less(
    much: int, little: int, gpus: int, weight: float
) -> None:
    line = _line([(0, 500, 9)] * much + [(1, 500, 0)] * little)
    usage = {("queue-0", "red", "ann"): 1e12, ("queue-1", "red", "ann"): 1.0}
    snapshot = replace(alike(gpus, (weight, 1.0), line), usage=usage)
    started = Counter(start.job_id for start in plan(snapshot, GREEDY).starts)
    assert sum(started[job.job_id] for job in line[much:]) == min(little, gpus)


@law
@given(lines, st.integers(1, 6))
def test_without_backfill_nothing_passes_the_head(line: tuple[PendingJob, ...], gpus: int) -> None:
    """Strict FIFO: behind the first job that does not fit nothing starts."""
    wide = tuple(
        replace(job, request=Request(gpu_milli=1000 * (1 + job.sequence % 3)), priority=500)
        for job in line
    )
    made = plan(alike(gpus, (1.0, 1.0, 1.0), wide), replace(GREEDY, order="fifo", backfill=False))
    free, expected = gpus, []
    for job in sorted(wide, key=lambda one: (one.queued_at, one.sequence)):
        if job.request.whole > gpus:
            continue  # impossible: blocks nobody
        if job.request.whole > free:
            break
        free -= job.request.whole
        expected.append(job.job_id)
    assert [start.job_id for start in made.starts] == expected
