# SPDX-License-Identifier: Apache-2.0
"""The clusters and lines that decisions are measured on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gpuservice.planner.plan_types import Plan
from gpuservice.planner.session import Session
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
    TaskPlacement,
)

GPUS = 8
TYPES = ("a100-80gb", "h100")
READ = 100
NOW = 1_000_000.0
Decide = Callable[[], Plan]


def nodes(count: int, hosts_a_rack: int = 64, types: int = 2) -> list[NodeState]:
    """Hosts of 8, half of them of each type, in a pool by type."""
    made = []
    for number in range(count):
        kind = TYPES[number % types]
        devices = tuple(
            DeviceState(f"n{number}-{gpu}", kind, 81920, link_group="g") for gpu in range(GPUS)
        )
        made.append(
            NodeState(
                f"n{number}", f"pool-{kind}", 128, 1 << 20, devices,
                rack=f"r{number // hosts_a_rack}", zone="z",
            )
        )  # fmt: skip
    return made


def pools(count: int, types: int = 2) -> list[PoolState]:
    """The pools of :func:`nodes`."""
    return [
        PoolState(
            f"pool-{kind}",
            "operator",
            count // types,
            NodeTemplate(kind, GPUS, 81920, 128, 1 << 20),
            size=count // types,
        )
        for kind in TYPES[:types]
    ]


def queues(count: int, types: int = 2, nominal: int | None = None) -> list[QueueState]:
    """Queues of one cohort over all pools."""
    kinds = TYPES[:types]
    return [
        QueueState(
            f"queue-{number}",
            tuple(f"pool-{kind}" for kind in kinds),
            weight=1.0 + number % 3,
            cohort="all",
            nominal={} if nominal is None else dict.fromkeys(kinds, nominal),
            preemption="both",
        )
        for number in range(count)
    ]


def shapes(count: int) -> list[Request]:
    """Requests of 1 to 32 GPUs, shares, types, CPUs and memory, each another one."""
    made: list[Request] = []
    for number in range(count):
        size = (1, 1, 1, 1, 2, 2, 4, 8, 8, 16)[number % 10]
        tasks = max(size // GPUS, 1)
        request = Request(
            count=tasks,
            min_count=tasks,
            gpu_milli=1000 * min(size, GPUS),
            gpu_types=((), ("a100-80gb",), ("h100",))[number // 10 % 3],
            vcpus=1 + number // 30 % 12,
            memory_mib=1024 * (1 + number // 10 % 17),
        )
        made.append(replace(request, gpu_milli=500) if number % 37 == 5 else request)
    return made


def jobs(
    count: int, kinds: list[Request], in_queues: int, preemptible: bool = True
) -> list[PendingJob]:
    """A line over queues, projects and users."""
    random = np.random.default_rng(1)
    chosen = random.integers(0, len(kinds), count).tolist()
    limits = random.choice([600, 3600, 7200, 36000, 86400], count).tolist()
    return [
        PendingJob(
            f"job-{number}", f"project-{number % 20}", f"user-{number % 60}",
            f"queue-{number % in_queues}", kinds[chosen[number]], 500, NOW - 10000 + number / 10,
            number, limits[number], preemptible=preemptible,
        )
        for number in range(count)
    ]  # fmt: skip


def fill_up(session: Session, hosts: list[NodeState], in_queues: int) -> list[str]:
    """Every GPU is held by a job of its own; the names of the gangs."""
    names: list[str] = []
    for number, host in enumerate(hosts):
        for gpu in range(GPUS):
            name = f"run-{number}-{gpu}"
            names.append(name)
            session.start(
                RunningGang(
                    name, f"project-{number % 20}",
                    (TaskPlacement(0, host.id, ((f"{host.id}-{gpu}", 1000),), 4, 4096),),
                    NOW + 60 + 37 * ((number * GPUS + gpu) % 977), name,
                    f"queue-{(number * GPUS + gpu) % in_queues}", f"user-{number % 60}", 500,
                    NOW - 5000, preemptible=True,
                )
            )  # fmt: skip
    return names


def fill(count: int = 500, waiting: int = 4000, kinds: int = 200, in_queues: int = 6) -> Decide:
    """Mixed jobs on free hosts."""
    hosts = nodes(count)
    session = Session(hosts, pools(count), queues(in_queues, nominal=1000 * count * GPUS),
                      Policy())  # fmt: skip
    for job in jobs(waiting, [one for one in shapes(kinds) if one.whole < 8], in_queues):
        session.submit(job)
    return lambda: session.plan(NOW, reasons=READ)


def _busy(
    count: int, waiting: int, kinds: int, in_queues: int, running_queues: int | None = None
) -> tuple[Session, list[str]]:
    hosts = nodes(count)
    session = Session(hosts, pools(count), queues(in_queues, nominal=1000 * count * GPUS),
                      Policy(preempt=frozenset()))  # fmt: skip
    names = fill_up(session, hosts, running_queues or in_queues)
    for job in jobs(waiting, shapes(kinds), in_queues):
        # Gangs are due, so that promises are made.
        due = NOW - 1 if job.request.count > 1 else NOW + 1e6
        session.submit(replace(job, due=due))
    return session, names


def busy(count: int = 128, waiting: int = 10_000, kinds: int = 200, in_queues: int = 6) -> Decide:
    """Nothing is free; eight promises are made."""
    session, _ = _busy(count, waiting, kinds, in_queues)
    return lambda: session.plan(NOW, reasons=READ)


def huge_first(
    count: int = 1250, waiting: int = 100_000, kinds: int = 1000, in_queues: int = 1000
) -> Decide:
    """A long line is planned for the first time."""
    return busy(count, waiting, kinds, in_queues)


def huge_one_end(
    count: int = 1250, waiting: int = 100_000, kinds: int = 1000, in_queues: int = 1000
) -> Decide:
    """The same after one job has ended."""
    session, names = _busy(count, waiting, kinds, in_queues)
    session.plan(NOW, reasons=READ)
    session.finish(names[len(names) // 2])
    return lambda: session.plan(NOW + 1, reasons=READ)


def huge_kept(
    count: int = 1250, waiting: int = 100_000, kinds: int = 1000, in_queues: int = 1000
) -> Decide:
    """The same where what became free is kept: the first GPU of the hosts promised to a gang, for
    longer than any limit leaves before that starts."""
    session, _ = _busy(count, waiting, kinds, in_queues)
    promises = session.plan(NOW, reasons=READ).promises
    gangs = [promise for promise in promises if len(promise.tasks) > 1]
    first = min(gangs, key=lambda promise: (promise.start, promise.job_id))
    session.finish(f"run-{first.tasks[0].node_id[1:]}-0")
    return lambda: session.plan(NOW + 1, reasons=READ)


def impossible_gang(count: int = 500) -> Decide:
    """A gang that no state of the cluster holds."""
    hosts = nodes(count, types=1)
    session = Session(hosts, pools(count, 1), queues(1, 1), Policy())
    fill_up(session, hosts[: count // 2], 1)
    request = Request(count=512, min_count=512, gpu_milli=8000)
    session.submit(replace(jobs(1, [request], 1)[0], due=NOW - 1))
    return lambda: session.plan(NOW, reasons=READ)


def reclaim(count: int = 500, gpus: int = 2000) -> Decide:
    """Nominal that another queue has borrowed is reclaimed by one gang."""
    hosts = nodes(count, types=1)
    nominal = {"queue-0": 1000 * gpus, "queue-1": 1000 * (count * GPUS - gpus)}
    session = Session(
        hosts,
        pools(count, 1),
        [
            replace(queue, nominal={TYPES[0]: nominal[queue.id]})
            for queue in queues(2, 1, nominal=0)
        ],
        Policy(protected_s=0.0),
    )
    for number, host in enumerate(hosts):
        for gpu in range(GPUS):
            name = f"run-{number}-{gpu}"
            session.start(
                RunningGang(
                    name, "project-1", (TaskPlacement(0, host.id, ((f"{host.id}-{gpu}", 1000),)),),
                    NOW + 10000, name, "queue-1", "user", 500, NOW - (number * 7 % 5000),
                    preemptible=True,
                )
            )  # fmt: skip
    request = Request(count=gpus // GPUS, min_count=gpus // GPUS, gpu_milli=8000)
    session.submit(replace(jobs(1, [request], 1)[0], due=NOW - 1))
    return lambda: session.plan(NOW, reasons=READ)


def rack_gang(count: int = 512, tasks: int = 512) -> Decide:
    """512 one-GPU tasks in one rack of 64 hosts, of 4,096 GPUs."""
    hosts = nodes(count, types=1)
    session = Session(hosts, pools(count, 1), queues(1, 1), Policy())
    request = Request(count=tasks, min_count=tasks, within="rack", required=True)
    session.submit(jobs(1, [request], 1)[0])
    return lambda: session.plan(NOW, reasons=READ)


def scaling(measure: Callable[[Decide], float]) -> dict[str, list[tuple[int, float]]]:
    """Milliseconds of a first pass over a busy cluster as one number grows."""
    return {
        "jobs": [(n, measure(busy(256, n, 200, 20))) for n in (5_000, 10_000, 20_000, 40_000)],
        "shapes": [(n, measure(busy(256, 20_000, n, 20))) for n in (100, 200, 400, 800)],
        "hosts": [(n, measure(busy(n, 20_000, 200, 20))) for n in (128, 256, 512, 1024)],
        "queues": [(n, measure(busy(256, 20_000, 200, n))) for n in (10, 100, 400, 1000)],
    }
