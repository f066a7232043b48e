# SPDX-License-Identifier: Apache-2.0
"""Node: one node of a pool, where tasks run."""

from __future__ import annotations

from openstack import resource

from gpuservice.clients.sdk.v1._base import LIST_PARAMETERS, GpuResource


class Node(GpuResource):
    """One node of a pool, where tasks run."""

    resource_key = "node"
    resources_key = "nodes"
    base_path = "/nodes"

    allow_fetch = True
    allow_list = True

    _query_mapping = resource.QueryParameters("name", "status", "pool_id", *LIST_PARAMETERS)

    pool_id = resource.Body("pool_id")
    server_id = resource.Body("server_id")
    baremetal_id = resource.Body("baremetal_id")
    addresses = resource.Body("addresses", type=list)
    status = resource.Body("status")
    status_reason = resource.Body("status_reason")
    #: Until then what runs there may go on (drained with notice); None: to its end.
    drain_deadline_at = resource.Body("drain_deadline_at")
    devices = resource.Body("devices", type=list)
    vcpus = resource.Body("vcpus", type=int)
    memory_mib = resource.Body("memory_mib", type=int)
    live_tasks = resource.Body("live_tasks", type=int)
    epoch = resource.Body("epoch", type=int)
    last_seen_at = resource.Body("last_seen_at")
    fault = resource.Body("fault", type=dict)
    #: What its agent has not proved of what tasks of two projects on one node need.
    unproved = resource.Body("unproved", type=list)
