# SPDX-License-Identifier: Apache-2.0
"""Quota: what a project may have, and what it has."""

from __future__ import annotations

from openstack import resource

from gpuservice.clients.sdk.v1._base import GpuResource


class Quota(GpuResource):
    """A project's limits and use, by name (``gpus``, ``gpus:<type>``, ``jobs:queued``, ...).

    Its id is the project's. A limit of -1 is none.
    """

    resource_key = "quota"
    resources_key = "quotas"
    base_path = "/quotas"

    allow_fetch = True
    allow_commit = True
    allow_delete = True
    allow_list = True

    _query_mapping = resource.QueryParameters()

    project_id = resource.Body("project_id", alternate_id=True)
    limits = resource.Body("limits", type=dict)
    usage = resource.Body("usage", type=dict)
    #: Free GPUs by type; only of one's own limits.
    free_now = resource.Body("free_now", type=dict)
