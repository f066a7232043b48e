# SPDX-License-Identifier: Apache-2.0
"""Orders as the service gives them to an agent, for tests that play the service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def task_order(task_id: str, spec: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """The order to run a task; ``spec`` and ``more`` say what is not as usual."""
    return {
        "task_id": task_id,
        "job_id": "job-1",
        "attempt": 1,
        "index": 0,
        "rank": 0,
        "count": 1,
        "action": "run",
        "grace_s": 5,
        "signal": "TERM",
        "stop_reason": None,
        "devices": [],
        "spec": {
            "command": None,
            "script": None,
            "env": {},
            "inputs": [],
            "outputs": [],
            "log_max_bytes": 1 << 20,
            **spec,
        },
        **more,
    }
