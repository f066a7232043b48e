# SPDX-License-Identifier: Apache-2.0
"""Whether a failed element is tried again, and when: by failure class, with backoff."""

from __future__ import annotations

from dataclasses import dataclass

from gpuservice.domain.jobspec import JobSpec
from gpuservice.domain.states import AttemptOutcome

#: The longest backoff, seconds.
MAX_BACKOFF_S = 3600


@dataclass(frozen=True, slots=True)
class Decision:
    """``again``: requeue, not before ``after_s`` seconds from now; ``reason`` says why (not)."""

    again: bool
    after_s: int = 0
    reason: str = ""


def decide(spec: JobSpec, outcome: str, failure_class: str | None, counted: int) -> Decision:
    """``counted``: attempts so far that count (preempted ones do not), this one included."""
    if outcome == AttemptOutcome.SUCCEEDED or outcome == AttemptOutcome.CANCELLED:
        return Decision(False)
    if outcome == AttemptOutcome.PREEMPTED:
        return Decision(True, 0, "preempted")
    if failure_class not in spec.retry_on:
        return Decision(False, 0, "class_not_retried")
    if counted >= spec.max_attempts:
        return Decision(False, 0, "attempts_used_up")
    wait = min(spec.backoff_s * 2 ** (counted - 1), MAX_BACKOFF_S)
    return Decision(True, wait, failure_class or "")
