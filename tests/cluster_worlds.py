# SPDX-License-Identifier: Apache-2.0
"""Snapshots out of thrown dice: clusters that are consistent in themselves, busy, with a line.

What runs at the start was placed by the plain accounts of ``tests.reference_books``, not by the
planner, so a planner that would never make a state must still cope with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpuservice.planner.snapshot import (
    DeviceState,
    NodeState,
    NodeTemplate,
    PoolState,
    QueueState,
    Reservation,
    RunningGang,
    Snapshot,
)
from tests.cluster_states import gang_of, with_running
from tests.job_worlds import NOW, PROJECTS, TYPES, USERS, Dice, jobs
from tests.reference_books import Books

#: All that a world may have beyond nodes, queues and jobs.
EVERYTHING = frozenset(
    {
        "quota",
        "cohort",
        "reservations",
        "deadlines",
        "promises",  # carried over from earlier plans
        "holds",
        "closed",
        "broken",  # nodes and devices
        "endless",  # jobs without a limit
        "late",  # running jobs past their promised end
    }
)
#: Worlds whose future is known: all that runs ends when it should, nothing is broken or held.
PREDICTABLE = EVERYTHING - {"endless", "late", "broken", "holds", "closed"}

#: (link_domain, rack, zone): consistent, and each may be unknown.
PLACES = (
    ("d0", "r0", "z0"),
    ("d0", "r0", "z0"),
    ("d1", "r0", "z0"),
    (None, "r0", None),
    ("d2", "r1", "z0"),
    (None, "r1", "z0"),
    (None, None, "z1"),
    (None, None, None),
)
GROUPS = ("xxxx", "xxyy", "xyxy", "xxx-", "----")
HEALTH = ("++++", "++++", "++++", "+-++", "-+++")
#: Bytes of one node, pool, queue and cluster.
NODE_BYTES, POOL_BYTES, QUEUE_BYTES, CLUSTER_BYTES = 5, 6, 14, 32


@dataclass(frozen=True)
class Throws:
    """All dice of one world, thing by thing."""

    features: bytes
    cluster: bytes
    pools: Sequence[bytes]
    nodes: Sequence[bytes]
    queues: Sequence[bytes]
    shapes: Sequence[bytes]
    running: Sequence[bytes]
    waiting: Sequence[bytes]


def world(throws: Throws, has: frozenset[str] = EVERYTHING) -> Snapshot:
    """A cluster on which something runs and something waits.

    Each world has some of what it may have, so that one thing does not always hide another.
    """
    dice = Dice(throws.features)
    has = frozenset(one for one in sorted(has) if dice.pick([False, True]))
    shapes = [Dice(thrown) for thrown in throws.shapes]
    empty = cluster(throws, has)
    busy = occupy(empty, throws.running, shapes, has)
    shapes = [Dice(thrown) for thrown in throws.shapes]
    return replace(
        busy, pending=jobs([Dice(thrown) for thrown in throws.waiting], shapes, has, first=100)
    )


def cluster(throws: Throws, has: frozenset[str]) -> Snapshot:
    """An empty cluster with pools, queues, quotas, reservations and usage."""
    pools = [_pool(Dice(thrown), number) for number, thrown in enumerate(throws.pools)]
    nodes = [
        _node(Dice(thrown), row, row % len(pools), pools[row % len(pools)], has)
        for row, thrown in enumerate(throws.nodes)
    ]
    sizes = [sum(one.pool_id == pool.id for one in nodes) for pool in pools]
    dice = Dice(throws.cluster)
    return Snapshot(
        NOW,
        tuple(nodes),
        tuple(
            replace(
                pool,
                max_nodes=pool.max_nodes + size,
                size=size + pool.coming,
            )
            for pool, size in zip(pools, sizes, strict=True)
        ),
        tuple(
            _queue(Dice(thrown), number, [pool.id for pool in pools], has)
            for number, thrown in enumerate(throws.queues)
        ),
        (),
        (),
        _headroom(dice) if "quota" in has else {},
        _usage(dice),
        _reservations(dice, [one.id for one in nodes]) if "reservations" in has else (),
        dice.pick([1.0, 1.0, 0.2]),
    )


def _pool(dice: Dice, number: int) -> PoolState:
    gpu_type, memory = TYPES[number % 2]
    gpus, more, scales = dice.pick([4, 4, 2]), dice.number(0, 2), dice.pick([False, True])
    coming = min(dice.pick([0, 0, 1]), more) if scales else 0
    return PoolState(
        f"pool-{number}",
        dice.pick(PROJECTS),
        more,
        NodeTemplate(gpu_type, gpus, memory, 8, 1000),
        scales,
        0,
        coming,
        dice.pick([False, False, True]),
    )


def _node(dice: Dice, row: int, number: int, pool: PoolState, has: frozenset[str]) -> NodeState:
    link_domain, rack, zone = dice.pick(PLACES)
    groups, health = dice.pick(GROUPS), dice.pick(HEALTH if "broken" in has else HEALTH[:1])
    template = pool.template
    return NodeState(
        f"n{row}",
        pool.id,
        template.vcpus,
        template.memory_mib,
        tuple(
            DeviceState(
                f"n{row}-{gpu}",
                template.gpu_type,
                template.gpu_memory_mib,
                healthy=health[gpu] == "+",
                link_group=None if groups[gpu] == "-" else groups[gpu],
            )
            for gpu in range(template.gpu_count)
        ),
        ready="broken" not in has or dice.pick([True, True, True, True, False]),
        isolation_node=pool.isolation_node,
        link_domain=link_domain,
        rack=rack,
        zone=zone,
    )


def _limits(dice: Dice, *amounts: int | None) -> dict[str, int]:
    """Milli-GPUs by GPU type; absent: no bound."""
    drawn = {gpu_type: dice.pick(amounts) for gpu_type, _ in TYPES}
    return {gpu_type: milli for gpu_type, milli in drawn.items() if milli is not None}


def _queue(dice: Dice, number: int, pools: Sequence[str], has: frozenset[str]) -> QueueState:
    first = dice.number(0, len(pools) - 1)
    several = dice.pick([True, True, False])
    turned = (*pools[first:], *pools[:first])
    made = QueueState(
        f"queue-{number}",
        turned if several else turned[:1],
        "closed" not in has or dice.pick([True] * 9 + [False]),
        dice.pick([1.0, 1.0, 2.0, 0.5]),
        preemption=dice.pick(["none", "lower_priority", "reclaim", "both", "both"]),
        spread=dice.pick([False, True]),
        default_runtime_s=dice.pick([120, None, None]) if "endless" in has else 120,
    )
    if "cohort" not in has:
        return made
    return replace(
        made,
        cohort=dice.pick([None, "c", "c", "c"]),
        nominal=_limits(dice, None, 8000, 6000, 4000, 3000, 2000, 0),
        borrowing_limit=_limits(dice, None, None, 0, 1000, 2500),
        lending_limit=_limits(dice, None, None, 0, 1000),
    )


def _headroom(dice: Dice) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for _ in range(dice.number(0, 3)):
        name = dice.pick(["gpus", "gpus:t4", "gpus:a100-80gb", "jobs:running"])
        amounts = [0, 1, 2, 4] if name == "jobs:running" else [0, 1000, 2500, 6000]
        found[dice.pick(PROJECTS), name] = dice.pick(amounts)
    return found


def _usage(dice: Dice) -> dict[tuple[str, str, str], float]:
    return {
        (f"queue-{dice.number(0, 2)}", dice.pick(PROJECTS), dice.pick(USERS)): dice.pick(
            [0.0, 1e3, 1e5, 1e5, 1e7]
        )
        for _ in range(dice.number(0, 4))
    }


def _reservations(dice: Dice, node_ids: Sequence[str]) -> tuple[Reservation, ...]:
    """None, one or two that do not meet on a node."""
    made: list[Reservation] = []
    for number in range(dice.pick([0, 0, 1, 2])):
        starts_at = NOW + dice.pick([-50, 0, 50, 100, 400])
        ends_at = starts_at + dice.pick([40, 100, 500])
        queue, project = f"queue-{dice.number(0, 1)}", dice.pick(PROJECTS)
        for_queue = dice.pick([True, False])
        made.append(
            Reservation(
                f"reservation-{number}",
                tuple(node_ids[number::2]),
                starts_at,
                ends_at,
                queue if for_queue else None,
                None if for_queue else project,
            )
        )
    return tuple(one for one in made if one.ends_at > NOW and one.node_ids)


def occupy(
    empty: Snapshot, thrown: Sequence[bytes], shapes: Sequence[Dice], has: frozenset[str]
) -> Snapshot:
    """The cluster with jobs that began some time ago, placed within all that binds them."""
    calm = has - {"promises", "deadlines", "holds"}
    first = jobs([Dice(one) for one in thrown], shapes, calm)
    opened = tuple(replace(queue, open=True) for queue in empty.queues)
    books = Books(replace(empty, headroom={}, pending=first, reservations=(), queues=opened))
    gangs: list[RunningGang] = []
    for job, one in zip(first, thrown, strict=True):
        dice = Dice(one[::-1])
        ago, left = dice.pick([30, 900, 4000, 10000]), dice.pick([30, 60, 90, 700, 9000])
        turn, preempted = dice.number(0, 2), dice.pick([0, 0, 1, 5])
        protected = dice.pick([0.0, 0.0, 600.0, 5000.0])
        if "late" in has and ago == 10000:
            left = -5
        endless = "endless" in has and job.max_runtime_s is None
        for number in range(job.elements):
            tasks = books.find(job, turn=turn)
            if tasks is None:
                break
            books.start(job, tasks)
            end = None if endless else NOW + left
            gang = gang_of(job, tasks, NOW - ago, end, number=number)
            # Waiting again, it asks for what its end was reckoned with.
            limit = None if endless else ago + left
            gangs.append(
                replace(gang, preempted=preempted, protected_s=protected, max_runtime_s=limit)
            )
    return with_running(empty, gangs)
