# SPDX-License-Identifier: Apache-2.0
"""Commands on events."""

from __future__ import annotations

from gpuservice.clients.osc.generic import ListNoun
from gpuservice.clients.osc.options import Option


class ListEvents(ListNoun):
    """List events in the order in which they were written."""

    noun = "event"
    items = "events"
    columns = ("at", "action", "target_type", "target_id", "outcome", "actor")
    long_columns = ("id", "project_id", "reason", "detail", "request_id", "global_request_id")
    filters = (
        Option("--target-type", "On this kind of thing, like job"),
        Option("--target-id", "On the thing with this id"),
        Option("--action", "Of this action, like job.start"),
        Option("--outcome", "With this outcome"),
        Option("--request-id", "Caused by this request"),
    )
    example = "openstack gpu event list --target-type job --action job.fail"
