# SPDX-License-Identifier: Apache-2.0
"""What change to its request would start a job now: each one tried, none guessed.

A change is tried on what the whole plan left free, behind every promise. Planned anew with the
change the job stands earlier in line and finds at least as much, so it starts then too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpuservice.planner.snapshot import PendingJob, Request

if TYPE_CHECKING:
    from gpuservice.planner.plan import Pass

#: Changes offered at most.
MAX_CHANGES = 3

Change = Mapping[str, Any]


def changes_that_start(state: Pass, job: PendingJob) -> tuple[Change, ...]:
    """``({"change": merge patch of the job}, ...)``, smallest sacrifice first."""
    running = state.headroom.get((job.project_id, "jobs:running"))
    if running is not None and running < 1:
        return ()
    found: list[Change] = []
    for change, request, runtime in _variants(state, job):
        tasks, _ = state.places_now(job, request, runtime)
        if tasks is not None:
            found.append({"change": change})
        if len(found) == MAX_CHANGES:
            break
    return tuple(found)


def _variants(
    state: Pass, job: PendingJob
) -> Iterator[tuple[Change, Request, int | None]]:
    request, runtime = job.request, job.max_runtime_s
    if request.required:
        yield ({"topology": {"policy": "preferred"}}, replace(request, required=False), runtime)
    if state.future.promises:
        start = min(promise.start for promise in state.future.promises)
        shorter = int(start - state.snapshot.now)
        if shorter > 0 and (runtime is None or shorter < runtime):
            yield {"max_runtime_s": shorter}, request, shorter
    if request.gpu_types:
        yield {"resources": {"gpu_types": []}}, replace(request, gpu_types=()), runtime
    for count in _smaller(request.count):
        yield ({"tasks": {"count": count, "min_count": count}},
               replace(request, count=count, min_count=count), runtime)
    for gpus in _smaller(request.whole):
        yield ({"resources": {"gpus": gpus}}, replace(request, gpu_milli=1000 * gpus), runtime)
    if request.vcpus or request.memory_mib:
        yield ({"resources": {"vcpus": None, "memory_mib": None}},
               replace(request, vcpus=0, memory_mib=0), runtime)


def _smaller(amount: int) -> Iterator[int]:
    """Smaller amounts, largest first: all up to 8, then halves."""
    if amount <= 1:
        return
    tried = amount - 1 if amount <= 8 else amount // 2
    while tried >= 1:
        yield tried
        tried = tried - 1 if tried <= 8 else tried // 2
