# SPDX-License-Identifier: Apache-2.0
"""Host: a machine that has GPUs."""

from __future__ import annotations

from openstack import resource

from gpuservice.clients.sdk.v1._base import LIST_PARAMETERS, GpuResource


class Host(GpuResource):
    """A machine that has GPUs."""

    resource_key = "host"
    resources_key = "hosts"
    base_path = "/hosts"

    allow_fetch = True
    allow_list = True

    _query_mapping = resource.QueryParameters(
        "name", "state", "status", "kind", "rack", *LIST_PARAMETERS
    )

    #: hypervisor, baremetal or standalone.
    kind = resource.Body("kind")
    #: up or down.
    state = resource.Body("state")
    #: enabled, cordoned, draining or maintenance.
    status = resource.Body("status")
    status_reason = resource.Body("status_reason")
    #: Until then what runs there may go on (drained with notice); None: to its end.
    drain_deadline_at = resource.Body("drain_deadline_at")
    rack = resource.Body("rack")
    zone = resource.Body("zone")
    link_domain = resource.Body("link_domain")
    vcpus = resource.Body("vcpus", type=int)
    memory_mib = resource.Body("memory_mib", type=int)
    devices_total = resource.Body("devices_total", type=int)
    devices_used = resource.Body("devices_used", type=int)
