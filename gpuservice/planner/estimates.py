# SPDX-License-Identifier: Apache-2.0
"""When a waiting job is expected to start, from the time limits of what runs.

A promised start is its own estimate. Each further estimate holds its places against the next,
so that a line of jobs is not all told the same moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuservice.domain.reasons import Reason
from gpuservice.planner.plan_types import Promise
from gpuservice.planner.promises import FOREVER

if TYPE_CHECKING:
    from gpuservice.planner.plan import Left, Pass

#: Moments among earlier estimates that are tried for a gap, before the end of the line is.
MOMENTS = 6

ESTIMATE_BASIS = "time limits of running jobs"


class Estimates:
    """Estimated starts of the first ``policy.estimates`` waiting jobs, in line order."""

    def __init__(self, state: Pass) -> None:
        self._state = state
        self._future = state.future.with_promises(list(state.future.promises))
        self._promised = {promise.job_id: promise.start for promise in state.future.promises}
        self._made = 0
        self._floor: dict[int, float] = {}

    def of(self, left: Left) -> float | None:
        """The moment (seconds since the epoch), or None: never, or not worked out."""
        job, shape = left.job, left.shape
        if job.job_id in self._promised:
            self._floor[shape] = self._promised[job.job_id]
            return self._promised[job.job_id]
        if left.word in (Reason.IMPOSSIBLE, Reason.PROJECT_QUOTA):
            return None
        policy = self._state.policy
        if self._made >= policy.estimates and job.job_id != policy.focus:
            return None
        self._made += 1
        runtime = FOREVER if job.max_runtime_s is None else float(job.max_runtime_s)
        found = self._future.earliest(
            job.request, self._state.where(job), runtime, self._floor.get(shape, 0.0), MOMENTS
        )
        if found is None:
            return None
        start, tasks = found
        self._floor[shape] = start
        self._future.promises.append(
            Promise(job.job_id, start, start + runtime, job.project_id, tasks)
        )
        return start
