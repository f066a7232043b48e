# SPDX-License-Identifier: Apache-2.0
"""Queue: where jobs wait, for whom it is open, and which pools serve it."""

from __future__ import annotations

import builtins
from typing import Self

from openstack import resource

from gpuservice.clients.sdk.v1._base import LIST_PARAMETERS, GpuResource


class Queue(GpuResource):
    """Where jobs wait."""

    resource_key = "queue"
    resources_key = "queues"
    base_path = "/queues"

    allow_create = True
    allow_fetch = True
    allow_commit = True
    allow_delete = True
    allow_list = True

    _query_mapping = resource.QueryParameters("name", "status", *LIST_PARAMETERS)

    #: Projects it is open to, or ``*``.
    projects = resource.Body("projects", type=list)
    pools = resource.Body("pools", type=list)
    #: open, drained or closed.
    status = resource.Body("status")
    weight = resource.Body("weight", type=int)
    cohort = resource.Body("cohort")
    #: GPUs by type.
    nominal = resource.Body("nominal", type=dict)
    borrowing_limit = resource.Body("borrowing_limit", type=dict)
    lending_limit = resource.Body("lending_limit", type=dict)
    preemption = resource.Body("preemption")
    max_priority = resource.Body("max_priority", type=int)
    placement = resource.Body("placement")
    #: Policy by kind of job.
    kinds = resource.Body("kinds", type=dict)

    @classmethod
    def _preferred(cls, matches: builtins.list[Self]) -> builtins.list[Self]:
        """A project's own queue goes before a cloud-wide one of the same name, as it does for
        jobs."""
        own = [one for one in matches if one.project_id is not None]
        return own if len(own) == 1 else matches
