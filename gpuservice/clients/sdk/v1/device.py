# SPDX-License-Identifier: Apache-2.0
"""Device: one GPU, or a partition of one."""

from __future__ import annotations

from openstack import resource

from gpuservice.clients.sdk.v1._base import LIST_PARAMETERS, GpuResource


class Device(GpuResource):
    """One GPU, or a partition of one."""

    resource_key = "device"
    resources_key = "devices"
    base_path = "/devices"

    allow_fetch = True
    allow_list = True

    _query_mapping = resource.QueryParameters(
        "host_id", "gpu_type", "health", "node_id", "used_milli", *LIST_PARAMETERS
    )

    #: Where it is on its host's bus.
    address = resource.Body("address")
    gpu_type = resource.Body("gpu_type")
    host_id = resource.Body("host_id")
    numa_node = resource.Body("numa_node", type=int)
    link_group = resource.Body("link_group")
    mode = resource.Body("mode")
    health = resource.Body("health")
    health_reason = resource.Body("health_reason")
    #: Who said that it is not healthy: cloud, node or operator.
    health_source = resource.Body("health_source")
    memory_mib = resource.Body("memory_mib", type=int)
    #: Thousandths in use, 0 to 1000.
    used_milli = resource.Body("used_milli", type=int)
    #: The node that holds it.
    allocated_to = resource.Body("allocated_to")
