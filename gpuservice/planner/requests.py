# SPDX-License-Identifier: Apache-2.0
"""What a job's spec asks of the planner: for live jobs and for recorded ones."""

from __future__ import annotations

from gpuservice.domain.jobspec import JobSpec
from gpuservice.planner.snapshot import Request


def request_of(spec: JobSpec) -> Request:
    """The planner's shape of a spec."""
    return Request(
        count=spec.count,
        min_count=spec.min_count,
        gpu_milli=spec.gpu_milli,
        gpu_memory_mib=spec.gpu_memory_mib,
        gpu_types=spec.gpu_types,
        min_gpu_memory_mib=spec.min_gpu_memory_mib,
        vcpus=spec.vcpus,
        memory_mib=spec.memory_mib,
        within=spec.within,
        required=spec.required,
    )
