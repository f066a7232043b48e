# SPDX-License-Identifier: Apache-2.0
"""GpuType: a model of GPU."""

from __future__ import annotations

from openstack import resource

from gpuservice.clients.sdk.v1._base import LIST_PARAMETERS, GpuResource


class GpuType(GpuResource):
    """A model of GPU."""

    resource_key = "gpu_type"
    resources_key = "gpu_types"
    base_path = "/gpu-types"

    allow_create = True
    allow_fetch = True
    allow_commit = True
    allow_delete = True
    allow_list = True

    _query_mapping = resource.QueryParameters("name", "vendor", *LIST_PARAMETERS)

    vendor = resource.Body("vendor")
    #: ``vendor:product``, four hex digits each.
    pci_ids = resource.Body("pci_ids", type=list)
    memory_mib = resource.Body("memory_mib", type=int)
    architecture = resource.Body("architecture")
    interconnect = resource.Body("interconnect")
    #: MIG and vGPU profiles, as dicts.
    partitions = resource.Body("partitions", type=list)
    #: Placement's names for it.
    resource_class = resource.Body("resource_class")
    traits = resource.Body("traits", type=list)
