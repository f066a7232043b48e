# SPDX-License-Identifier: Apache-2.0
"""The result of a replay: every job with its attempts, and the summary."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, Any

from gpuservice.planner.snapshot import NodeState, TaskPlacement
from gpuservice.simulation.records import Attempt, Record
from gpuservice.simulation.replay import Replayed
from gpuservice.simulation.statistics import (
    BIG_GPUS,
    Spread,
    completion_of,
    delay_of,
    is_big,
    wait_of,
)
from gpuservice.simulation.workload import PLACES


def number(value: float) -> int | float:
    """To the microsecond; whole numbers without a point."""
    rounded = round(value, PLACES)
    return int(rounded) if rounded == int(rounded) else rounded


def result(replayed: Replayed, nodes: Sequence[NodeState]) -> dict[str, Any]:
    """Everything that is known of a replay, ready for JSON."""
    index = {device.id: place for node in nodes for place, device in enumerate(node.devices)}
    return {
        "jobs": [_job(record, index) for record in replayed.records],
        "summary": summary(replayed),
    }


def write(made: Mapping[str, Any], file: IO[str]) -> None:
    """As JSON, one line a job, the same bytes for the same result."""
    file.write("{")
    for place, (name, value) in enumerate(sorted(made.items())):
        file.write(f"{',' if place else ''}\n{json.dumps(name)}: ")
        if isinstance(value, list):
            lines = ",\n".join(json.dumps(one, sort_keys=True) for one in value)
            file.write(f"[\n{lines}\n]")
        else:
            file.write(json.dumps(value, sort_keys=True, indent=1))
    file.write("\n}\n")


def _job(record: Record, index: Mapping[str, int]) -> dict[str, Any]:
    job, wait = record.job, wait_of(record)
    made: dict[str, Any] = {
        "name": job.name,
        "project": job.project,
        "queue": job.queue,
        "user": job.user,
        "kind": job.kind,
        "gpus": number(job.milli / 1000),
        "submit_s": number(job.submit_s),
        "attempts": [_attempt(attempt, index, job.array_size > 1) for attempt in record.attempts],
        "wait_s": None if wait is None else number(wait),
        "status": record.status,
    }
    if record.failure is not None:
        made["failure_class"] = record.failure
    if record.promise_s is not None and record.promise_made_s is not None:
        made["promise"] = {
            "made_s": number(record.promise_made_s),
            "start_s": number(record.promise_s),
            "slip_s": number(record.slip_s),
        }
    return made


def _attempt(attempt: Attempt, index: Mapping[str, int], of_array: bool) -> dict[str, Any]:
    made: dict[str, Any] = {
        "start_s": number(attempt.start_s),
        "end_s": None if attempt.end_s is None else number(attempt.end_s),
        "outcome": attempt.outcome,
        "placement": [_place(task, index) for task in attempt.tasks],
    }
    if of_array:
        made["index"] = attempt.index
    return made


def _place(task: TaskPlacement, index: Mapping[str, int]) -> dict[str, Any]:
    return {
        "task": task.rank,
        "node": task.node_id,
        "devices": sorted(index[device] for device, _ in task.devices),
        "milli": task.devices[0][1] if task.devices else 0,
    }


def summary(replayed: Replayed) -> dict[str, Any]:
    """The figures of a replay."""
    records = replayed.records
    ends = [record.ended_s for record in records if record.ended_s is not None]
    start = min((record.job.submit_s for record in records), default=0.0)
    makespan = max(ends, default=start) - start
    capacity = replayed.occupancy.capacity * makespan
    promises = [record for record in records if record.promise_s is not None]
    late = [record.slip_s for record in promises if record.slip_s > 0]
    return {
        **group(records),
        "makespan_s": number(makespan),
        "utilisation": _share(replayed.occupancy.idle.used, capacity),
        "big_gang": {"gpus": BIG_GPUS, **group([one for one in records if is_big(one)])},
        "by_project": grouped(records, lambda record: record.job.project),
        "by_queue": grouped(records, lambda record: record.job.queue),
        "by_kind": grouped(records, lambda record: record.job.kind),
        "promises": {
            "made": len(promises),
            "late": len(late),
            "max_slip_s": number(max(late, default=0.0)),
        },
        "fragmentation": _fragmentation(replayed),
        "limit_ratio": number(replayed.limit_ratio),
        "passes": replayed.passes,
    }


def _fragmentation(replayed: Replayed) -> dict[str, int | float]:
    """Shares of the GPU time that was there: idle; idle while something waited; idle on nodes that
    were in part used; idle on GPUs that were in part used."""
    idle = replayed.occupancy.idle
    return {
        "idle": _share(idle.ready - idle.used, idle.ready),
        "idle_while_waiting": _share(idle.waiting, idle.ready),
        "idle_on_part_used_nodes": _share(idle.nodes, idle.ready),
        "idle_on_part_used_gpus": _share(idle.devices, idle.ready),
    }


def _share(part: float, whole: float) -> int | float:
    return number(part / whole) if whole > 0 else 0


def grouped(records: Iterable[Record], key: Callable[[Record], str]) -> dict[str, Any]:
    """The figures of some jobs, by whose they are."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return {name: group(groups[name]) for name in sorted(groups)}


def group(records: Sequence[Record]) -> dict[str, Any]:
    """The figures of some jobs: times of those that started (completion and delay: that ended)."""
    statuses: dict[str, int] = {}
    outcomes = {"preempted": 0, "node_failure": 0}
    gpu_s = 0.0
    for record in records:
        statuses[record.status] = statuses.get(record.status, 0) + 1
        for attempt in record.attempts:
            if attempt.outcome in outcomes:
                outcomes[attempt.outcome] += 1
            if attempt.end_s is not None:
                milli = sum(share for task in attempt.tasks for _, share in task.devices)
                gpu_s += (attempt.end_s - attempt.start_s) * milli / 1000
    return {
        "jobs": len(records),
        "never_started": sum(1 for record in records if not record.attempts),
        "statuses": statuses,
        "preemptions": outcomes["preempted"],
        "node_failures": outcomes["node_failure"],
        "gpu_seconds": number(gpu_s),
        "wait_s": _spread(records, wait_of),
        "completion_s": _spread(records, completion_of),
        "delay_s": _spread(records, delay_of),
    }


def _spread(
    records: Sequence[Record], of: Callable[[Record], float | None]
) -> dict[str, int | float]:
    spread = Spread.of(value for record in records if (value := of(record)) is not None)
    return {name: number(getattr(spread, name)) for name in ("mean", "p50", "p90", "p99", "max")}
