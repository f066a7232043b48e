# SPDX-License-Identifier: Apache-2.0
"""Service: one of the service's own processes."""

from __future__ import annotations

from openstack import resource

from gpuservice.clients.sdk.v1._base import LIST_PARAMETERS, GpuResource


class Service(GpuResource):
    """One of the service's own processes."""

    resource_key = "service"
    resources_key = "services"
    base_path = "/services"

    allow_fetch = True
    allow_commit = True
    allow_list = True

    _query_mapping = resource.QueryParameters("binary", "host", "status", *LIST_PARAMETERS)

    binary = resource.Body("binary")
    host = resource.Body("host")
    #: up or down.
    state = resource.Body("state")
    #: enabled or disabled.
    status = resource.Body("status")
    last_seen_at = resource.Body("last_seen_at")
    version = resource.Body("version")
