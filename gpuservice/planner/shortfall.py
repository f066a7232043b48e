# SPDX-License-Identifier: Apache-2.0
"""What exactly a request lacks, now and at best: codes with the numbers that prove them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuservice.domain.inventory import MAX_TASKS_PER_NODE
from gpuservice.domain.reasons import Reason
from gpuservice.planner.capacity import Candidates, fitting_devices, node_capacity, usable
from gpuservice.planner.ledger import NOBODY, Ledger
from gpuservice.planner.placement import place
from gpuservice.planner.quota import RUNNING
from gpuservice.planner.snapshot import PendingJob, Request

if TYPE_CHECKING:
    from gpuservice.planner.plan import Pass

Numbers = Mapping[str, Any]

_CPUS_OR_MEMORY = "the CPUs or memory"
_TASKS_OF_A_NODE = f"the room for tasks (at most {MAX_TASKS_PER_NODE})"
_BOTH = f"the CPUs, the memory or the room for tasks (at most {MAX_TASKS_PER_NODE})"


def gpus(milli: int) -> int | float:
    """GPUs of a milli amount: whole ones as integers."""
    return milli // 1000 if milli % 1000 == 0 else milli / 1000


def _each(request: Request) -> int:
    return request.gpu_milli if request.gpu_memory_mib is None else 1000


def numbers(state: Pass, job: PendingJob) -> Numbers:
    """Needed, free in all pools, and the largest gang (in GPUs) that fits one pool now."""
    ledger, request = state.future.ledger, job.request
    free, fits = 0, 0
    for where in state.anywhere(job):
        fit = fitting_devices(ledger, request, where.project) & usable(ledger, where)[:, None]
        free += int(np.where(fit, np.maximum(ledger.free, 0), 0).sum())
        fits = max(fits, _tasks(ledger, request, where))
    return {
        "needed": gpus(_each(request) * request.count),
        "free": gpus(free),
        "largest_fit": gpus(_each(request) * fits),
        "tasks": request.count,
        "gpu_types": list(request.gpu_types),
    }


def _tasks(ledger: Ledger, request: Request, where: Candidates) -> int:
    """How many of the gang's tasks one pool holds."""
    capacity = node_capacity(ledger, request, where).clip(max=request.count)
    return min(int(capacity.sum()), request.count)


def why_not_now(state: Pass, job: PendingJob, known: Numbers) -> str:
    """The code of what stops a job that an idle cluster would hold."""
    request = job.request
    if request.required and _fits_now(state, job, replace(request, within=None, required=False)):
        return Reason.TOPOLOGY
    if _lacking_now(state, job) is not None:
        return Reason.HOST_RESOURCES
    if _down(state, job):
        return Reason.NODE_UNAVAILABLE
    if _apart(state, job):
        return Reason.ISOLATION
    if not (request.shared or request.whole):
        return Reason.HOST_RESOURCES  # of GPUs it lacks none
    least = gpus(_each(request) * request.min_count)
    return Reason.FRAGMENTED if known["free"] >= least else Reason.INSUFFICIENT_GPUS


def _lacking_now(state: Pass, job: PendingJob) -> str | None:
    """What else than GPUs is missing, where the job would fit if there were enough of it."""
    bare = _bare(job.request)
    if bare != job.request and _fits_now(state, job, bare):
        return _CPUS_OR_MEMORY
    ledger = state.future.ledger
    if bool((MAX_TASKS_PER_NODE - ledger.tasks >= job.request.count).all()):
        return None
    roomy = ledger.boundless()
    if place(roomy, job.request, state.where(job)) is not None:
        return _TASKS_OF_A_NODE
    if place(roomy, bare, state.where(job, bare)) is not None:
        return _BOTH
    return None


def _bare(request: Request) -> Request:
    return replace(request, vcpus=0, memory_mib=0)


def host_facts(state: Pass, job: PendingJob) -> Numbers:
    """What else than GPUs a waiting job lacks on the nodes."""
    return {"lacking": _lacking_now(state, job) or _BOTH}


def _fits_now(state: Pass, job: PendingJob, request: Request) -> bool:
    return place(state.future.ledger, request, state.where(job, request)) is not None


def _down(state: Pass, job: PendingJob) -> bool:
    """Whether the job would fit if every node of its pools were ready."""
    ledger = state.future.ledger.copy()
    if bool(ledger.ready.all()):
        return False
    ledger.ready = np.ones_like(ledger.ready)
    return place(ledger, job.request, state.where(job)) is not None


def _apart(state: Pass, job: PendingJob) -> bool:
    """Whether the job would fit if tasks of several projects could be on one node."""
    ledger = state.future.ledger.copy()
    ledger.occupant = np.full_like(ledger.occupant, NOBODY)
    return place(ledger, job.request, state.where(job)) is not None


def isolation_facts(state: Pass, job: PendingJob) -> Numbers:
    """The nodes that another project keeps from this one, and what their agents lack to share."""
    ledger, occupied, missing = state.future.ledger, 0, set[str]()
    for where in state.anywhere(job):
        fit = fitting_devices(ledger, job.request, where.project) & (ledger.free > 0)
        kept = where.nodes & ledger.ready & ~usable(ledger, where) & fit.any(axis=1)
        occupied += int(kept.sum())
        for row in np.flatnonzero(kept):
            missing.update(ledger.layout.nodes[row].unproved)
    lacking = sorted(missing)
    because = f": their agents have not proved {', '.join(lacking)}" if lacking else ""
    return {"occupied": occupied, "unproved": lacking, "because": because}


def why_impossible(state: Pass, job: PendingJob) -> tuple[str, Numbers] | None:
    """The one wish without which the request would be possible, if there is one, with facts."""
    request, pools = job.request, state.pools(job)
    variants: tuple[tuple[str, Request, Numbers], ...] = (
        (Reason.GPU_TYPE_UNAVAILABLE, replace(request, gpu_types=()), {}),
        (Reason.GPU_MEMORY, replace(request, min_gpu_memory_mib=0), {}),
        (Reason.HOST_RESOURCES, _bare(request), {"lacking": _CPUS_OR_MEMORY}),
        (Reason.TOPOLOGY, replace(request, within=None, required=False), {}),
    )
    for code, variant, facts in variants:
        if variant != request and state.feasibility.possible(variant, pools):
            return code, facts
    if state.feasibility.possible_uncrowded(request, pools):
        return Reason.HOST_RESOURCES, {"lacking": _TASKS_OF_A_NODE}
    return None


def largest_ever(state: Pass, job: PendingJob) -> Numbers:
    """The largest such gang that an idle pool holds, and all its GPUs."""
    feasibility = state.feasibility
    ledger = feasibility.ledger()
    wheres = feasibility.candidates(state.pools(job))
    largest = max((_tasks(ledger, job.request, where) for where in wheres), default=0)
    total = max((int(ledger.free[where.nodes].sum()) for where in wheres), default=0)
    return {
        "largest_ever": gpus(_each(job.request) * largest),
        "largest_ever_tasks": largest,
        "total": gpus(total),
    }


def quota_facts(state: Pass, job: PendingJob) -> Numbers:
    """What is left of the project's limited quotas."""
    left = state.headroom.left(job.project_id)
    return {
        "left": {name: amount if name == RUNNING else gpus(amount) for name, amount in left.items()}
    }


def growth(
    state: Pass, wanted: Mapping[str, int], job: PendingJob
) -> list[tuple[str, Mapping[str, Any]]]:
    """What autoscaled pools do about it: grow, or cannot any more."""
    pool_ids = state.pools(job)
    pools = [pool for pool in state.snapshot.pools if pool.id in pool_ids and pool.autoscale]
    if any(pool.id in wanted or pool.coming for pool in pools):
        return [(Reason.POOL_GROWING, {})]
    full = [pool for pool in pools if pool.size >= pool.max_nodes]
    if pools and len(full) == len(pools):
        return [(Reason.POOL_AT_MAX, {"max_nodes": sum(pool.max_nodes for pool in full)})]
    return []
