# SPDX-License-Identifier: Apache-2.0
"""What change to its request would start a job now: each one tried, none guessed.

A change is tried on what the whole plan left free, behind every promise but the job's own.
Planned anew with the change the job stands earlier in line and finds at least as much, so it
starts then too (a property test plans each one anew).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gpuservice.planner.capacity import node_capacity
from gpuservice.planner.snapshot import PendingJob, Request

if TYPE_CHECKING:
    from gpuservice.planner.plan import Pass

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
    if not state.headroom.may_run(job.project_id):
        return ()
    future = state.future.with_promises(
        [one for one in state.future.promises if one.job_id != job.job_id]
    )
    found: list[Change] = []
    kinds: set[str] = set()
    for variant in _variants(state, job):
        if variant.kind in kinds:
            continue
        tasks, _ = state.places_now(job, variant.request, variant.runtime, future)
        if tasks is not None:
            kinds.add(variant.kind)
            found.append({"change": variant.change})
        if len(found) == MAX_CHANGES:
            break
    return tuple(found)


def _variants(state: Pass, job: PendingJob) -> Iterator[Variant]:
    request, runtime = job.request, job.max_runtime_s
    if request.required:
        yield Variant(
            "topology",
            {"topology": {"policy": "preferred"}},
            replace(request, required=False),
            runtime,
        )
    for start in sorted({one.start for one in state.future.promises if one.job_id != job.job_id}):
        shorter = int(start - state.snapshot.now)
        if shorter > 0 and (runtime is None or shorter < runtime):
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
    if request.vcpus or request.memory_mib:
        yield Variant(
            "host",
            {"resources": {"vcpus": None, "memory_mib": None}},
            replace(request, vcpus=0, memory_mib=0),
            runtime,
        )


def _room(state: Pass, job: PendingJob) -> int:
    """How many tasks fit now in one pool: the first count worth a try."""
    return max(
        (
            int(
                node_capacity(state.future.ledger, job.request, one)
                .clip(max=job.request.count)
                .sum()
            )
            for one in state.where(job)
        ),
        default=0,
    )


def _widest(state: Pass, job: PendingJob) -> int:
    """The GPUs free on the best node: the first number worth a try."""
    one_gpu = replace(job.request, gpu_milli=1000, vcpus=0, memory_mib=0)
    return max(
        (
            int(
                node_capacity(state.future.ledger, one_gpu, one)
                .clip(max=job.request.whole)
                .max(initial=0)
            )
            for one in state.where(job, one_gpu)
        ),
        default=0,
    )


def _smaller(amount: int, guess: int) -> Iterator[int]:
    """Smaller amounts, largest first: the guess, then all up to 8, then halves."""
    tried = min(amount - 1, guess)
    while tried >= 1:
        yield tried
        tried = tried - 1 if tried <= 8 else tried // 2
