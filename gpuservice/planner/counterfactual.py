# SPDX-License-Identifier: Apache-2.0
"""What change to its request would start a job now: each one tried, none guessed.

A change is tried on what the whole plan left free, behind every promise but the job's own.
Planned anew with the change the job stands no further back in line and finds at least as much, so
it starts then too (a property test plans each one anew).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpuservice.planner.capacity import may_fit, task_slots
from gpuservice.planner.passes import Pass
from gpuservice.planner.snapshot import PendingJob, Request
from gpuservice.planner.world import Shape

#: Changes offered at most.
MAX_CHANGES = 3

Change = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Variant:
    """A change as a merge patch of the job, and what the request would be."""

    kind: str
    change: Change
    request: Request
    runtime: int | None


def changes_that_start(state: Pass, job: PendingJob) -> tuple[Change, ...]:
    """``({"change": merge patch of the job}, ...)``, smallest sacrifice first, the first that
    works of each kind."""
    shape = state.world.shapes[state.world.shape(job.request, job.queue_id, job.project_id)]
    own = state.promising.vacate(job.job_id)
    # The promise that the job has, or its places, go to others that wait behind it.
    wanted = own is not None and (
        not state.promising.budget(shape)[1]
        or any(
            other.promise.start >= own.promise.start for other in state.future.booked.of.values()
        )
    )
    try:
        return _that_start(state, job, shape, wanted)
    finally:
        state.promising.restore(job, own)


def _that_start(state: Pass, job: PendingJob, own: Shape, wanted: bool) -> tuple[Change, ...]:
    found: list[Change] = []
    kinds: set[str] = set()
    for variant in _variants(state, job):
        if variant.kind in kinds:
            continue
        end = state.end_of(job, variant.runtime)
        if job.deadline is not None and end > job.deadline:
            continue
        number = state.world.shape(variant.request, job.queue_id, job.project_id)
        shape = state.world.shapes[number]
        if wanted and _falls_back(state, own, shape):
            continue
        if not state.world.fits(shape):
            continue
        if state.trial.places(job, shape, variant.request, end).tasks is not None:
            kinds.add(variant.kind)
            found.append({"change": variant.change})
        if len(found) == MAX_CHANGES:
            break
    return tuple(found)


def _falls_back(state: Pass, own: Shape, changed: Shape) -> bool:
    """Whether the job may stand further back in line with another request: others that come to
    stand before it may then be promised what it would take."""
    smaller = changed.request.gpu_milli * changed.request.count < (
        own.request.gpu_milli * own.request.count
    )
    if state.policy.order == "multifactor":
        return smaller and state.policy.weights.size > 0
    return state.policy.due is not None and own.gang and not changed.gang


def _variants(state: Pass, job: PendingJob) -> Iterator[Variant]:
    request, runtime = job.request, state.world.limit_of(job)
    if request.required:
        yield Variant(
            "topology",
            {"topology": {"policy": "preferred"}},
            replace(request, required=False),
            runtime,
        )
    for shorter in _shorter(state, job):
        yield Variant("runtime", {"max_runtime_s": shorter}, request, shorter)
    if request.gpu_types:
        yield Variant(
            "type", {"resources": {"gpu_types": []}}, replace(request, gpu_types=()), runtime
        )
    for count in _smaller(request.count, _room(state, job)):
        yield Variant(
            "tasks",
            {"tasks": {"count": count, "min_count": count}},
            replace(request, count=count, min_count=count),
            runtime,
        )
    for gpus in _smaller(request.whole, _widest(state, job)):
        yield Variant(
            "gpus", {"resources": {"gpus": gpus}}, replace(request, gpu_milli=1000 * gpus), runtime
        )
    yield from _less_memory(state, job)
    if request.vcpus or request.memory_mib:
        yield Variant(
            "host",
            {"resources": {"vcpus": None, "memory_mib": None}},
            replace(request, vcpus=0, memory_mib=0),
            runtime,
        )


def _shorter(state: Pass, job: PendingJob) -> list[int]:
    """Limits that would end the job before somebody's promise, reservation or its own deadline,
    longest first."""
    ends = {one.start for one in state.future.promises if one.job_id != job.job_id}
    ends |= {
        one.starts_at
        for one, _ in state.reserved.others(job.queue_id, job.project_id)
        if one.starts_at > state.now
    }
    if job.deadline is not None:
        ends.add(job.deadline)
    limits = {int(end - state.now) for end in ends if end < float("inf")}
    most = state.world.limit_of(job)
    return sorted((one for one in limits if one > 0 and (most is None or one < most)), reverse=True)


def _less_memory(state: Pass, job: PendingJob) -> Iterator[Variant]:
    """Less GPU memory, where no GPU of the pools has as much as was asked for."""
    request = job.request
    asked = max(request.gpu_memory_mib or 0, request.min_gpu_memory_mib)
    if not asked:
        return
    memory = state.world.layout.device_memory
    rows = state.world.layout.pool_rows
    sizes = {
        int(size)
        for pool in state.world.pools_declared(job)
        if pool in rows
        for size in np.unique(memory[rows[pool]]).tolist()
        if 0 < size < asked
    }
    for size in sorted(sizes, reverse=True):
        change: dict[str, Any] = {}
        variant = request
        if request.gpu_memory_mib is not None and request.gpu_memory_mib > size:
            change["gpu_memory_mib"] = size
            variant = replace(variant, gpu_memory_mib=size)
        if request.min_gpu_memory_mib > size:
            change["min_gpu_memory_mib"] = size
            variant = replace(variant, min_gpu_memory_mib=size)
        yield Variant("memory", {"resources": change}, variant, state.world.limit_of(job))


def _room(state: Pass, job: PendingJob) -> int:
    """How many tasks fit now in one pool: the first count worth a try."""
    return max(
        (
            int(np.minimum(slots, job.request.count).sum())
            for slots in _slots(state, job, job.request)
        ),
        default=0,
    )


def _widest(state: Pass, job: PendingJob) -> int:
    """The GPUs free on the best node: the first number worth a try."""
    one_gpu = replace(job.request, gpu_milli=1000, vcpus=0, memory_mib=0)
    return max(
        (
            min(int(slots.max(initial=0)), job.request.whole)
            for slots in _slots(state, job, one_gpu)
        ),
        default=0,
    )


def _slots(
    state: Pass, job: PendingJob, request: Request
) -> Iterator[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    world = state.world
    project = world.layout.projects.of(job.project_id)
    for pool in world.pools_of(job.queue_id, job.project_id):
        if may_fit(request, world.ledger.most_free(pool)):
            yield task_slots(world.ledger, request, world.layout.pool_rows[pool], project)


def _smaller(amount: int, guess: int) -> Iterator[int]:
    """Smaller amounts, largest first: the guess, then all up to 8, then halves."""
    tried = min(amount - 1, guess)
    while tried >= 1:
        yield tried
        tried = tried - 1 if tried <= 8 else tried // 2
