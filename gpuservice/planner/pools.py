# SPDX-License-Identifier: Apache-2.0
"""How many nodes autoscaled pools should have for what waits. Shrinking is by idle time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from gpuservice.planner.building import build
from gpuservice.planner.capacity import candidates
from gpuservice.planner.feasibility import new_nodes
from gpuservice.planner.ledger import Ledger
from gpuservice.planner.placement import place
from gpuservice.planner.snapshot import PendingJob, PoolState, Request


def wanted_sizes(
    pools: Sequence[PoolState],
    waiting: Callable[[], Iterable[PendingJob]],
    pools_of: Callable[[PendingJob], tuple[str, ...]],
) -> Mapping[str, int]:
    """Pool id -> wanted nodes, for autoscaled pools that should grow now.

    New nodes are filled with waiting jobs in line order; the nodes that something was put on are
    wanted. Nodes that are already coming count as there.

    :param waiting: gives the jobs that wait for GPUs; asked only where a pool may grow.
    """
    growing = [
        pool for pool in pools if pool.autoscale and (pool.size < pool.max_nodes or pool.coming)
    ]
    left = list(waiting()) if growing else []
    if not left:
        return {}
    most = sum(job.request.count * job.elements for job in left)
    nodes = [
        node
        for pool in growing
        for node in new_nodes(pool, min(pool.max_nodes - (pool.size - pool.coming), most))
    ]
    ledger = build(nodes)
    used = _fill(ledger, left, pools_of)
    needs: dict[str, int] = {}
    for row in (ledger.layout.node_row[ident] for ident in used):
        pool_id = ledger.layout.pool[row]
        needs[pool_id] = needs.get(pool_id, 0) + 1
    wanted: dict[str, int] = {}
    for pool in growing:
        needed = needs.get(pool.id, 0)
        size = min(pool.size - pool.coming + needed, pool.max_nodes)
        if size > pool.size:
            wanted[pool.id] = size
    return wanted


def _fill(
    ledger: Ledger,
    left: Iterable[PendingJob],
    pools_of: Callable[[PendingJob], tuple[str, ...]],
) -> set[str]:
    """The new nodes that waiting jobs would be put on."""
    used: set[str] = set()
    full: set[object] = set()
    for job in left:
        where = candidates(ledger, pools_of(job), job.project_id)
        key = (job.request, job.queue_id, job.project_id)
        if not where or key in full:
            continue
        request = _unbound(job.request)
        for _ in range(job.elements):
            tasks = place(ledger, request, where)
            if tasks is None:
                full.add(key)
                break
            ledger.take(tasks, where[0].project)
            used.update(task.node_id for task in tasks)
    return used


def _unbound(request: Request) -> Request:
    """Without a topology wider than a node: where new nodes will stand is not known yet."""
    if request.within in ("link_group", "node"):
        return request
    return replace(request, within=None, required=False)
