# SPDX-License-Identifier: Apache-2.0
"""Pool: a project's nodes of one flavor."""

from __future__ import annotations

from openstack import resource

from gpuservice.clients.sdk.v1._base import LIST_PARAMETERS, GpuResource


class Pool(GpuResource):
    """A project's nodes of one flavor."""

    resource_key = "pool"
    resources_key = "pools"
    base_path = "/pools"

    allow_create = True
    allow_fetch = True
    allow_commit = True
    allow_delete = True
    allow_list = True

    _query_mapping = resource.QueryParameters(
        "name", "status", "flavor_id", "engine", *LIST_PARAMETERS
    )

    #: A name or an id in requests, the id in answers.
    flavor = resource.Body("flavor")
    min_nodes = resource.Body("min_nodes", type=int)
    max_nodes = resource.Body("max_nodes", type=int)
    target_nodes = resource.Body("target_nodes", type=int)
    #: How many it should have now.
    wanted_nodes = resource.Body("wanted_nodes", type=int)
    autoscale = resource.Body("autoscale", type=bool)
    idle_timeout_s = resource.Body("idle_timeout_s", type=int)
    #: wait or fail.
    on_shortage = resource.Body("on_shortage")
    image = resource.Body("image")
    networks = resource.Body("networks", type=list)
    key_name = resource.Body("key_name")
    engine = resource.Body("engine")
    engine_options = resource.Body("engine_options", type=dict)
    shared_with = resource.Body("shared_with", type=list)
    #: node, device or none.
    isolation = resource.Body("isolation")
    reservation = resource.Body("reservation")
    status = resource.Body("status")
    #: Why it is in error.
    fault = resource.Body("fault", type=dict)
    #: Why it is smaller than wanted.
    waiting = resource.Body("waiting", type=dict)
    credential_status = resource.Body("credential_status")
