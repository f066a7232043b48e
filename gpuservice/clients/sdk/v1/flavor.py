# SPDX-License-Identifier: Apache-2.0
"""Flavor: what a node of a pool is made of."""

from __future__ import annotations

from openstack import resource

from gpuservice.clients.sdk.v1._base import LIST_PARAMETERS, GpuResource


class Flavor(GpuResource):
    """What a node of a pool is made of."""

    resource_key = "flavor"
    resources_key = "flavors"
    base_path = "/flavors"

    allow_create = True
    allow_fetch = True
    allow_commit = True
    allow_delete = True
    allow_list = True

    _query_mapping = resource.QueryParameters(
        "name", "gpu_type", "mode", "status", *LIST_PARAMETERS
    )

    gpu_type = resource.Body("gpu_type")
    gpu_count = resource.Body("gpu_count", type=int)
    #: passthrough, vgpu, mig or baremetal.
    mode = resource.Body("mode")
    partition = resource.Body("partition")
    vcpus = resource.Body("vcpus", type=int)
    memory_mib = resource.Body("memory_mib", type=int)
    disk_gib = resource.Body("disk_gib", type=int)
    numa_policy = resource.Body("numa_policy")
    public = resource.Body("public", type=bool)
    #: Projects it is given to when it is not public.
    projects = resource.Body("projects", type=list)
    #: In minor currency units.
    price_per_hour = resource.Body("price_per_hour", type=int)
    #: active, drifted or error.
    status = resource.Body("status")
    #: What the cloud has for it.
    realised_as = resource.Body("realised_as", type=dict)
