# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies for planner snapshots: small clusters that are consistent in themselves.

What runs at the start is made by the planner itself, from a first line of jobs on the empty
cluster, so that every snapshot can come about.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import strategies as st

from gpuservice.planner.plan import plan
from gpuservice.planner.plan_types import Start
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
)

PROJECTS = ("red", "blue", "green")
TYPES = (("a100-80gb", 81920), ("t4", 16384))
NOW = 1_000_000.0

requests = st.builds(
    lambda count, less, gpu, types, memory, vcpus, topology: Request(
        count=count,
        min_count=max(1, count - less),
        gpu_milli=gpu[0],
        gpu_memory_mib=gpu[1],
        gpu_types=types,
        min_gpu_memory_mib=memory,
        vcpus=vcpus,
        memory_mib=vcpus * 100,
        within=topology[0],
        required=topology[1],
    ),
    st.integers(1, 5),
    st.integers(0, 2),
    st.sampled_from(
        [(1000, None), (2000, None), (3000, None), (300, None), (700, None), (0, 9000), (0, None)]
    ),
    st.sampled_from([(), (), ("a100-80gb",), ("t4",), ("a100-80gb", "t4")]),
    st.sampled_from([0, 0, 20000]),
    st.integers(0, 5),
    st.sampled_from(
        [
            (None, False),
            (None, False),
            ("link_group", True),
            ("node", True),
            ("rack", True),
            ("zone", False),
            ("node", False),
        ]
    ),
)


@st.composite
def jobs(draw: st.DrawFn, start: int = 0, most: int = 8) -> tuple[PendingJob, ...]:
    """A line of jobs; shapes repeat, so that their order can be seen."""
    shapes = draw(st.lists(requests, min_size=1, max_size=4))
    made: list[PendingJob] = []
    for number in range(start, start + draw(st.integers(0, most))):
        made.append(
            PendingJob(
                f"job-{number:03}",
                draw(st.sampled_from(PROJECTS)),
                "user",
                draw(st.sampled_from(["queue-0", "queue-1"])),
                draw(st.sampled_from(shapes)),
                draw(st.sampled_from([100, 500, 500])),
                NOW - 100 + draw(st.integers(0, 3)),
                number,
                draw(st.sampled_from([None, 60, 100, 600])),
                draw(st.sampled_from([1, 1, 1, 3])),
                draw(st.sampled_from([None, None, None, "held"])),
            )
        )
    return tuple(made)


@st.composite
def node(draw: st.DrawFn, name: str, pool: int, isolated: bool) -> NodeState:
    """An empty node of a pool."""
    gpu_type, memory = TYPES[pool % 2]
    devices = tuple(
        DeviceState(
            f"{name}-{gpu}",
            gpu_type,
            memory,
            healthy=draw(st.sampled_from([True, True, True, False])),
            link_group=draw(st.sampled_from(["x", "x", "y", None])),
        )
        for gpu in range(4)
    )
    return NodeState(
        name,
        f"pool-{pool}",
        8,
        1000,
        devices,
        ready=draw(st.sampled_from([True, True, False])),
        isolation_node=isolated,
        rack=draw(st.sampled_from(["r0", "r1", None])),
        zone=draw(st.sampled_from(["z0", None])),
    )


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """An empty cluster with pools, queues and quotas."""
    nodes: list[NodeState] = []
    pools: list[PoolState] = []
    for pool in range(draw(st.integers(1, 3))):
        isolated = draw(st.booleans())
        size = draw(st.integers(0, 3))
        nodes.extend(draw(node(f"n{pool}{row}", pool, isolated)) for row in range(size))
        gpu_type, memory = TYPES[pool % 2]
        pools.append(
            PoolState(
                f"pool-{pool}",
                draw(st.sampled_from(PROJECTS)),
                size + draw(st.integers(0, 2)),
                NodeTemplate(gpu_type, 4, memory, 8, 1000),
                draw(st.booleans()),
                size,
                0,
                isolated,
            )
        )
    names = [pool.id for pool in pools]
    queues = tuple(
        QueueState(
            f"queue-{number}",
            tuple(draw(st.permutations(names))[: number + 1]),
            draw(st.sampled_from([True, True, True, False])),
        )
        for number in range(2)
    )
    headroom = draw(
        st.dictionaries(
            st.tuples(
                st.sampled_from(PROJECTS), st.sampled_from(["gpus", "gpus:t4", "gpus:a100-80gb"])
            ),
            st.sampled_from([0, 1000, 2500, 6000]),
            max_size=3,
        )
    )
    headroom.update(
        {
            (project, "jobs:running"): most
            for project, most in draw(
                st.dictionaries(st.sampled_from(PROJECTS), st.integers(0, 4), max_size=2)
            ).items()
        }
    )
    return Snapshot(NOW, tuple(nodes), tuple(pools), queues, (), (), headroom)


@st.composite
def snapshots(draw: st.DrawFn, quota: bool = True) -> Snapshot:
    """A cluster on which something runs and something waits."""
    empty = draw(clusters())
    if not quota:
        empty = replace(empty, headroom={})
    first = replace(empty, pending=draw(jobs(0, 5)))
    ends = st.sampled_from([None, NOW + 30, NOW + 60, NOW + 90, NOW - 5])
    starts = plan(first, Policy(explain=False)).starts
    busy = after(first, starts, {number: draw(ends) for number in range(len(starts))})
    return replace(busy, pending=draw(jobs(100)))


policies = st.builds(Policy, promises=st.sampled_from([0, 1, 2, -1]))


def after(snapshot: Snapshot, starts: Iterable[Start], ends: dict[int, float | None]) -> Snapshot:
    """The snapshot once the starts were committed; ``ends`` by number of the start."""
    project_of = {job.job_id: job.project_id for job in snapshot.pending}
    running = list(snapshot.running)
    for number, start in enumerate(starts):
        running.append(
            RunningGang(start.job_id, project_of[start.job_id], start.tasks, ends[number])
        )
    return replace(with_running(snapshot, running), headroom=_left(snapshot, starts, project_of))


def with_running(snapshot: Snapshot, running: Iterable[RunningGang]) -> Snapshot:
    """The snapshot's nodes with exactly ``running`` on them."""
    gangs = tuple(running)
    shares: dict[str, int] = {}
    owners: dict[str, str] = {}
    loads: dict[str, list[int]] = {}
    node_owners: dict[str, str] = {}
    for gang in gangs:
        for task in gang.tasks:
            load = loads.setdefault(task.node_id, [0, 0, 0])
            load[0] += task.vcpus
            load[1] += task.memory_mib
            load[2] += 1
            node_owners[task.node_id] = gang.project_id
            for device, milli in task.devices:
                shares[device] = shares.get(device, 0) + milli
                owners[device] = gang.project_id
    nodes = tuple(
        replace(
            one,
            used_vcpus=loads.get(one.id, [0, 0, 0])[0],
            used_memory_mib=loads.get(one.id, [0, 0, 0])[1],
            live_tasks=loads.get(one.id, [0, 0, 0])[2],
            occupant=node_owners.get(one.id),
            devices=tuple(
                replace(device, used_milli=shares.get(device.id, 0), occupant=owners.get(device.id))
                for device in one.devices
            ),
        )
        for one in snapshot.nodes
    )
    return replace(snapshot, nodes=nodes, running=gangs)


def given_by(snapshot: Snapshot, start: Start, project: str) -> dict[tuple[str, str], int]:
    """What a start takes of the project's quota, by the words of the API's quota section."""
    nodes = {one.id: one for one in snapshot.nodes}
    owners = {pool.id: pool.project_id for pool in snapshot.pools}
    taken = {(project, "jobs:running"): 1}
    for task in start.tasks:
        where = nodes[task.node_id]
        if owners[where.pool_id] == project:
            continue
        for _, milli in task.devices:
            for name in ("gpus", f"gpus:{where.devices[0].gpu_type}"):
                taken[project, name] = taken.get((project, name), 0) + milli
    return taken


def _left(
    snapshot: Snapshot, starts: Iterable[Start], project_of: dict[str, str]
) -> dict[tuple[str, str], int]:
    left = dict(snapshot.headroom)
    for start in starts:
        for key, amount in given_by(snapshot, start, project_of[start.job_id]).items():
            if key in left:
                left[key] -= amount
    return left
