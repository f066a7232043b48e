# SPDX-License-Identifier: Apache-2.0
"""Cohort: queues that use each other's idle GPUs."""

from __future__ import annotations

from openstack import resource

from gpuservice.clients.sdk.v1._base import LIST_PARAMETERS, GpuResource


class Cohort(GpuResource):
    """Queues that use each other's idle GPUs."""

    resource_key = "cohort"
    resources_key = "cohorts"
    base_path = "/cohorts"

    allow_create = True
    allow_fetch = True
    allow_commit = True
    allow_delete = True
    allow_list = True

    _query_mapping = resource.QueryParameters("name", *LIST_PARAMETERS)

    #: Projects whose queues may be in it, or ``*``.
    projects = resource.Body("projects", type=list)
