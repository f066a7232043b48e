# SPDX-License-Identifier: Apache-2.0
"""How jobs, attempts, elements and artifacts look on the wire."""

from __future__ import annotations

from typing import Any

from gpuservice.api.v1.shapes import common, time
from gpuservice.domain.ports import DryRun
from gpuservice.domain.work import Artifact, Job, JobElement
from gpuservice.services.job_reads import AttemptView
from gpuservice.services.jobs import JobView

#: Fields of the request that an answer repeats as they were normalised.
_SPEC = (
    "kind",
    "command",
    "script",
    "image",
    "env",
    "secrets",
    "workdir",
    "tasks",
    "resources",
    "topology",
    "deadline_at",
    "grace_period_s",
    "signal",
    "checkpoint",
    "retry",
    "depends_on",
    "array",
    "inputs",
    "outputs",
    "notify",
)


def job_view(view: JobView) -> dict[str, Any]:
    """A job as answered."""
    job = view.job
    return {
        **common(job, "jobs"),
        "user_id": job.user_id,
        "name": job.name,
        "queue": view.queue,
        "queue_id": job.queue_id,
        **{name: job.spec[name] for name in _SPEC},
        "priority": job.priority,
        "max_runtime_s": job.max_runtime_s,
        "preemptible": job.preemptible,
        "labels": job.labels,
        "hold": job.on_hold,
        "status": job.status,
        "status_reason": job.status_reason,
        "failure_class": job.failure_class,
        "exit_code": job.exit_code,
        "attempt": job.attempt,
        "preempted_count": job.preempted_count,
        "queued_at": time(job.queued_at),
        "started_at": time(job.started_at),
        "ended_at": time(job.ended_at),
        "nodes": list(view.nodes),
        "resources_granted": list(view.granted),
        "waiting": _waiting(job),
        "counts": _counts(job),
    }


def _waiting(job: Job) -> dict[str, Any] | None:
    if not job.waiting_elements:
        return None
    if job.waiting_code is None:
        return {
            "code": "evaluating",
            "summary": "The job was not planned yet.",
            "position": None,
            "estimated_start_at": None,
        }
    return {
        "code": job.waiting_code,
        "summary": job.waiting_summary,
        "position": job.waiting_position,
        "estimated_start_at": time(job.waiting_estimated_start_at),
    }


def _counts(job: Job) -> dict[str, int] | None:
    if not job.is_array:
        return None
    return {
        "queued": job.waiting_elements,
        "running": job.live_elements,
        "succeeded": job.succeeded_elements,
        "failed": job.failed_elements,
        "cancelled": job.cancelled_elements,
        "timed_out": job.timed_out_elements,
    }


def element_view(row: JobElement) -> dict[str, Any]:
    """An array element as answered."""
    return {
        "index": row.index,
        "status": row.status,
        "status_reason": row.status_reason,
        "attempt": row.attempt,
        "failure_class": row.failure_class,
        "exit_code": row.exit_code,
        "queued_at": time(row.queued_at),
        "started_at": time(row.started_at),
        "ended_at": time(row.ended_at),
    }


def attempt_view(view: AttemptView) -> dict[str, Any]:
    """An attempt as answered."""
    row = view.attempt
    return {
        "id": row.id,
        "number": row.number,
        "index": row.index,
        "status": row.status,
        "outcome": row.outcome,
        "created_at": time(row.created_at),
        "started_at": time(row.started_at),
        "ended_at": time(row.ended_at),
        "failure_class": row.failure_class,
        "evidence": row.evidence,
        "exit_code": row.exit_code,
        "stop_reason": row.stop_reason,
        "tasks": [
            {
                "rank": one.task.rank,
                "node_id": one.task.node_id,
                "node_name": one.node_name,
                "status": one.task.status,
                "devices": list(one.devices),
                "exit_code": one.task.exit_code,
                "signal": one.task.signal,
            }
            for one in view.tasks
        ],
    }


def artifact_view(row: Artifact) -> dict[str, Any]:
    """An artifact as answered; ``path`` is what downloads it."""
    return {
        "id": row.id,
        "path": f"{row.attempt}/{row.rank}/{row.path}",
        "index": row.index,
        "attempt": row.attempt,
        "rank": row.rank,
        "size": row.size,
        "sha256": row.sha256,
        "created_at": time(row.created_at),
    }


def dry_run_view(result: DryRun) -> dict[str, Any]:
    """The outcome of a dry run."""
    return {
        "status": result.status,
        "placement": list(result.placement),
        "explanation": result.explanation,
        "estimated_start_at": time(result.estimated_start_at),
        "start_basis": result.start_basis,
        "cost": result.cost,
        "preempts": result.preempts,
    }
