# SPDX-License-Identifier: Apache-2.0
"""Whether what a job depends on has come true, may still, or never will."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuservice.domain.states import JOB_ENDED, JobStatus

MET, OPEN, NEVER = "met", "open", "never"


def judge(condition: str, status: str | None, started: bool) -> str:
    """One condition on one other job (``status`` None: it is gone)."""
    if status is None:
        return NEVER
    ended = status in JOB_ENDED
    if condition == "started":
        if started:
            return MET
        return NEVER if ended else OPEN
    if not ended:
        return OPEN
    if condition == "ended":
        return MET
    wanted = JobStatus.SUCCEEDED if condition == "succeeded" else JobStatus.FAILED
    met = status == wanted or (condition == "failed" and status == JobStatus.TIMED_OUT)
    return MET if met else NEVER


def verdict(
    depends_on: Sequence[tuple[str, str]], others: Mapping[str, tuple[str, bool]]
) -> tuple[str, list[str]]:
    """(met, open or never; the jobs that are not met). ``others``: id -> (status, started)."""
    unmet: list[str] = []
    worst = MET
    for job_id, condition in depends_on:
        status, started = others.get(job_id, (None, False))
        result = judge(condition, status, started)
        if result != MET:
            unmet.append(job_id)
        if result == NEVER:
            worst = NEVER
        elif result == OPEN and worst == MET:
            worst = OPEN
    return worst, unmet
