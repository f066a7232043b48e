# SPDX-License-Identifier: Apache-2.0
"""How many nodes autoscaled pools should have for what waits. Shrinking is by idle time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from gpuservice.planner.feasibility import new_nodes
from gpuservice.planner.ledger import Ledger, build
from gpuservice.planner.placement import place
from gpuservice.planner.promises import future_candidates
from gpuservice.planner.snapshot import PendingJob, Snapshot


def wanted_sizes(
    snapshot: Snapshot,
    left: Iterable[PendingJob],
    pools_of: Callable[[PendingJob], frozenset[str]],
) -> Mapping[str, int]:
    """Pool id -> wanted nodes, for autoscaled pools that should grow now.

    New nodes are filled with waiting jobs in line order; the nodes that something was put on are
    wanted. Nodes that are already coming count as there.
    """
    growing = [
        pool for pool in snapshot.pools if pool.autoscale and pool.size < pool.max_nodes
        or pool.coming
    ]
    growing = [pool for pool in growing if pool.autoscale]
    if not growing:
        return {}
    nodes = [node for pool in growing
             for node in new_nodes(pool, pool.max_nodes - (pool.size - pool.coming))]
    ledger = build(replace(snapshot, nodes=tuple(nodes)))
    used = _fill(ledger, left, pools_of, frozenset(pool.id for pool in growing))
    wanted: dict[str, int] = {}
    for pool in growing:
        needed = sum(1 for node in nodes if node.pool_id == pool.id and node.id in used)
        size = min(pool.size - pool.coming + needed, pool.max_nodes)
        if size > pool.size:
            wanted[pool.id] = size
    return wanted


def _fill(
    ledger: Ledger,
    left: Iterable[PendingJob],
    pools_of: Callable[[PendingJob], frozenset[str]],
    growing: frozenset[str],
) -> set[str]:
    used: set[str] = set()
    full: set[object] = set()
    for job in left:
        pools = pools_of(job) & growing
        key = (job.request, pools)
        if job.blocked is not None or not pools or key in full:
            continue
        project = ledger.layout.projects.of(job.project_id)
        where = future_candidates(ledger, pools, project)
        for _ in range(job.elements):
            tasks = place(ledger, job.request, where)
            if tasks is None:
                full.add(key)
                break
            ledger.take(tasks, project)
            used.update(task.node_id for task in tasks)
    return used
