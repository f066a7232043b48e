# SPDX-License-Identifier: Apache-2.0
"""The sentence of each reason code, with its numbers filled in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuservice.domain.reasons import Reason

_SENTENCES: dict[str, str] = {
    Reason.EVALUATING: "The job was not planned yet; the first plan follows within a second.",
    Reason.HELD: "The job is held; release it to let it wait in line.",
    Reason.DEPENDENCY: "The job waits for {unmet} other job(s).",
    Reason.RETRY_BACKOFF: "The next attempt waits for the end of the retry backoff.",
    Reason.ARRAY_LIMIT: "As many elements run as the array may run at once ({max_running}).",
    Reason.QUEUE_CLOSED: "The queue is closed: nothing in it starts.",
    Reason.PROJECT_QUOTA: "The project's quota is used up ({left} left).",
    Reason.INSUFFICIENT_GPUS: (
        "Needs {needed} GPU(s); {free} are free and {largest_fit} of them would fit."
    ),
    Reason.FRAGMENTED: (
        "Needs {needed} GPU(s); {free} are free, but spread so that only {largest_fit} fit."
    ),
    Reason.TOPOLOGY: (
        "Needs {needed} GPU(s) close together; {free} are free, but not within one such place."
    ),
    Reason.GPU_TYPE_UNAVAILABLE: "No pool of the queue has GPUs of {gpu_types}.",
    Reason.QUEUE_QUOTA: "The queue's share is used up ({queue}).",
    Reason.DEADLINE_UNREACHABLE: (
        "With a limit of {max_runtime_s} s it would end after its deadline if it started now."
    ),
    Reason.BEHIND_RESERVATION: "Would fit, but what it would use is reserved for others.",
    Reason.PREEMPTING_OTHERS: "{victims} running job(s) are being stopped to make room for it.",
    Reason.BEHIND_PROMISE: (
        "A job ahead of it waits for the same GPUs or quota; what it needs is kept for that one."
    ),
    Reason.GPU_MEMORY: (
        "No GPU of the queue's pools has {gpu_memory_mib} MiB; the largest has "
        "{most_gpu_memory_mib} MiB."
    ),
    Reason.HOST_RESOURCES: "GPUs would do, but not {lacking} of one node.",
    Reason.ISOLATION: (
        "Would fit, but {occupied} node(s) with free GPUs are in use by another project, and "
        "only one project at a time may be on a node{because}."
    ),
    Reason.BACKFILL_WOULD_DELAY: (
        "Would fit now, but might still run when a job ahead is promised to start."
    ),
    Reason.BEHIND_HIGHER_PRIORITY: "Jobs of a higher priority wait for the same GPUs.",
    Reason.POOL_GROWING: "The pool is growing.",
    Reason.POOL_AT_MAX: "The pool has as many nodes as it may have ({max_nodes}).",
    Reason.NODE_UNAVAILABLE: "Would fit, but nodes of the pool are not ready.",
    Reason.IMPOSSIBLE: (
        "Needs {needed} GPU(s) at once; the queue's pools hold {largest_ever} of such a request "
        "even when idle ({total} GPUs in all)."
    ),
}

#: Where the request must be within one place, that place is what counts.
_IMPOSSIBLE_WITHIN = (
    "Needs {needed} GPU(s) within one {within}; the queue's pools hold {largest_ever} of such a "
    "request in one {within} even when idle ({total} GPUs in all)."
)


#: Where no GPU is asked for, numbers of GPUs say nothing.
_WITHOUT_GPUS: dict[str, str] = {
    Reason.HOST_RESOURCES: "No GPU is asked for, but {lacking} of one node does not suffice.",
    Reason.IMPOSSIBLE: (
        "Needs room for {tasks} task(s) at once; the queue's pools hold {largest_ever_tasks} of "
        "such a request even when idle."
    ),
}


class _Blank(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "?"


def sentence(code: str, facts: Mapping[str, Any]) -> str:
    """One sentence for a reason."""
    shown = {
        name: ", ".join(str(one) for one in value)
        if isinstance(value, (list, tuple))
        else ", ".join(f"{key} {amount}" for key, amount in value.items())
        if isinstance(value, Mapping)
        else value
        for name, value in facts.items()
    }
    told = _SENTENCES.get(code, code)
    if code == Reason.IMPOSSIBLE and facts.get("within"):
        told = _IMPOSSIBLE_WITHIN
    if facts.get("needed") == 0:
        told = _WITHOUT_GPUS.get(code, told)
    return told.format_map(_Blank(shown))
