# SPDX-License-Identifier: Apache-2.0
"""Why each job waits: reasons with numbers, place in line, holders, estimate, what would help.

What is the same for all jobs of one shape is worked out once and shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpuservice.domain.reasons import Reason
from gpuservice.planner.counterfactual import Change, changes_that_start
from gpuservice.planner.estimates import ESTIMATE_BASIS, Estimates
from gpuservice.planner.holders import Holders
from gpuservice.planner.ordering import Positions
from gpuservice.planner.plan_types import Holder, ReasonFact, Waiting
from gpuservice.planner.reason_text import sentence
from gpuservice.planner.shortfall import (
    Numbers,
    growth,
    host_facts,
    isolation_facts,
    largest_ever,
    numbers,
    quota_facts,
    why_impossible,
    why_not_now,
)
from gpuservice.planner.snapshot import PendingJob

if TYPE_CHECKING:
    from gpuservice.planner.plan import Left, Pass


class Explainer:
    """Explains everything that a pass left waiting."""

    def __init__(self, state: Pass, wanted: Mapping[str, int]) -> None:
        self._state = state
        self._wanted = wanted
        self._known_reasons: dict[tuple[int, str, bool], tuple[ReasonFact, ...]] = {}
        self._known_changes: dict[tuple[int, str | None], tuple[Change, ...]] = {}
        self._promised = {promise.job_id for promise in state.future.promises}
        self._started = {start.job_id for start in state.starts}
        self._numbers: dict[int, Numbers] = {}
        self._tested = 0
        self._holders = Holders(state)
        self._estimates = Estimates(state)
        self._leaders: dict[str, int] = {}

    def explain(self) -> tuple[Waiting, ...]:
        """One entry a waiting job, in line order."""
        positions = Positions()
        entries: list[Waiting] = []
        focus = self._state.policy.focus
        for left in self._state.left:
            job, word = left.job, left.word
            if job.blocked is not None or word == Reason.QUEUE_CLOSED:
                if focus in (None, job.job_id):
                    fact = ReasonFact(word, sentence(word, job.facts), job.facts)
                    entries.append(Waiting(job.job_id, job.project_id, (fact,)))
                continue
            pools = self._state.pools(job)
            impossible = word == Reason.IMPOSSIBLE
            position = None if impossible else positions.next(pools)
            start = self._estimates.of(left)
            if focus in (None, job.job_id):
                entries.append(
                    Waiting(
                        job.job_id,
                        job.project_id,
                        self._reasons(left),
                        position,
                        start,
                        None if start is None else ESTIMATE_BASIS,
                        self._holders_of(left),
                        self._changes(left),
                    )
                )
            if word == Reason.INSUFFICIENT_GPUS:
                for pool in pools:
                    self._leaders[pool] = max(self._leaders.get(pool, 0), job.priority)
        return tuple(entries)

    def _reasons(self, left: Left) -> tuple[ReasonFact, ...]:
        outranked = self._outranked(left.job)
        key = (left.shape, left.word, outranked)
        if key not in self._known_reasons:
            self._known_reasons[key] = self._find_reasons(left, outranked)
        return self._known_reasons[key]

    def _holders_of(self, left: Left) -> tuple[Holder, ...]:
        if left.word in (Reason.IMPOSSIBLE, Reason.PROJECT_QUOTA):
            return ()
        return self._holders.of(left.job)

    def _changes(self, left: Left) -> tuple[Change, ...]:
        """What would start it, for the first shapes of the line.

        A job with a promise has an answer of its own: it need not wait for that promise. An
        array of which something starts now is asked again when it has not.
        """
        job, policy = left.job, self._state.policy
        if job.job_id in self._started:
            return ()
        key = (left.shape, job.job_id if job.job_id in self._promised else None)
        if key not in self._known_changes:
            if self._tested >= policy.counterfactuals and policy.focus is None:
                return ()
            self._tested += 1
            self._known_changes[key] = changes_that_start(self._state, job)
        return self._known_changes[key]

    def _outranked(self, job: PendingJob) -> bool:
        """Whether a job of a higher priority waits for GPUs of the same pools."""
        return any(self._leaders.get(pool, -1) > job.priority for pool in self._state.pools(job))

    def _find_reasons(self, left: Left, outranked: bool) -> tuple[ReasonFact, ...]:
        job, word = left.job, left.word
        known = self._known(left)
        if word == Reason.IMPOSSIBLE:
            facts = {**known, **largest_ever(self._state, job)}
            found = [_fact(word, facts)]
            because = why_impossible(self._state, job)
            if because is not None:
                code, more = because
                found.append(_fact(code, {**facts, **more}))
            return tuple(found)
        if word == Reason.PROJECT_QUOTA:
            return (_fact(word, {**known, **quota_facts(self._state, job)}),)
        if word == Reason.BACKFILL_WOULD_DELAY:
            starts = [promise.start for promise in self._state.future.promises]
            promised = {"promised_start": min(starts)} if starts else {}
            return (_fact(word, {**known, **promised}),)
        code = why_not_now(self._state, job, known)
        if code == Reason.ISOLATION:
            known = {**known, **isolation_facts(self._state, job)}
        if code == Reason.HOST_RESOURCES:
            known = {**known, **host_facts(self._state, job)}
        found = [_fact(code, known)]
        found.extend(_fact(code, facts) for code, facts in growth(self._state, self._wanted, job))
        if outranked:
            found.append(_fact(Reason.BEHIND_HIGHER_PRIORITY, {}))
        return tuple(found)

    def _known(self, left: Left) -> Numbers:
        if left.shape not in self._numbers:
            self._numbers[left.shape] = numbers(self._state, left.job)
        return self._numbers[left.shape]


def _fact(code: str, facts: Mapping[str, Any]) -> ReasonFact:
    return ReasonFact(code, sentence(code, facts), facts)
