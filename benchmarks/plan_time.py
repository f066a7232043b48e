# SPDX-License-Identifier: Apache-2.0
"""Time of one ``plan`` on synthetic clusters, as JSON: ``python -m benchmarks.plan_time``.

Two sizes: a full cluster with many jobs waiting (nothing fits, everything is explained), and a
small free cluster with a long line of one-GPU jobs (as many start as there are GPUs). Each figure
is the median wall time of ``REPEATS`` plans on the same snapshot, in milliseconds.
"""

from __future__ import annotations

import json
import statistics
import time

from gpuservice.planner.plan import plan
from gpuservice.planner.plan_types import Plan
from gpuservice.planner.snapshot import (
    DeviceState,
    NodeState,
    NodeTemplate,
    PendingJob,
    Policy,
    PoolState,
    QueueState,
    Request,
    RunningGang,
    Snapshot,
    TaskPlacement,
)

REPEATS = 3
GPUS = 8
GPU_TYPE = "a100-80gb"
MEMORY_MIB = 81920


def _node(number: int, used_milli: int) -> NodeState:
    devices = tuple(
        DeviceState(
            f"n{number}-{gpu}",
            GPU_TYPE,
            MEMORY_MIB,
            used_milli,
            link_group="left" if gpu < GPUS // 2 else "right",
            occupant="other" if used_milli else None,
        )
        for gpu in range(GPUS)
    )
    tasks = GPUS if used_milli else 0
    return NodeState(
        f"n{number}",
        "pool",
        64,
        1 << 19,
        devices,
        live_tasks=tasks,
        rack=f"r{number // 16}",
        zone=f"z{number // 256}",
    )


def _snapshot(
    nodes: int, pending: tuple[PendingJob, ...], used_milli: int, running: tuple[RunningGang, ...]
) -> Snapshot:
    template = NodeTemplate(GPU_TYPE, GPUS, MEMORY_MIB, 64, 1 << 19)
    return Snapshot(
        now=0.0,
        nodes=tuple(_node(number, used_milli) for number in range(nodes)),
        pools=(PoolState("pool", "operator", nodes, template, size=nodes),),
        queues=(QueueState("queue", ("pool",)),),
        pending=pending,
        running=running,
    )


def full_cluster(nodes: int = 1000, jobs: int = 10_000, shapes: int = 20) -> Snapshot:
    """Every GPU is held by a one-GPU job of its own; ``shapes`` kinds of jobs wait."""
    requests = tuple(
        Request(
            count=1 + shape % 5,
            min_count=1 + shape % 5,
            gpu_milli=1000 * (1 + shape % 8),
            within="rack" if shape % 3 == 0 else None,
            required=shape % 2 == 0,
            vcpus=shape % 4,
        )
        for shape in range(shapes)
    )
    pending = tuple(
        PendingJob(
            f"job-{number}",
            f"project-{number % 4}",
            "user",
            "queue",
            requests[number % shapes],
            500,
            float(number),
            number,
            3600,
        )
        for number in range(jobs)
    )
    running = tuple(
        RunningGang(
            f"run-{node}-{gpu}",
            "other",
            (TaskPlacement(0, f"n{node}", ((f"n{node}-{gpu}", 1000),)),),
            60.0 + 7 * ((node * GPUS + gpu) % 1000),
        )
        for node in range(nodes)
        for gpu in range(GPUS)
    )
    return _snapshot(nodes, pending, 1000, running)


def short_jobs(nodes: int = 8, jobs: int = 3000) -> Snapshot:
    """A free cluster of ``nodes`` hosts and a line of equal one-GPU jobs."""
    pending = tuple(
        PendingJob(
            f"job-{number}", "project", "user", "queue", Request(), 500, float(number), number, 3600
        )
        for number in range(jobs)
    )
    return _snapshot(nodes, pending, 0, ())


def _measure(snapshot: Snapshot, policy: Policy) -> tuple[float, Plan]:
    times: list[float] = []
    outcome = Plan()
    for _ in range(REPEATS):
        begin = time.perf_counter()
        outcome = plan(snapshot, policy)
        times.append(1000 * (time.perf_counter() - begin))
    return round(statistics.median(times), 2), outcome


def figures() -> dict[str, dict[str, float | int]]:
    """Measure; the figures by the name of the snapshot."""
    found: dict[str, dict[str, float | int]] = {}
    for name, snapshot in (
        ("full_1000x8_10000_jobs_20_shapes", full_cluster()),
        ("free_8x8_3000_one_gpu_jobs", short_jobs()),
    ):
        with_reasons, outcome = _measure(snapshot, Policy())
        bare, _ = _measure(snapshot, Policy(explain=False))
        found[name] = {
            "plan_ms": with_reasons,
            "without_explanations_ms": bare,
            "starts": len(outcome.starts),
            "waiting": len(outcome.waiting),
        }
    return found


def main() -> None:
    """Measure and print."""
    print(json.dumps(figures(), indent=2))


if __name__ == "__main__":
    main()
