# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies for planner snapshots and policies, and how many examples laws get."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st

from gpuservice.planner.snapshot import Policy, Snapshot
from tests import cluster_worlds, job_worlds
from tests.cluster_worlds import EVERYTHING


def _things(size: int, least: int, most: int) -> st.SearchStrategy[list[bytes]]:
    return st.lists(st.binary(min_size=size, max_size=size), min_size=least, max_size=most)


def _many(size: int, most: int) -> st.SearchStrategy[list[bytes]]:
    """Often nearly as many as may be: full clusters and long lines are where faults are."""
    least = (0, most // 2, 2 * most // 3, most)
    return st.one_of([_things(size, one, most) for one in least])


def snapshots(
    has: frozenset[str] = EVERYTHING, waiting: int = 10, nodes: int = 6
) -> st.SearchStrategy[Snapshot]:
    """Worlds with at most so many waiting jobs and nodes."""
    size = cluster_worlds.CLUSTER_BYTES
    return st.builds(
        cluster_worlds.Throws,
        st.binary(min_size=len(EVERYTHING), max_size=len(EVERYTHING)),
        st.binary(min_size=size, max_size=size),
        _things(cluster_worlds.POOL_BYTES, 1, 2),
        _things(cluster_worlds.NODE_BYTES, 1, nodes),
        _things(cluster_worlds.QUEUE_BYTES, 3, 3),
        _things(job_worlds.REQUEST_BYTES, 1, 4),
        _many(job_worlds.JOB_BYTES, 16),
        _many(job_worlds.JOB_BYTES, waiting),
    ).map(lambda throws: cluster_worlds.world(throws, has))


def _press(snapshot: Snapshot, spared: int) -> Snapshot:
    """Whoever runs is of a low tier and may be preempted, but for every ``spared``-th."""
    running = tuple(
        gang
        if number % 5 == spared
        else replace(
            gang,
            priority=min(gang.priority, 100 + 100 * (number % 4)),
            started_at=snapshot.now - 4000,
            preemptible=True,
            preempted=number % 2,
            protected_s=600.0 if number % 3 else 0.0,
        )
        for number, gang in enumerate(snapshot.running)
    )
    queues = tuple(replace(queue, preemption="both") for queue in snapshot.queues[:2])
    return replace(snapshot, running=running, queues=(*queues, *snapshot.queues[2:]))


#: Full clusters in which much may be preempted.
crowded = st.builds(
    _press,
    snapshots(EVERYTHING - {"broken", "holds", "closed", "reservations"}, waiting=8, nodes=3),
    st.integers(0, 4),
)

#: What a policy may preempt for: nothing, what it does by default, everything.
calm = frozenset[str]()
eager = frozenset({"priority", "reclaim", "due_gangs", "short_jobs"})

policies = st.builds(
    Policy,
    order=st.sampled_from(["fair", "fair", "fifo", "multifactor"]),
    promises=st.sampled_from([0, 1, 2, 8, -1]),
    small_promises=st.sampled_from([0, 1, 3]),
    due=st.sampled_from([None, None, Policy().due]),
    backfill_order=st.sampled_from(["line", "short_first", "area_slowdown"]),
    preempt=st.sampled_from([calm, calm, Policy().preempt, eager]),
    protected_s=st.sampled_from([0.0, 1800.0]),
    defragment=st.sampled_from([False, False, False, True]),
)

#: Nothing is promised and nothing moved: what fits starts.
GREEDY = Policy(promises=0, small_promises=0, due=None, preempt=calm, explain=False)

_PROFILE = settings.get_current_profile_name()


def examples(default: int) -> settings:
    """How many examples a law gets by default; the other profiles say it themselves."""
    most = settings().max_examples
    if _PROFILE == "default":
        most = default
    return settings(max_examples=min(most, default) if _PROFILE == "quick" else most)


#: What every law gets.
law = examples(300)
