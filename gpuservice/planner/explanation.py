# SPDX-License-Identifier: Apache-2.0
"""Why each job waits: reasons with numbers, place in line, holders, estimate, what would help.

What is the same for all jobs of one shape is worked out once and shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuservice.domain.reasons import Reason
from gpuservice.planner.capacity import Candidates, fitting_devices, node_capacity
from gpuservice.planner.counterfactual import changes_that_start
from gpuservice.planner.ordering import Positions
from gpuservice.planner.placement import place
from gpuservice.planner.plan_types import Holder, ReasonFact, Waiting
from gpuservice.planner.promises import FOREVER, future_candidates
from gpuservice.planner.reason_text import sentence
from gpuservice.planner.snapshot import PendingJob, Request

if TYPE_CHECKING:
    from gpuservice.planner.plan import Pass

#: Holders named at most; the rest is left out (soonest to end first).
MAX_HOLDERS = 10

ESTIMATE_BASIS = "time limits of running jobs"


@dataclass(frozen=True, slots=True)
class ShapeAnswer:
    """What jobs of one shape share."""

    reasons: tuple[ReasonFact, ...]
    holders: tuple[Holder, ...] = ()
    changes: tuple[Mapping[str, Any], ...] = ()


class Explainer:
    """Explains everything that a pass left waiting."""

    def __init__(self, state: Pass, wanted: Mapping[str, int]) -> None:
        self._state = state
        self._wanted = wanted
        self._answers: dict[object, ShapeAnswer] = {}
        self._tested = 0
        self._estimated = 0
        self._promised = {promise.job_id: promise.start for promise in state.future.promises}

    def explain(self) -> tuple[Waiting, ...]:
        """One entry a waiting job, in line order."""
        positions = Positions()
        entries: list[Waiting] = []
        for job, word in self._state.left:
            if job.blocked is not None:
                fact = ReasonFact(word, sentence(word, job.facts), job.facts)
                entries.append(Waiting(job.job_id, job.project_id, (fact,)))
                continue
            pools = self._state.pools(job)
            position = positions.next(pools) if word != Reason.IMPOSSIBLE else None
            answer = self._answer(job, word)
            start = self._estimate(job, word)
            entries.append(Waiting(
                job.job_id, job.project_id, answer.reasons, position, start,
                None if start is None else ESTIMATE_BASIS, answer.holders, answer.changes))
        return tuple(entries)

    def _answer(self, job: PendingJob, word: str) -> ShapeAnswer:
        key = (job.request, job.queue_id, job.project_id, job.max_runtime_s, word)
        answer = self._answers.get(key)
        if answer is None:
            changes: tuple[Mapping[str, Any], ...] = ()
            if self._tested < self._state.policy.counterfactuals:
                self._tested += 1
                changes = changes_that_start(self._state, job)
            answer = ShapeAnswer(self._reasons(job, word), self._holders(job, word), changes)
            self._answers[key] = answer
        return answer

    # -- reasons ---------------------------------------------------------------------------
    def _reasons(self, job: PendingJob, word: str) -> tuple[ReasonFact, ...]:
        numbers = self._numbers(job)
        if word == Reason.IMPOSSIBLE:
            code = self._why_impossible(job)
            facts = {**numbers, **self._largest_ever(job)}
            found = [ReasonFact(word, sentence(word, facts), facts)]
            if code is not None:
                found.append(ReasonFact(code, sentence(code, facts), facts))
            return tuple(found)
        if word == Reason.PROJECT_QUOTA:
            facts = {**numbers, **self._quota_facts(job)}
            return (ReasonFact(word, sentence(word, facts), facts),)
        if word == Reason.BACKFILL_WOULD_DELAY:
            facts = {**numbers, **self._promise_facts()}
            return (ReasonFact(word, sentence(word, facts), facts),)
        code = self._why_not_now(job, numbers)
        found = [ReasonFact(code, sentence(code, numbers), numbers)]
        found.extend(self._growth(job))
        return tuple(found)

    def _numbers(self, job: PendingJob) -> dict[str, Any]:
        """Needed, free and the largest gang (in GPUs) that fits now."""
        ledger, request = self._state.future.ledger, job.request
        where = self._state.where(job)
        fit = fitting_devices(ledger, request, where.project) & where.nodes[:, None]
        free = int(np.where(fit, np.maximum(ledger.free, 0), 0).sum())
        capacity = int(node_capacity(ledger, request, where).clip(max=10**6).sum())
        each = request.gpu_milli if request.gpu_memory_mib is None else 1000
        return {
            "needed": _gpus(each * request.count), "free": _gpus(free),
            "largest_fit": _gpus(each * min(capacity, request.count)),
            "tasks": request.count, "gpu_types": list(request.gpu_types),
        }

    def _why_not_now(self, job: PendingJob, numbers: Mapping[str, Any]) -> str:
        request = job.request
        loose = replace(request, within=None, required=False)
        if request.required and self._fits_now(job, loose):
            return Reason.TOPOLOGY
        bare = replace(request, vcpus=0, memory_mib=0)
        if bare != request and self._fits_now(job, bare):
            return Reason.HOST_RESOURCES
        if self._down(job):
            return Reason.NODE_UNAVAILABLE
        if numbers["free"] >= numbers["needed"]:
            return Reason.FRAGMENTED
        return Reason.INSUFFICIENT_GPUS

    def _fits_now(self, job: PendingJob, request: Request) -> bool:
        return place(self._state.future.ledger, request, self._state.where(job, request)) \
            is not None

    def _down(self, job: PendingJob) -> bool:
        """Whether the job would fit if every node of its pools were ready."""
        ledger = self._state.future.ledger.copy()
        ready = ledger.ready
        if bool(ready.all()):
            return False
        ledger.ready = np.ones_like(ready)
        project = ledger.layout.projects.of(job.project_id)
        where = future_candidates(ledger, self._state.pools(job), project)
        return place(ledger, job.request, where) is not None

    def _why_impossible(self, job: PendingJob) -> str | None:
        feasibility, request = self._state.feasibility, job.request
        pools = self._state.pools(job)
        variants: tuple[tuple[str, Request], ...] = (
            (Reason.GPU_TYPE_UNAVAILABLE, replace(request, gpu_types=())),
            (Reason.GPU_MEMORY, replace(request, min_gpu_memory_mib=0)),
            (Reason.HOST_RESOURCES, replace(request, vcpus=0, memory_mib=0)),
            (Reason.TOPOLOGY, replace(request, within=None, required=False)),
        )
        for code, variant in variants:
            if variant != request and feasibility.possible(variant, pools):
                return code
        return None

    def _largest_ever(self, job: PendingJob) -> dict[str, Any]:
        feasibility = self._state.feasibility
        where: Candidates = feasibility.candidates(self._state.pools(job))
        each = job.request.gpu_milli if job.request.gpu_memory_mib is None else 1000
        ledger = feasibility.ledger()
        capacity = int(node_capacity(ledger, job.request, where).clip(max=10**6).sum())
        total = np.where(where.nodes[:, None], np.maximum(ledger.free, 0), 0).sum()
        return {"largest_ever": _gpus(each * min(capacity, job.request.count)),
                "total": _gpus(int(total))}

    def _quota_facts(self, job: PendingJob) -> dict[str, Any]:
        left = {
            name: amount for (project, name), amount in self._state.headroom.items()
            if project == job.project_id
        }
        return {"left": {name: amount if name.startswith("jobs:") else _gpus(amount)
                         for name, amount in sorted(left.items())}}

    def _promise_facts(self) -> dict[str, Any]:
        starts = [promise.start for promise in self._state.future.promises]
        return {"promised_start": min(starts)} if starts else {}

    def _growth(self, job: PendingJob) -> list[ReasonFact]:
        pools = [pool for pool in self._state.snapshot.pools
                 if pool.id in self._state.pools(job) and pool.autoscale]
        if any(pool.id in self._wanted or pool.coming for pool in pools):
            return [ReasonFact(Reason.POOL_GROWING, sentence(Reason.POOL_GROWING, {}))]
        full = [pool for pool in pools if pool.size >= pool.max_nodes]
        if pools and len(full) == len(pools):
            facts = {"max_nodes": sum(pool.max_nodes for pool in full)}
            return [ReasonFact(Reason.POOL_AT_MAX, sentence(Reason.POOL_AT_MAX, facts), facts)]
        return []

    # -- holders and estimates -------------------------------------------------------------
    def _holders(self, job: PendingJob, word: str) -> tuple[Holder, ...]:
        if word in (Reason.IMPOSSIBLE, Reason.PROJECT_QUOTA):
            return ()
        layout = self._state.future.ledger.layout
        pools = self._state.pools(job)
        types = set(job.request.gpu_types)
        holders: dict[str, Holder] = {}
        for gang in self._state.snapshot.running:
            milli = 0
            for task in gang.tasks:
                row = layout.node_row.get(task.node_id)
                if row is None or layout.pool[row] not in pools:
                    continue
                devices = layout.nodes[row].devices
                if not types or (devices and devices[0].gpu_type in types):
                    milli += sum(share for _, share in task.devices)
            if milli:
                before = holders.get(gang.job_id)
                milli += before.gpus_milli if before else 0
                holders[gang.job_id] = Holder(
                    gang.job_id, gang.project_id, milli, gang.promised_end)
        ordered = sorted(
            holders.values(),
            key=lambda one: (FOREVER if one.ends_by is None else one.ends_by, one.job_id))
        return tuple(ordered[:MAX_HOLDERS])

    def _estimate(self, job: PendingJob, word: str) -> float | None:
        """The promised start; for others the earliest moment behind what was promised so far.

        Each estimate becomes a promise for the next, so that a line of jobs is not all told the
        same moment.
        """
        if job.job_id in self._promised:
            return self._promised[job.job_id]
        if word == Reason.IMPOSSIBLE or self._estimated >= self._state.policy.estimates:
            return None
        self._estimated += 1
        future = self._state.future
        project = future.ledger.layout.projects.of(job.project_id)
        where = future_candidates(future.ledger, self._state.pools(job), project)
        runtime = FOREVER if job.max_runtime_s is None else float(job.max_runtime_s)
        found = future.earliest(job.request, where, runtime)
        return None if found is None else found[0]


def _gpus(milli: int) -> int | float:
    """GPUs of a milli amount: whole ones as integers."""
    return milli // 1000 if milli % 1000 == 0 else milli / 1000
