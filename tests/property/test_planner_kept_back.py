# SPDX-License-Identifier: Apache-2.0
"""Whoever is passed over because what it would start on is kept for a promise would have been
tried in vain: plans are the same, and so is what each waiting job is told."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from planner_worlds import calm, eager, law

from gpuservice.planner import passes
from gpuservice.planner.ledger import Bools, Ints
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

NOW = 1_000_000.0
GPUS = 4
HOSTS = 3
TYPE = "a100-80gb"
GANG = Request(count=2, min_count=2, gpu_milli=4000)
SHAPES = (
    Request(),
    Request(vcpus=6),
    Request(gpu_milli=500),
    Request(gpu_milli=500, memory_mib=900),
    Request(gpu_milli=2000),
    Request(gpu_memory_mib=20000),
    Request(count=2, min_count=1, gpu_milli=500),
    Request(count=2, min_count=2),
)
LIMITS = (40, 250, 900, 900, 9000, None)

#: Of each GPU: what is left of what runs there (seconds), a share or the whole.
_running = st.lists(
    st.tuples(st.sampled_from([60, 200, 200, 800]), st.sampled_from([False, False, True])),
    min_size=GPUS * HOSTS,
    max_size=GPUS * HOSTS,
)
_free = st.sets(st.integers(0, GPUS * HOSTS - 1), min_size=1, max_size=3)
_waiting = st.lists(
    st.tuples(
        st.sampled_from(SHAPES),
        st.sampled_from(LIMITS),
        st.integers(0, 2),  # queue
        st.integers(0, 1),  # project
        st.sampled_from([500, 500, 500, 700]),
        st.booleans(),  # preemptible
    ),
    min_size=3,
    max_size=20,
)
_policies = st.builds(
    Policy,
    order=st.sampled_from(["fair", "fair", "fifo", "multifactor"]),
    due=st.sampled_from([Policy().due, None]),
    promises=st.sampled_from([1, 8, -1]),
    backfill_order=st.sampled_from(["line", "area_slowdown"]),
    preempt=st.sampled_from([calm, Policy().preempt, eager]),
    protected_s=st.just(0.0),
)


def _draining(
    running: list[tuple[int, bool]],
    free: set[int],
    waiting: list[tuple[Request, int | None, int, int, int, bool]],
    nominal: int | None,
    jobs: int,
    policy: Policy,
) -> Session:
    """Hosts that come free one GPU after another for a gang that is due."""
    hosts = [
        NodeState(f"n{host}", "pool", 16, 4096, tuple(
            DeviceState(f"n{host}-{gpu}", TYPE, 81920, link_group="g") for gpu in range(GPUS)
        ))
        for host in range(HOSTS)
    ]  # fmt: skip
    pool = PoolState("pool", "operator", HOSTS, NodeTemplate(TYPE, GPUS, 81920, 16, 4096), HOSTS)
    queues = [
        QueueState(f"q{number}", ("pool",), cohort="all", preemption="both",
                   nominal={} if nominal is None else {TYPE: nominal})
        for number in range(3)
    ]  # fmt: skip
    session = Session(hosts, [pool], queues, policy, {("p1", "jobs:running"): jobs})
    for at, (left, shared) in enumerate(running):
        if at not in free:
            host, gpu = divmod(at, GPUS)
            share = ((f"n{host}-{gpu}", 500 if shared else 1000),)
            session.start(RunningGang(
                f"run{at}", f"p{gpu % 2}", (TaskPlacement(0, f"n{host}", share, 1, 64),),
                NOW + left + gpu, f"run{at}", f"q{at % 3}", "user", 500, NOW - 5000,
                preemptible=at % 3 > 0,
            ))  # fmt: skip
    session.submit(
        PendingJob("gang", "p0", "user", "q0", GANG, 500, NOW - 900, 0, 700, due=NOW - 1)
    )
    for number, (request, limit, queue, project, tier, preemptible) in enumerate(waiting, 1):
        session.submit(PendingJob(
            f"job{number}", f"p{project}", "user", f"q{queue}", request, tier,
            NOW - 800 + number, number, limit, preemptible=preemptible, due=NOW + 1e6,
        ))  # fmt: skip
    return session


def _nobody(state: passes.Pass, rows: Ints, shapes: Ints) -> Bools:
    return np.zeros(len(rows), dtype=np.bool_)


def _told(plan: Plan) -> Plan:
    return replace(plan, waiting=tuple(plan.waiting))


@law
@given(
    _running,
    _free,
    _waiting,
    st.sampled_from([None, 2000, 5000, 99000]),
    st.integers(0, 4),
    _policies,
)
def test_who_is_passed_over_would_have_been_tried_in_vain(
    running: list[tuple[int, bool]],
    free: set[int],
    waiting: list[tuple[Request, int | None, int, int, int, bool]],
    nominal: int | None,
    jobs: int,
    policy: Policy,
) -> None:
    world = (running, free, waiting, nominal, jobs, policy)
    made = _told(_draining(*world).plan(NOW, explain=True))
    with mock.patch.object(passes, "kept_back", _nobody):
        tried = _told(_draining(*world).plan(NOW, explain=True))
    assert made == tried
