# SPDX-License-Identifier: Apache-2.0
"""The Philly trace's virtual clusters as clusters of their own and as queues of one cohort."""

from __future__ import annotations

import gzip
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from gpuservice.planner.snapshot import Policy, QueueState
from gpuservice.simulation.cluster import Cluster, from_spec, plain_node
from gpuservice.simulation.records import Record
from gpuservice.simulation.replay import Replay, Replayed, World
from gpuservice.simulation.statistics import Spread, delay_of, wait_of
from gpuservice.simulation.traces import read_philly
from gpuservice.simulation.workload import Reading, WorkloadJob

#: GPUs of a host, and the share of its hosts that a virtual cluster's work may fill.
HOST_GPUS = 8
FILLED = 0.8

_GPU_TYPE = "gpu"


def open_trace(path: Path) -> IO[str]:
    """A trace, packed or not."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def read_jobs(path: Path, first: int | None = None) -> tuple[WorkloadJob, ...]:
    """The jobs of a trace whose virtual clusters are queues; limits are true."""
    with open_trace(path) as file:
        return read_philly(file, Reading(first=first), path.name)


def by_queue(jobs: Sequence[WorkloadJob]) -> dict[str, list[WorkloadJob]]:
    """Jobs of each queue, the queue with the most first."""
    found: dict[str, list[WorkloadJob]] = {}
    for job in jobs:
        found.setdefault(job.queue, []).append(job)
    return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))


def hosts_of(jobs: Sequence[WorkloadJob]) -> int:
    """Hosts of a virtual cluster: its work over its own span at a load of 0.8, at least its
    largest job."""
    begin = min(job.submit_s for job in jobs)
    span = max(job.submit_s + job.duration_s for job in jobs) - begin
    work = sum(job.milli / 1000 * job.duration_s for job in jobs)
    largest = max(job.milli // 1000 for job in jobs)
    return max(math.ceil(work / span / HOST_GPUS / FILLED), math.ceil(largest / HOST_GPUS), 1)


def shared_cluster(hosts: Mapping[str, int], preemption: str = "reclaim") -> Cluster:
    """All hosts together; each queue has the GPUs of its own as nominal, in one cohort."""
    queues = tuple(
        QueueState(
            name,
            (),
            weight=float(count),
            cohort="all",
            nominal={_GPU_TYPE: 1000 * HOST_GPUS * count},
            preemption=preemption,
        )
        for name, count in hosts.items()
    )
    total = sum(hosts.values())
    nodes = tuple(plain_node(f"n{row:04d}", HOST_GPUS, _GPU_TYPE) for row in range(total))
    return Cluster(nodes, queues)


def alone(jobs: Sequence[WorkloadJob], hosts: int, policy: Policy) -> Replayed:
    """One virtual cluster on hosts of its own."""
    return Replay(from_spec(f"{hosts}x{HOST_GPUS}:{_GPU_TYPE}"), jobs, policy).run()


def together(
    jobs: Sequence[WorkloadJob], hosts: Mapping[str, int], policy: Policy, world: World
) -> Replayed:
    """All virtual clusters on all hosts."""
    return Replay(shared_cluster(hosts), jobs, policy, world).run()


def a_part_not_preemptible(jobs: Sequence[WorkloadJob], one_in: int) -> tuple[WorkloadJob, ...]:
    """Every so-many-th job of each queue may not be preempted."""
    counted: dict[str, int] = {}
    found = []
    for job in jobs:
        number = counted[job.queue] = counted.get(job.queue, 0) + 1
        found.append(replace(job, preemptible=number % one_in != 0))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Delays:
    """How long the jobs of a queue were kept: waits, second waits and work done twice (hours)."""

    jobs: int
    mean_h: float
    p90_h: float
    max_h: float
    wait_p90_h: float
    preemptions: int
    never: int

    @classmethod
    def of(cls, records: Sequence[Record]) -> Delays:
        """Of some jobs."""
        delay = Spread.of(one for r in records if (one := delay_of(r)) is not None)
        wait = Spread.of(one for r in records if (one := wait_of(r)) is not None)
        return cls(
            len(records),
            delay.mean / 3600,
            delay.p90 / 3600,
            delay.max / 3600,
            wait.p90 / 3600,
            sum(1 for r in records for a in r.attempts if a.outcome == "preempted"),
            sum(1 for r in records if not r.attempts),
        )


def gpu_hours_lost(records: Sequence[Record]) -> float:
    """GPU-hours that were run and had to be run again."""
    lost = 0.0
    for record in records:
        ran = sum((a.end_s or a.start_s) - a.start_s for a in record.attempts)
        needs = record.job.duration_s
        if record.limit is not None:
            needs = min(needs, record.limit)
        lost += (ran - needs) * record.job.milli / 1000 / 3600
    return lost
