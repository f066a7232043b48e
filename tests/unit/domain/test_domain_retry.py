# SPDX-License-Identifier: Apache-2.0
"""Which failures are tried again, and after how long."""

from __future__ import annotations

import pytest

from gpuservice.domain.jobspec import JobSpec, normalise
from gpuservice.domain.retry import MAX_BACKOFF_S, decide


def spec(**retry: object) -> JobSpec:
    return JobSpec.from_dict(normalise({"name": "j", "command": ["x"], "retry": retry}, {}, None))


@pytest.mark.parametrize("failure", ["node_failure", "gpu_failure"])
def test_machine_failures_are_tried_again_by_default(failure: str) -> None:
    assert decide(spec(), "failed", failure, 1).again


@pytest.mark.parametrize(
    "failure", ["user_code", "image", "data", "out_of_memory", "time_limit", "permission"]
)
def test_others_are_not_unless_asked_for(failure: str) -> None:
    assert decide(spec(), "failed", failure, 1).reason == "class_not_retried"
    assert decide(spec(on=[failure]), "failed", failure, 1).again


def test_attempts_run_out() -> None:
    asked = spec(max_attempts=2)
    assert decide(asked, "node_failure", "node_failure", 1).again
    last = decide(asked, "node_failure", "node_failure", 2)
    assert (last.again, last.reason) == (False, "attempts_used_up")
    assert not decide(spec(max_attempts=1), "node_failure", "node_failure", 1).again


def test_pauses_double_up_to_a_bound() -> None:
    asked = spec(max_attempts=100, backoff_s=10)
    waits = [decide(asked, "node_failure", "node_failure", n).after_s for n in range(1, 20)]
    assert waits[:4] == [10, 20, 40, 80]
    assert max(waits) == waits[-1] == MAX_BACKOFF_S


def test_preemption_always_requeues_at_once() -> None:
    found = decide(spec(max_attempts=1), "preempted", "preempted", 9)
    assert (found.again, found.after_s) == (True, 0)


@pytest.mark.parametrize("outcome", ["succeeded", "cancelled"])
def test_what_is_done_is_done(outcome: str) -> None:
    assert not decide(spec(on=["user_code"]), outcome, None, 1).again
