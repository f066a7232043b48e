# SPDX-License-Identifier: Apache-2.0
"""Event: what happened, and on whose account."""

from __future__ import annotations

from openstack import resource

from gpuservice.clients.sdk.v1._base import LIST_PARAMETERS, GpuResource


class Event(GpuResource):
    """What happened, and on whose account."""

    resource_key = "event"
    resources_key = "events"
    base_path = "/events"

    allow_list = True

    _query_mapping = resource.QueryParameters(
        "target_type", "target_id", "action", "outcome", "request_id", *LIST_PARAMETERS
    )

    #: ISO 8601, UTC.
    at = resource.Body("at")
    actor = resource.Body("actor")
    request_id = resource.Body("request_id")
    global_request_id = resource.Body("global_request_id")
    action = resource.Body("action")
    target_type = resource.Body("target_type")
    target_id = resource.Body("target_id")
    outcome = resource.Body("outcome")
    reason = resource.Body("reason")
    detail = resource.Body("detail", type=dict)
