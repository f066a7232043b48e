# SPDX-License-Identifier: Apache-2.0
"""Words and rules of explanations: who may be named, and what to do about a failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_ADVICE = {
    "user_code": "Look at the end of the log; the program ended with an error of its own.",
    "image": "Check the command, the script's first line and the image: the program was not "
    "found or cannot be executed there.",
    "data": "Check inputs and outputs: one could not be fetched, or not be delivered to its "
    "target; the evidence names it.",
    "permission": "Check the access rights of inputs and of the targets of outputs; the evidence "
    "names the one at fault.",
    "node_failure": "The node was lost. Submit again, or let retry do it.",
    "gpu_failure": "A GPU failed. Submit again, or let retry do it.",
    "out_of_memory": "Ask for more memory_mib, or use less.",
    "time_limit": "Ask for a longer max_runtime_s, or checkpoint and go on in another job.",
    "deadline": "The deadline passed before the job could start.",
    "dependency": "A job that this one depends on did not end as needed.",
    "capacity": "The cloud could not build the node; see the pool's fault.",
    "quota": "The project's quota does not allow it.",
    "preempted": "Another job needed the place; this one was put back in line.",
    "cancelled": "It was cancelled on request.",
    "platform": "The service failed; tell the operator the job's id.",
}


def failure_advice(failure_class: str) -> str:
    """What to do about a failure of this class."""
    return _ADVICE.get(failure_class, _ADVICE["platform"])


def merged_holders(
    holders: Sequence[Mapping[str, Any]], project_id: str, is_admin: bool
) -> list[dict[str, Any]]:
    """Holders as a caller may see them: those of other projects become one without a name."""
    shown: list[dict[str, Any]] = []
    others, latest = 0, ""
    for holder in holders:
        if is_admin or holder["project_id"] == project_id:
            shown.append({key: holder[key] for key in ("job_id", "gpus", "ends_by")})
        else:
            others += holder["gpus"]
            latest = max(latest, holder["ends_by"] or "")
    if others:
        shown.append({"job_id": None, "gpus": others, "ends_by": latest or None})
    return shown
