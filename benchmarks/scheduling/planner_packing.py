# SPDX-License-Identifier: Apache-2.0
"""The packing study on the planner itself: a session in which nothing ever ends."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from gpuservice.planner.session import Session
from gpuservice.planner.snapshot import (
    DeviceState,
    NodeState,
    PendingJob,
    Policy,
    QueueState,
    Request,
    RunningGang,
)
from gpuservice.simulation.openb import Node, Pod
from gpuservice.simulation.packing import arrival_order
from gpuservice.simulation.packing_board import models_of, shape_of

QUEUE, PROJECT = "queue", "project"


def by_planner(nodes: Sequence[Node], pods: Sequence[Pod], seed: int, inflation: float) -> Any:
    """The summary of one run: the mean allocation in % while demand rounds to 100 %.

    A pool a GPU model; a milli-core of the list as a core, which changes nothing but the unit.
    What does not fit at once is withdrawn.
    """
    models = models_of(nodes, pods)
    shapes = [shape_of(pod, models) for pod in pods]
    capacity = 1000 * sum(node.gpus for node in nodes)
    chance = np.random.default_rng(seed)
    order = arrival_order(shapes, capacity, inflation, chance)
    states = [_state(nodes[index]) for index in chance.permutation(len(nodes))]
    session = _session(states)
    demand = allocated = 0
    at_100: list[float] = []
    for number, (index, _) in enumerate(order):
        demand += shapes[index].total_milli
        allocated += _placed(session, number, _request(pods[index]))
        if round(100 * demand / capacity) == 100:
            at_100.append(100 * allocated / capacity)
    return {
        "allocation_ratio": {"100": statistics.fmean(at_100) if at_100 else None},
        "fragmentation_ratio": {},
        "fragments_of_all": {},
        "held": 0,
    }


def _session(states: Iterable[NodeState]) -> Session:
    nodes = tuple(states)
    pools = tuple(dict.fromkeys(node.pool_id for node in nodes))
    policy = Policy(due=None, promises=0, order="fifo")
    return Session(nodes, (), (QueueState(QUEUE, pools),), policy)


def _placed(session: Session, number: int, request: Request) -> int:
    """The milli-GPUs that a new request got."""
    name = f"job-{number}"
    session.submit(PendingJob(name, PROJECT, "user", QUEUE, request, 0, 0.0, number))
    starts = session.plan(float(number)).starts
    if not starts:
        session.withdraw(name)
        return 0
    tasks = starts[0].tasks
    session.start(
        RunningGang(
            name, PROJECT, tasks, None, gang_id=name, queue_id=QUEUE, user_id="user",
            request=request,
        )
    )  # fmt: skip
    return sum(milli for task in tasks for _, milli in task.devices)


def _state(node: Node) -> NodeState:
    devices = tuple(
        DeviceState(f"{node.name}/{index}", node.model, 16384, link_group="0")
        for index in range(node.gpus)
    )
    pool = f"pool-{node.model}"
    return NodeState(node.name, pool, node.cpu_milli, node.memory_mib, devices)


def _request(pod: Pod) -> Request:
    return Request(
        gpu_milli=pod.gpu_milli if pod.gpus == 1 else 1000 * pod.gpus,
        vcpus=pod.cpu_milli,
        memory_mib=pod.memory_mib,
        gpu_types=pod.models,
    )
