# SPDX-License-Identifier: Apache-2.0
"""Job, and what lies below one: attempts, elements, artifacts, logs."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any, Self

from keystoneauth1 import adapter
from openstack import resource

from gpuservice.clients.sdk.errors import GpuConflict, raise_for
from gpuservice.clients.sdk.v1._base import LIST_PARAMETERS, GpuResource

#: The statuses a job does not leave.
ENDED = frozenset({"succeeded", "failed", "cancelled", "timed_out"})

_BUSY_TRIES = 20
_BUSY_PAUSE_S = 0.5


class Job(GpuResource):
    """A job: one gang of tasks, or an array of such.

    The request's fields are those of the API (``queue``, ``resources``, ``tasks``, ...).
    """

    resource_key = "job"
    resources_key = "jobs"
    base_path = "/jobs"

    allow_create = True
    allow_fetch = True
    allow_commit = True
    allow_delete = True
    allow_list = True

    _query_mapping = resource.QueryParameters(
        "name",
        "status",
        "kind",
        "queue",
        "user_id",
        "waiting_code",
        "failure_class",
        "priority",
        *LIST_PARAMETERS,
    )

    user_id = resource.Body("user_id")
    queue = resource.Body("queue")
    queue_id = resource.Body("queue_id")
    kind = resource.Body("kind")
    priority = resource.Body("priority")
    command = resource.Body("command", type=list)
    script = resource.Body("script")
    image = resource.Body("image")
    env = resource.Body("env", type=dict)
    secrets = resource.Body("secrets", type=list)
    workdir = resource.Body("workdir")
    tasks = resource.Body("tasks", type=dict)
    resources = resource.Body("resources", type=dict)
    resources_granted = resource.Body("resources_granted", type=list)
    topology = resource.Body("topology", type=dict)
    max_runtime_s = resource.Body("max_runtime_s", type=int)
    deadline_at = resource.Body("deadline_at")
    preemptible = resource.Body("preemptible", type=bool)
    grace_period_s = resource.Body("grace_period_s", type=int)
    signal = resource.Body("signal")
    checkpoint = resource.Body("checkpoint", type=dict)
    retry = resource.Body("retry", type=dict)
    depends_on = resource.Body("depends_on", type=list)
    array = resource.Body("array", type=dict)
    inputs = resource.Body("inputs", type=list)
    outputs = resource.Body("outputs", type=list)
    notify = resource.Body("notify", type=list)
    labels = resource.Body("labels", type=dict)
    hold = resource.Body("hold", type=bool)
    status = resource.Body("status")
    status_reason = resource.Body("status_reason")
    failure_class = resource.Body("failure_class")
    exit_code = resource.Body("exit_code", type=int)
    #: The number of the last attempt, from 1; 0 before the first.
    attempt = resource.Body("attempt", type=int)
    #: How often the scheduler took its place for another job.
    preempted_count = resource.Body("preempted_count", type=int)
    queued_at = resource.Body("queued_at")
    started_at = resource.Body("started_at")
    ended_at = resource.Body("ended_at")
    nodes = resource.Body("nodes", type=list)
    #: Why it waits: ``code``, ``summary``, ``position``, ``estimated_start_at``.
    waiting = resource.Body("waiting", type=dict)
    #: Elements of an array by status.
    counts = resource.Body("counts", type=dict)

    @property
    def is_ended(self) -> bool:
        """Whether it is over, well or badly."""
        return self.status in ENDED

    @classmethod
    def submit(
        cls,
        session: adapter.Adapter,
        request: Mapping[str, Any],
        idempotency_key: str | None = None,
    ) -> Self:
        """Put a job in line; the request goes out as it is, so that the service judges it.

        A lost connection is retried under the same key, so there is never a second job.
        """
        headers = {"Idempotency-Key": idempotency_key or str(uuid.uuid4())}
        for left in reversed(range(_BUSY_TRIES)):
            try:
                response = session.post(cls.base_path, json={"job": dict(request)}, headers=headers)
                raise_for(response)
            except GpuConflict as error:
                if error.code != "gpu.idempotency.in_progress" or not left:
                    raise
                time.sleep(_BUSY_PAUSE_S)
            else:
                break
        made = cls.existing(connection=session._get_connection())  # type: ignore[attr-defined]
        made._translate_response(response)
        return made


class Attempt(GpuResource):
    """One try to run a job, or one element of an array."""

    resource_key = "attempt"
    resources_key = "attempts"
    base_path = "/jobs/%(job_id)s/attempts"
    allow_list = True

    _query_mapping = resource.QueryParameters("index", "status", "outcome", "sort", "with_count")

    job_id = resource.URI("job_id")
    number = resource.Body("number", type=int)
    index = resource.Body("index", type=int)
    status = resource.Body("status")
    outcome = resource.Body("outcome")
    started_at = resource.Body("started_at")
    ended_at = resource.Body("ended_at")
    failure_class = resource.Body("failure_class")
    evidence = resource.Body("evidence")
    exit_code = resource.Body("exit_code", type=int)
    stop_reason = resource.Body("stop_reason")
    #: Dicts with ``rank``, ``node_id``, ``node_name``, ``devices``, ``exit_code``, ``signal``.
    tasks = resource.Body("tasks", type=list)


class Element(GpuResource):
    """One element of an array that has started, ended or waits for another attempt."""

    resource_key = "element"
    resources_key = "elements"
    base_path = "/jobs/%(job_id)s/elements"
    allow_list = True

    _query_mapping = resource.QueryParameters()

    job_id = resource.URI("job_id")
    index = resource.Body("index", type=int)
    status = resource.Body("status")
    status_reason = resource.Body("status_reason")
    attempt = resource.Body("attempt", type=int)
    failure_class = resource.Body("failure_class")
    exit_code = resource.Body("exit_code", type=int)
    queued_at = resource.Body("queued_at")
    started_at = resource.Body("started_at")
    ended_at = resource.Body("ended_at")


class Artifact(GpuResource):
    """A kept result file; ``path`` (``{attempt}/{rank}/...``) with ``index`` downloads it."""

    resource_key = "artifact"
    resources_key = "artifacts"
    base_path = "/jobs/%(job_id)s/artifacts"
    page_size = 1000
    allow_list = True

    _query_mapping = resource.QueryParameters("index", "attempt", "rank", "sort", "with_count")

    job_id = resource.URI("job_id")
    path = resource.Body("path")
    index = resource.Body("index", type=int)
    attempt = resource.Body("attempt", type=int)
    rank = resource.Body("rank", type=int)
    #: Bytes.
    size = resource.Body("size", type=int)
    sha256 = resource.Body("sha256")
