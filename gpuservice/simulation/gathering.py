# SPDX-License-Identifier: Apache-2.0
"""What a what-if begins with, read from the store: the live state, recorded jobs, inline rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpuservice.domain import moments
from gpuservice.domain.ports_store import UnitOfWork
from gpuservice.domain.simulations import Simulation
from gpuservice.planner.quota import RUNNING
from gpuservice.planner.snapshot import NodeState, Policy, PoolState, Snapshot
from gpuservice.simulation.cluster import Cluster
from gpuservice.simulation.faults import InputFault
from gpuservice.simulation.live_state import Live, live_state
from gpuservice.simulation.opening import Opening
from gpuservice.simulation.recorded import recorded
from gpuservice.simulation.what_if import Material
from gpuservice.simulation.workload import Reading, WorkloadJob
from gpuservice.simulation.workload_csv import read_rows

#: What a job without a limit is taken to need, unless the request says it.
ASSUMED_RUNTIME_S = 3600

Amounts = dict[tuple[str, str], int]


@dataclass(frozen=True, slots=True)
class Gathering:
    """Reads the material. ``collect``: the planner's snapshot of the moment; ``max_jobs``: how many
    jobs a history has at most."""

    collect: Callable[[UnitOfWork], Snapshot]
    policy: Policy
    max_jobs: int

    def material(self, uow: UnitOfWork, simulation: Simulation) -> Material:
        """Everything that the simulation works on.

        :raises InputFault: if an inline row is wrong, or there are no nodes.
        """
        request = simulation.request
        snapshot = self.collect(uow)
        if not snapshot.nodes:
            raise InputFault("there is no node to simulate on")
        now = request.get("from", "now") == "now"
        assumed = int(request.get("assumed_runtime_s") or ASSUMED_RUNTIME_S)
        live = live_state(uow, snapshot, assumed) if now else Live()
        jobs, left_out = list(live.jobs), dict(live.left_out)
        history = request.get("history")
        if history:
            since, until = (moments.parsed(history[name]) for name in ("since", "until"))
            found = recorded(uow, since, until, self.max_jobs)
            jobs += found.jobs
            for name, count in found.left_out.items():
                left_out[name] = left_out.get(name, 0) + count
        jobs += _inline(simulation)
        use = _use_of_running(snapshot)
        return Material(
            cluster=_cluster(snapshot, use),
            jobs=tuple(jobs),
            opening=Opening(live.begun, snapshot.usage if now else {}, snapshot.limit_ratio),
            policy=replace(self.policy, explain=False),
            in_use={
                key: max(0, used - use.get(key, 0))
                for key, (_, used) in uow.scheduling.quota().items()
            },
            names=_names(uow),
            left_out={name: count for name, count in sorted(left_out.items()) if count},
            assumed=_assumptions(now, snapshot, assumed),
            change=_resolved(request.get("change") or {}, simulation.resolved),
        )


def _inline(simulation: Simulation) -> list[WorkloadJob]:
    """The rows of the request, in the queues that they name."""
    queues = simulation.resolved.get("workload", [])
    rows = [
        {**row, "queue": queue}
        for row, queue in zip(simulation.workload, queues, strict=True)
    ]  # fmt: skip
    return list(read_rows(rows, Reading()))


def _cluster(snapshot: Snapshot, use: Amounts) -> Cluster:
    """The nodes that are there, as if nothing ran on them, in the pools that have them."""
    busy = {task.node_id for gang in snapshot.running for task in gang.tasks}
    nodes = tuple(
        _idle(node) for node in snapshot.nodes if node.ready or node.id in busy
    )  # fmt: skip
    sizes: dict[str, int] = {}
    for node in nodes:
        sizes[node.pool_id] = sizes.get(node.pool_id, 0) + 1
    return Cluster(
        nodes,
        queues=snapshot.queues,
        headroom={key: left + use.get(key, 0) for key, left in snapshot.headroom.items()},
        reservations=tuple(
            replace(
                one,
                starts_at=one.starts_at - snapshot.now,
                ends_at=one.ends_at - snapshot.now,
            )
            for one in snapshot.reservations
        ),
        owned=tuple(_fixed(pool, sizes.get(pool.id, 0)) for pool in snapshot.pools),
    )


def _idle(node: NodeState) -> NodeState:
    return replace(
        node,
        used_vcpus=0,
        used_memory_mib=0,
        live_tasks=0,
        occupant=None,
        devices=tuple(replace(one, used_milli=0, occupant=None) for one in node.devices),
    )


def _fixed(pool: PoolState, size: int) -> PoolState:
    return replace(pool, autoscale=False, size=size, coming=0, max_nodes=size)


def _use_of_running(snapshot: Snapshot) -> Amounts:
    """What running gangs take of their projects' quotas: nothing on pools of their own."""
    pools = {pool.id: pool for pool in snapshot.pools}
    where = {node.id: pools.get(node.pool_id) for node in snapshot.nodes}
    use: Amounts = {}
    for gang in snapshot.running:
        _add(use, (gang.project_id, RUNNING), 1)
        for task in gang.tasks:
            pool = where.get(task.node_id)
            if pool is None or pool.project_id == gang.project_id:
                continue
            milli = sum(share for _, share in task.devices)
            for name in ("gpus", f"gpus:{pool.template.gpu_type}"):
                _add(use, (gang.project_id, name), milli)
    return use


def _add(use: Amounts, key: tuple[str, str], amount: int) -> None:
    use[key] = use.get(key, 0) + amount


def _names(uow: UnitOfWork) -> dict[str, str]:
    """Queues by their names; those of a project with the project before it."""
    return {
        queue.id: queue.name if queue.project_id is None else f"{queue.project_id}/{queue.name}"
        for queue in uow.queues.find()
    }


def _resolved(change: Mapping[str, Any], ids: Mapping[str, Any]) -> dict[str, Any]:
    """The change with ids where the request has names or ids."""
    made = dict(change)
    for noun in ("queues", "pools"):
        if noun in made:
            made[noun] = {ids[noun][reference]: value for reference, value in made[noun].items()}
    return made


def _assumptions(now: bool, snapshot: Snapshot, assumed: int) -> tuple[str, ...]:
    said = ["Pools keep the size that they have; nodes do not fail."]
    if now:
        percent = round(100 * snapshot.limit_ratio)
        said.append(
            f"Jobs that run or wait now need {percent} % of their time limits, as those that "
            f"ended lately did; without a limit {assumed} s."
        )
    return tuple(said)
