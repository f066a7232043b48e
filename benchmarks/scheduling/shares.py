# SPDX-License-Identifier: Apache-2.0
"""Long-run shares of queues that always have work waiting."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpuservice.planner.snapshot import Policy, QueueState
from gpuservice.simulation.cluster import Cluster, from_spec
from gpuservice.simulation.policies import POLICIES
from gpuservice.simulation.records import Record
from gpuservice.simulation.replay import Replay
from gpuservice.simulation.workload import WorkloadJob, moment, shaped

HALF_LIFE_S = 8 * 3600.0
HALF_LIVES = 10
WEIGHTS: Mapping[str, float] = {"heavy": 4.0, "middle": 2.0, "light": 1.0, "lightest": 1.0}
HOSTS, HOST_GPUS = 4, 8


@dataclass(frozen=True, slots=True)
class Case:
    """``sizes``: GPUs of a queue's jobs, in turn; ``seconds``: their mean length."""

    sizes: Mapping[str, tuple[int, ...]]
    seconds: Mapping[str, float]


_ALIKE = dict.fromkeys(WEIGHTS, (1,))
CASES: Mapping[str, Case] = {
    "equal jobs": Case(_ALIKE, dict.fromkeys(WEIGHTS, 1800.0)),
    "unequal sizes": Case(
        {"heavy": (1,), "middle": (8,), "light": (1, 2, 4), "lightest": (4,)},
        dict.fromkeys(WEIGHTS, 1800.0),
    ),
    "unequal lengths": Case(
        _ALIKE, {"heavy": 600.0, "middle": 5400.0, "light": 1800.0, "lightest": 7200.0}
    ),
    "both": Case(
        {"heavy": (1, 2), "middle": (8,), "light": (1, 2, 4), "lightest": (4, 8)},
        {"heavy": 900.0, "middle": 3600.0, "light": 1800.0, "lightest": 5400.0},
    ),
}


def workload(case: Case, seed: int = 7) -> tuple[WorkloadJob, ...]:
    """A quarter more work of each queue than its part, a tenth of it there from the start, the
    rest evenly: none runs dry."""
    chance = random.Random(seed)
    span = HALF_LIVES * HALF_LIFE_S
    part = span * HOSTS * HOST_GPUS / sum(WEIGHTS.values())
    found: list[WorkloadJob] = []
    for queue, weight in WEIGHTS.items():
        work, number = 0.0, 0
        while work < 1.25 * weight * part:
            gpus = case.sizes[queue][number % len(case.sizes[queue])]
            duration = round(chance.uniform(0.5, 1.5) * case.seconds[queue], 3)
            found.append(
                WorkloadJob(
                    f"{queue}-{number:05d}",
                    moment(max(work / (1.25 * weight * part) - 0.1, 0.0) / 0.9 * span),
                    duration,
                    shaped(gpus, HOST_GPUS),
                    project=queue,
                    queue=queue,
                    max_runtime_s=int(duration) + 1,
                )
            )
            work += gpus * duration
            number += 1
    return tuple(found)


def had(records: list[Record], until: float) -> dict[str, float]:
    """GPU-seconds of each queue up to a moment."""
    found = dict.fromkeys(WEIGHTS, 0.0)
    for record in records:
        for attempt in record.attempts:
            end = until if attempt.end_s is None else min(attempt.end_s, until)
            part = max(end - attempt.start_s, 0.0) * record.job.milli / 1000
            found[record.job.queue] += part
    return found


class _Stopped(Replay):
    """A replay that ends with the ten half-lives, whatever still waits."""

    def _settle(self) -> None:
        if self._now <= HALF_LIVES * HALF_LIFE_S:
            super()._settle()


def measure_shares(policy: Policy | None = None) -> dict[str, Any]:
    """case -> queue -> its part of the GPU time over its weight's part."""
    chosen = replace(policy or POLICIES["default"].policy, usage_half_life_s=HALF_LIFE_S)
    total = sum(WEIGHTS.values())
    found: dict[str, Any] = {}
    for name, case in CASES.items():
        queues = tuple(QueueState(queue, (), weight=weight) for queue, weight in WEIGHTS.items())
        cluster = Cluster(from_spec(f"{HOSTS}x{HOST_GPUS}:gpu").nodes, queues)
        made = _Stopped(cluster, workload(case), chosen).run()
        parts = had(list(made.records), HALF_LIVES * HALF_LIFE_S)
        sum_of = sum(parts.values())
        found[name] = {
            queue: parts[queue] / sum_of / (weight / total) for queue, weight in WEIGHTS.items()
        }
        found[name]["used"] = sum_of / (HALF_LIVES * HALF_LIFE_S * HOSTS * HOST_GPUS)
    return found
