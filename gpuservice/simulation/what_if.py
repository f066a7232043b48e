# SPDX-License-Identifier: Apache-2.0
"""One workload twice through the planner: as things are, and with a change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpuservice.planner.snapshot import DueTimes, Policy, QueueState
from gpuservice.simulation import report
from gpuservice.simulation.cluster import Cluster
from gpuservice.simulation.faults import InputFault
from gpuservice.simulation.growing import with_gpus, with_nodes
from gpuservice.simulation.opening import Opening
from gpuservice.simulation.records import Record
from gpuservice.simulation.replay import Replay, Replayed
from gpuservice.simulation.workload import WorkloadJob

#: A name of ``[scheduler]`` -> the field of the policy, where they differ.
_RENAMED = {"min_runtime_s": "protected_s"}
_SPREAD = ("mean", "p50", "p90", "p99", "max")
_MILLI = 1000


@dataclass(frozen=True, slots=True)
class Material:
    """Everything that a what-if works on; times are seconds from its beginning.

    ``in_use``: of limited quotas, what is used beside running jobs (GPUs in milli). ``names``: how
    queues are shown, by id. ``left_out``: how many jobs are not part of it, by reason.
    ``assumed``: sentences about what nobody can know.
    """

    cluster: Cluster
    jobs: tuple[WorkloadJob, ...]
    opening: Opening
    policy: Policy
    in_use: Mapping[tuple[str, str], int] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    change: Mapping[str, Any] = field(default_factory=dict)


def what_if(material: Material, watch: Callable[[float], None]) -> dict[str, Any]:
    """The figures of both runs and their differences.

    :raises InputFault: if the change cannot be made, or there is no job.
    """
    if not material.jobs:
        raise InputFault("there is no job to simulate: nothing waits, runs, or was recorded")
    cluster, opening = changed_cluster(material)
    policy = changed_policy(material.policy, material.change.get("policy") or {})
    base = _run(material, material.cluster, material.opening, material.policy, _part(watch, 0))
    changed = _run(material, cluster, opening, policy, _part(watch, 1))
    return {
        "base": base,
        "changed": changed,
        "difference": difference(base, changed),
        "jobs": len(material.jobs),
        "running_at_start": len(material.opening.begun),
        "left_out": dict(material.left_out),
        "assumptions": list(material.assumed),
    }


def _part(watch: Callable[[float], None], run: int) -> Callable[[float], None]:
    return lambda share: watch((run + share) / 2)


def _run(
    material: Material,
    cluster: Cluster,
    opening: Opening,
    policy: Policy,
    watch: Callable[[float], None],
) -> dict[str, Any]:
    replayed = Replay(cluster, material.jobs, policy, opening=opening).run(watch)
    begun = {one.job for one in material.opening.begun}
    return figures(replayed, begun, material.names)


def figures(replayed: Replayed, begun: set[str], names: Mapping[str, str]) -> dict[str, Any]:
    """Waits of the jobs that did not run at the beginning, preemptions of all, and utilisation."""
    records = replayed.records
    ready = replayed.occupancy.idle.ready
    ends = [record.ended_s for record in records if record.ended_s is not None]

    def queue(record: Record) -> str:
        return names.get(record.job.queue, record.job.queue)

    return {
        **_of(records, begun),
        "utilisation": report.number(replayed.occupancy.idle.used / ready) if ready > 0 else 0,
        "makespan_s": report.number(max(ends, default=0.0)),
        "by_project": _by(records, begun, lambda record: record.job.project),
        "by_queue": _by(records, begun, queue),
        "by_kind": _by(records, begun, lambda record: record.job.kind),
    }


def _by(
    records: Sequence[Record], begun: set[str], key: Callable[[Record], str]
) -> dict[str, dict[str, Any]]:
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return {name: _of(groups[name], begun) for name in sorted(groups)}


def _of(records: Sequence[Record], begun: set[str]) -> dict[str, Any]:
    all_of = report.group(records)
    waited = report.group([one for one in records if one.job_id not in begun])
    return {
        "jobs": waited["jobs"],
        "never_started": waited["never_started"],
        "wait_s": waited["wait_s"],
        "preemptions": all_of["preemptions"],
    }


def difference(base: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, Any]:
    """Changed less base, number by number; groups that only one run has are in none."""
    made: dict[str, Any] = {}
    for name, value in base.items():
        other = changed.get(name)
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            made[name] = difference(value, other)
        elif isinstance(value, (int, float)) and isinstance(other, (int, float)):
            made[name] = report.number(other - value)
    return made


# -- the change


def changed_policy(policy: Policy, change: Mapping[str, Any]) -> Policy:
    """The policy with some values of ``[scheduler]`` set anew."""
    values: dict[str, Any] = {}
    due, weights = dict[str, float](), dict[str, float]()
    for name, value in change.items():
        if name.startswith("weight_"):
            weights[name.removeprefix("weight_")] = value
        elif name.startswith("due_") and name != "due_times":
            due[name.removeprefix("due_")] = value
        elif name == "preempt":
            values[name] = frozenset(value)
        elif name != "due_times":
            values[_RENAMED.get(name, name)] = value
    if change.get("due_times", policy.due is not None):
        values["due"] = replace(policy.due or DueTimes(), **due)
    else:
        values["due"] = None
    return replace(policy, weights=replace(policy.weights, **weights), **values)


def changed_cluster(material: Material) -> tuple[Cluster, Opening]:
    """Cluster and opening with other nodes, queues and quotas.

    What runs on a node that is taken away waits again from the beginning, as after its loss.
    """
    change, cluster = material.change, material.cluster
    begun = list(material.opening.begun)
    for pool, nodes in sorted((change.get("pools") or {}).items()):
        cluster, begun = with_nodes(cluster, begun, pool, nodes)
    for gpu_type, gpus in sorted((change.get("gpus") or {}).items()):
        cluster, begun = with_gpus(cluster, begun, gpu_type, gpus)
    queues = change.get("queues") or {}
    cluster = replace(
        cluster,
        queues=tuple(_changed_queue(one, queues.get(one.id) or {}) for one in cluster.queues),
        headroom=_changed_headroom(cluster, material, change.get("quotas") or {}),
    )
    return cluster, replace(material.opening, begun=tuple(begun))


def _changed_queue(queue: QueueState, change: Mapping[str, Any]) -> QueueState:
    values: dict[str, Any] = {}
    for name, value in change.items():
        if name in ("nominal", "borrowing_limit", "lending_limit"):
            amounts = {**getattr(queue, name)}
            for gpu_type, gpus in value.items():
                if gpus is None:
                    amounts.pop(gpu_type, None)
                else:
                    amounts[gpu_type] = gpus * _MILLI
            values[name] = dict(sorted(amounts.items()))
        elif name == "weight":
            values[name] = float(value)
        else:
            values[name] = value
    return replace(queue, **values)


def _changed_headroom(
    cluster: Cluster, material: Material, change: Mapping[str, Mapping[str, int | None]]
) -> dict[tuple[str, str], int]:
    headroom = dict(cluster.headroom)
    for project, limits in change.items():
        for name, limit in limits.items():
            if limit is None or limit < 0:
                headroom.pop((project, name), None)
                continue
            amount = limit * _MILLI if name.startswith("gpus") else limit
            headroom[project, name] = max(0, amount - material.in_use.get((project, name), 0))
    return headroom
