# SPDX-License-Identifier: Apache-2.0
"""What a job is with a change that an explanation offers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuservice.planner.snapshot import PendingJob


def changed_job(job: PendingJob, change: dict[str, Any]) -> PendingJob:
    """The job with a merge patch of the API applied."""
    request = job.request
    runtime = change.get("max_runtime_s", job.max_runtime_s)
    if "topology" in change:
        request = replace(request, required=change["topology"]["policy"] == "required")
    if "tasks" in change:
        request = replace(request, **change["tasks"])
    for name, value in change.get("resources", {}).items():
        if name == "gpus":
            request = replace(request, gpu_milli=1000 * value)
        elif name == "gpu_types":
            request = replace(request, gpu_types=tuple(value))
        else:
            request = replace(request, **{name: value or 0})
    return replace(job, request=request, max_runtime_s=runtime)
