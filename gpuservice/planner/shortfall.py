# SPDX-License-Identifier: Apache-2.0
"""What exactly a request lacks, now and at best: codes with the numbers that prove them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from gpuservice.domain.inventory import MAX_TASKS_PER_NODE
from gpuservice.domain.reasons import Reason
from gpuservice.planner.capacity import (
    PLENTY,
    Candidates,
    View,
    fitting_devices,
    may_fit,
    usable,
)
from gpuservice.planner.ledger import NOBODY
from gpuservice.planner.passes import Pass
from gpuservice.planner.placement import largest_gang, place
from gpuservice.planner.quota import RUNNING
from gpuservice.planner.snapshot import PendingJob, Request
from gpuservice.planner.world import Shape

Numbers = Mapping[str, Any]

_CPUS_OR_MEMORY = "the CPUs or memory"
_TASKS_OF_A_NODE = f"the room for tasks (at most {MAX_TASKS_PER_NODE})"
_BOTH = f"the CPUs, the memory or the room for tasks (at most {MAX_TASKS_PER_NODE})"


def gpus(milli: int) -> int | float:
    """GPUs of a milli amount: whole ones as integers."""
    return milli // 1000 if milli % 1000 == 0 else milli / 1000


def each_of(request: Request) -> int:
    """Milli-GPUs of a task; a share by memory counts as a GPU."""
    return request.gpu_milli if request.gpu_memory_mib is None else 1000


class Shortfall:
    """Why one shape does not start, by what its pass left."""

    def __init__(self, state: Pass, job: PendingJob, shape: Shape) -> None:
        self.state = state
        self.job = job
        self.shape = shape
        self.ledger = state.world.ledger
        self.where = shape_candidates(state, job, shape)

    @cached_property
    def quota_where(self) -> Sequence[Candidates]:
        """Where quotas have room for the job."""
        return self.state.trial.within_quota(self.job, self.shape)

    def numbers(self) -> dict[str, Any]:
        """Needed, free in all pools, and the largest gang (in GPUs) that fits one pool now; by
        pool as well where there are several."""
        request = self.job.request
        pools = zip(self.shape.views, self.where, strict=True)
        rows = [self._pool_numbers(view, one) for view, one in pools]
        found: dict[str, Any] = {
            "needed": gpus(each_of(request) * request.count),
            "free": gpus(sum(free for free, _ in rows)),
            "largest_fit": gpus(each_of(request) * max((fits for _, fits in rows), default=0)),
            "tasks": request.count,
            "gpu_types": list(request.gpu_types),
        }
        if len(rows) > 1:
            found["pools"] = [
                {
                    "pool": one.pool,
                    "free": gpus(free),
                    "largest_fit": gpus(each_of(request) * fits),
                }
                for one, (free, fits) in zip(self.where, rows, strict=True)
            ]
        return found

    def _pool_numbers(self, view: View, where: Candidates) -> tuple[int, int]:
        request = self.job.request
        if not may_fit(request, self.ledger.most_free(where.pool)):
            return self._free(where), 0
        slots = np.minimum(view.fresh(self.ledger, where.pool), request.count)
        return self._free(where), min(int(slots.sum()), request.count)

    def _free(self, where: Candidates) -> int:
        """Milli-GPUs that are free in a pool on devices that the job takes."""
        ledger, request = self.ledger, self.job.request
        if not ledger.most_free(where.pool)[1]:
            return 0
        fit = fitting_devices(ledger, request, where.rows, where.project)
        fit = fit & usable(ledger, where.rows, where.project)[:, None]
        return int(np.where(fit, np.maximum(ledger.free[where.rows], 0), 0).sum())

    def code(self, known: Numbers) -> str:
        """The code of what stops a job that an idle cluster would hold."""
        request = self.job.request
        if request.required and self._fits(replace(request, within=None, required=False)):
            return Reason.TOPOLOGY
        if self.lacking() is not None:
            return Reason.HOST_RESOURCES
        if self._down():
            return Reason.NODE_UNAVAILABLE
        if self._apart():
            return Reason.ISOLATION
        if not (request.shared or request.whole):
            return Reason.HOST_RESOURCES  # of GPUs it lacks none
        least = gpus(each_of(request) * request.min_count)
        most = max((one["free"] for one in known.get("pools", ())), default=known["free"])
        return Reason.FRAGMENTED if most >= least else Reason.INSUFFICIENT_GPUS

    def lacking(self) -> str | None:
        """What else than GPUs is missing, where the job would fit if there were enough of it."""
        request = self.job.request
        bare = _bare(request) if self._gpus_may_fit() else request
        if bare != request and self._fits(bare):
            return _CPUS_OR_MEMORY
        if int(self.ledger.tasks.max(initial=0)) <= MAX_TASKS_PER_NODE - request.count:
            return None
        roomy = self.ledger.boundless()
        if place(roomy, request, self.quota_where) is not None:
            return _TASKS_OF_A_NODE
        if place(roomy, bare, self.quota_where) is not None:
            return _BOTH
        return None

    def host_facts(self) -> Numbers:
        """What else than GPUs a waiting job lacks on the nodes."""
        return {"lacking": self.lacking() or _BOTH}

    def _fits(self, request: Request) -> bool:
        # Mostly too little is free for it anywhere, whatever quotas say.
        if not self._gpus_may_fit():
            return False
        return place(self.ledger, request, self.quota_where) is not None

    def _gpus_may_fit(self) -> bool:
        """Whether anywhere as much of GPUs is free as a task takes."""
        request = self.job.request
        return any(may_fit(request, self.ledger.most_free(one.pool)) for one in self.where)

    def _down(self) -> bool:
        """Whether the job would fit if every node of its pools were ready."""
        if bool(self.ledger.ready.all()):
            return False
        ledger = self.ledger.copy()
        ledger.ready = np.ones_like(ledger.ready)
        return place(ledger, self.job.request, self.quota_where) is not None

    def _apart(self) -> bool:
        """Whether the job would fit if tasks of several projects could be on one node."""
        if not any(self.ledger.layout.alone.values()):
            return False
        ledger = self.ledger.copy()
        ledger.occupant = np.full_like(ledger.occupant, NOBODY)
        return place(ledger, self.job.request, self.quota_where) is not None

    def isolation_facts(self) -> Numbers:
        """The nodes that another project keeps from this one, and what their agents lack."""
        ledger, request = self.ledger, self.job.request
        occupied, missing = 0, set[str]()
        for where in self.where:
            rows = where.rows
            fit = fitting_devices(ledger, request, rows, where.project) & (ledger.free[rows] > 0)
            kept = ledger.ready[rows] & ~usable(ledger, rows, where.project) & fit.any(axis=1)
            occupied += int(kept.sum())
            for row in (np.flatnonzero(kept) + rows.start).tolist():
                missing.update(ledger.layout.nodes[row].unproved)
        lacking = sorted(missing)
        because = f": their agents have not proved {', '.join(lacking)}" if lacking else ""
        return {"occupied": occupied, "unproved": lacking, "because": because}

    def why_impossible(self) -> tuple[str, Numbers] | None:
        """The one wish without which the request would be possible, if there is one."""
        request, pools = self.job.request, self.shape.pools
        feasibility = self.state.world.feasibility
        for code, variant, facts in impossible_variants(request):
            if variant != request and feasibility.possible(variant, pools):
                return code, facts
        if feasibility.possible_uncrowded(request, pools):
            return Reason.HOST_RESOURCES, {"lacking": _TASKS_OF_A_NODE}
        return None

    def largest_ever(self) -> Numbers:
        """The largest such gang that an idle pool holds where its topology lets it be, and all
        the GPUs of that pool."""
        feasibility, request = self.state.world.feasibility, self.job.request
        ledger = feasibility.ledger(request.count)
        wheres = feasibility.candidates(self.shape.pools, request.count)
        largest = max((largest_gang(ledger, request, where) for where in wheres), default=0)
        total = max((feasibility.gpus_of(pool) for pool in self.shape.pools), default=0)
        return {
            "largest_ever": gpus(each_of(request) * largest),
            "largest_ever_tasks": largest,
            "total": total,
            "within": request.within if request.required else None,
            "gpu_memory_mib": request.gpu_memory_mib or request.min_gpu_memory_mib or None,
            "most_gpu_memory_mib": max(
                (int(ledger.layout.device_memory[where.rows].max(initial=0)) for where in wheres),
                default=0,
            ),
        }

    def project_facts(self) -> Numbers:
        """What is left of the project's limited quotas."""
        left = self.state.world.headroom.left(self.job.project_id)
        return {
            "left": {
                name: amount if name == RUNNING else gpus(amount) for name, amount in left.items()
            }
        }

    def queue_facts(self) -> Numbers:
        """What the queue may use of the GPU types of its pools, and uses."""
        quotas = self.state.world.quotas
        shares: dict[str, Any] = {}
        for pool in self.shape.pools:
            gpu_type = self.state.world.gpu_type(pool) if self._has_type(pool) else None
            facts = quotas.facts(self.job.queue_id, gpu_type) if gpu_type else {}
            if gpu_type and facts:
                shares[gpu_type] = {
                    name: None if value is None else gpus(value) for name, value in facts.items()
                }
        return {"preemptible": self.job.preemptible, "queue": shares}

    def _has_type(self, pool: str) -> bool:
        world = self.state.world
        return pool in world.pools or pool in world.layout.pool_rows

    def growth(self, wanted: Mapping[str, int]) -> list[tuple[str, Numbers]]:
        """What autoscaled pools do about it: grow, or cannot any more."""
        all_pools = self.state.world.pools
        pools = [
            all_pools[name]
            for name in self.shape.pools
            if name in all_pools and all_pools[name].autoscale
        ]
        if any(pool.id in wanted or pool.coming for pool in pools):
            return [(Reason.POOL_GROWING, {})]
        full = [pool for pool in pools if pool.size >= pool.max_nodes]
        if pools and len(full) == len(pools):
            return [(Reason.POOL_AT_MAX, {"max_nodes": sum(pool.max_nodes for pool in full)})]
        return []


def shape_candidates(state: Pass, job: PendingJob, shape: Shape) -> Sequence[Candidates]:
    """Where the shape looks, whatever quota says, for the job's own project."""
    project = state.world.layout.projects.of(job.project_id)
    return [Candidates(one.pool, one.rows, project, PLENTY) for one in shape.where]


def impossible_variants(request: Request) -> tuple[tuple[str, Request, Numbers], ...]:
    """The request without one of its wishes, each with the code that names the wish."""
    share = replace(request, gpu_memory_mib=None, gpu_milli=1000)
    return (
        (Reason.GPU_TYPE_UNAVAILABLE, replace(request, gpu_types=()), {}),
        (Reason.GPU_MEMORY, replace(request, min_gpu_memory_mib=0), {}),
        (Reason.GPU_MEMORY, request if request.gpu_memory_mib is None else share, {}),
        (Reason.HOST_RESOURCES, _bare(request), {"lacking": _CPUS_OR_MEMORY}),
        (Reason.TOPOLOGY, replace(request, within=None, required=False), {}),
    )


def _bare(request: Request) -> Request:
    if not (request.vcpus or request.memory_mib):
        return request
    return replace(request, vcpus=0, memory_mib=0)
