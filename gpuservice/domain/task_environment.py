# SPDX-License-Identifier: Apache-2.0
"""What a task is told: its environment and the order its node gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuservice.domain.inventory import Device
from gpuservice.domain.work import Attempt, Job, Task


def environment(job: Job, attempt: Attempt, task: Task, peers: Sequence[Task]) -> dict[str, str]:
    """The variables of one rank; ``peers`` are all tasks of the attempt by rank.

    The node adds what only it knows: visible devices, checkpoint directory, working directory.
    """
    own = {
        "GPUSERVICE_JOB_ID": job.id,
        "GPUSERVICE_ATTEMPT": str(attempt.number),
        "GPUSERVICE_ARRAY_INDEX": str(attempt.index),
        "GPUSERVICE_TASK_RANK": str(task.rank),
        "GPUSERVICE_TASK_COUNT": str(attempt.tasks_count),
        "RANK": str(task.rank),
        "NODE_RANK": str(task.rank),
        "WORLD_SIZE": str(attempt.tasks_count),
        "GPUSERVICE_NODE_ADDRESSES": ",".join(peer.address or "" for peer in peers),
        "MASTER_ADDR": attempt.master_address or "",
        "MASTER_PORT": "" if attempt.master_port is None else str(attempt.master_port),
        "GPUSERVICE_GANG_SECRET": attempt.gang_secret,
    }
    return {**job.spec["env"], **own}


def order(
    job: Job,
    attempt: Attempt,
    task: Task,
    peers: Sequence[Task],
    shares: Sequence[tuple[Device, int]],
    log_max_bytes: int,
    artifact_max_bytes: int,
    checkpoint_max_bytes: int,
) -> dict[str, Any]:
    """The task as its node is told to run it (or to stop it)."""
    spec = job.spec
    told: dict[str, Any] = {
        "task_id": task.id,
        "job_id": job.id,
        "attempt": attempt.number,
        "index": attempt.index,
        "rank": task.rank,
        "count": attempt.tasks_count,
        "action": task.action,
        "grace_s": spec["grace_period_s"],
        "signal": spec["signal"],
        "stop_reason": attempt.stop_reason,
        "devices": [
            {
                "address": device.address,
                "index": device.ordinal,
                "uuid": device.uuid,
                "vendor": device.vendor,
                "milli": milli,
                "memory_mib": device.memory_mib,
            }
            for device, milli in shares
        ],
    }
    told["spec"] = {
        "command": spec["command"],
        "script": spec["script"],
        "env": environment(job, attempt, task, peers),
        "workdir": spec["workdir"],
        "image": spec["image"],
        "inputs": spec["inputs"],
        "outputs": spec["outputs"],
        "checkpoint": spec["checkpoint"],
        "restore_checkpoint": spec["checkpoint"] is not None and attempt.number > 1,
        "vcpus": spec["resources"]["vcpus"],
        "memory_mib": spec["resources"]["memory_mib"],
        "time_limit_s": job.max_runtime_s,
        "log_max_bytes": log_max_bytes,
        "artifact_max_bytes": artifact_max_bytes,
        "checkpoint_max_bytes": checkpoint_max_bytes,
        "secrets": spec["secrets"],
    }
    return told
