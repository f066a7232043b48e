# SPDX-License-Identifier: Apache-2.0
"""Simulation: what a change of the cloud would do to a workload."""

from __future__ import annotations

from openstack import resource

from gpuservice.clients.sdk.v1._base import LIST_PARAMETERS, GpuResource

ENDED = ("succeeded", "failed")


class Simulation(GpuResource):
    """What a change of the cloud would do to a workload."""

    resource_key = "simulation"
    resources_key = "simulations"
    base_path = "/simulations"

    allow_create = True
    allow_fetch = True
    allow_delete = True
    allow_list = True

    _query_mapping = resource.QueryParameters("name", "status", *LIST_PARAMETERS)

    #: What it begins with: ``now``, the live state, or ``empty``.
    from_ = resource.Body("from")
    #: ``since`` and ``until`` of the recorded jobs that are replayed.
    history = resource.Body("history", type=dict)
    #: Rows of an inline workload, as they are sent; answers have ``workload_rows``.
    workload = resource.Body("workload", type=list)
    workload_rows = resource.Body("workload_rows", type=int)
    #: What a job without a limit is taken to need, seconds.
    assumed_runtime_s = resource.Body("assumed_runtime_s", type=int)
    #: ``gpus``, ``pools``, ``queues``, ``quotas``, ``policy``.
    change = resource.Body("change", type=dict)
    user_id = resource.Body("user_id")
    #: queued, running, succeeded or failed.
    status = resource.Body("status")
    status_reason = resource.Body("status_reason")
    #: Percent.
    progress = resource.Body("progress", type=int)
    started_at = resource.Body("started_at")
    ended_at = resource.Body("ended_at")
    #: ``base`` and ``changed`` figures, and their ``difference``; only when shown alone.
    result = resource.Body("result", type=dict)

    @property
    def is_ended(self) -> bool:
        """Whether it has come to its end."""
        return self.status in ENDED
