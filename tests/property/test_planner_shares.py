# SPDX-License-Identifier: Apache-2.0
"""L12: over ten half-lives saturated queues get GPU time by their weights."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from planner_worlds import GREEDY, examples
from test_planner_order import alike

from gpuservice.planner.session import Session
from gpuservice.planner.snapshot import PendingJob, Request
from tests.cluster_states import gang_of
from tests.job_worlds import NOW

HALF_LIFE_S = 300.0
GPUS = 8


class Saturated:
    """One node whose queues always have more waiting than fits."""

    def __init__(self, weights: tuple[float, ...], runtimes: tuple[int, ...]) -> None:
        world = alike(GPUS, weights, ())
        policy = replace(GREEDY, usage_half_life_s=HALF_LIFE_S)
        self.session = Session(world.nodes, world.pools, world.queues, policy)
        self.weights, self.runtimes = weights, runtimes
        self.now, self.number = NOW, 0
        self.usage: dict[tuple[str, str, str], float] = {}
        self.had: Counter[str] = Counter()
        self.waiting: dict[str, PendingJob] = {}
        self.ends: dict[str, tuple[float, str]] = {}

    def _fill(self) -> None:
        lines = Counter(job.queue_id for job in self.waiting.values())
        for number, runtime in enumerate(self.runtimes):
            for _ in range(GPUS - lines[f"queue-{number}"]):
                self.number += 1
                job = PendingJob(
                    f"job-{self.number}",
                    "red",
                    "ann",
                    f"queue-{number}",
                    Request(),
                    500,
                    self.now,
                    self.number,
                    runtime,
                )
                self.waiting[job.job_id] = job
                self.session.submit(job)

    def _pass(self) -> None:
        self._fill()
        for start in self.session.plan(self.now, usage=self.usage).starts:
            job = self.waiting.pop(start.job_id)
            end = self.now + float(job.max_runtime_s or 0)
            gang = gang_of(job, start.tasks, self.now, end)
            self.session.start(gang)
            self.ends[gang.gang_id] = (end, job.queue_id)

    def _next(self) -> None:
        """Go to the next end; usage grows with what ran and decays."""
        then = min(end for end, _ in self.ends.values())
        passed = then - self.now
        kept = 0.5 ** (passed / HALF_LIFE_S)
        ran = Counter(queue for _, queue in self.ends.values())
        self.usage = {key: amount * kept for key, amount in self.usage.items()}
        for queue, gpus in ran.items():
            key = (queue, "red", "ann")
            more = 1000 * gpus * HALF_LIFE_S / math.log(2) * (1 - kept)
            self.usage[key] = self.usage.get(key, 0.0) + more
            self.had[queue] += gpus * passed  # type: ignore[assignment]
        self.now = then
        for gang_id in [one for one, (end, _) in self.ends.items() if end <= then]:
            del self.ends[gang_id]
            self.session.finish(gang_id)

    def run(self, seconds: float) -> list[float]:
        """The share of the GPU time that each queue had."""
        while self.now < NOW + seconds:
            self._pass()
            self._next()
        total = sum(self.had.values())
        return [self.had[f"queue-{number}"] / total for number in range(len(self.weights))]


@examples(40)
@given(
    st.sampled_from([(1.0, 1.0), (1.0, 2.0), (3.0, 1.0), (1.0, 1.0, 2.0), (0.5, 1.0, 1.5)]),
    st.lists(st.sampled_from([20, 30, 50]), min_size=3, max_size=3),
)
def test_l12_saturated_queues_get_their_weight(
    weights: tuple[float, ...], runtimes: list[int]
) -> None:
    shares = Saturated(weights, tuple(runtimes[: len(weights)])).run(10 * HALF_LIFE_S)
    for share, weight in zip(shares, weights, strict=True):
        assert abs(share * sum(weights) / weight - 1) <= 0.05
