# SPDX-License-Identifier: Apache-2.0
"""Commands on queues."""

from __future__ import annotations

from gpuservice.clients.osc.generic import CreateNoun, DeleteNoun, ListNoun, SetNoun, ShowNoun
from gpuservice.clients.osc.options import Option
from gpuservice.clients.osc.values import json_value, number_pair

_FIELDS = (
    Option(
        "--pool", "A pool that serves it (name or id); repeat for more", field="pools", many="list"
    ),
    Option(
        "--open-to", "A project it is open to, or *; repeat for more", field="projects", many="list"
    ),
    Option(
        "--status",
        "Takes and starts jobs, starts those it has, or does neither",
        choices=("open", "drained", "closed"),
    ),
    Option("--weight", "Its share beside other queues", int),
    Option("--cohort", "The cohort (name or id) whose queues it lends to and borrows from"),
    Option(
        "--nominal",
        "GPUs of a type that are its own; repeat for more",
        number_pair,
        "nominal",
        "TYPE=GPUS",
        many="map",
    ),
    Option(
        "--borrowing-limit",
        "GPUs it may borrow; repeat for more",
        number_pair,
        "borrowing_limit",
        "TYPE=GPUS",
        many="map",
    ),
    Option(
        "--lending-limit",
        "GPUs it may lend; repeat for more",
        number_pair,
        "lending_limit",
        "TYPE=GPUS",
        many="map",
    ),
    Option(
        "--preemption", "Whom it may stop", choices=("none", "lower_priority", "reclaim", "both")
    ),
    Option("--max-priority", "The highest priority of its jobs, 0 to 1000", int),
    Option("--placement", "Fill nodes up, or spread over them", choices=("pack", "spread")),
    Option("--kinds", "Policy by kind of job as JSON", json_value, "kinds", "<json>"),
)


class ListQueues(ListNoun):
    """List the queues that the caller may use."""

    noun = "queue"
    items = "queues"
    columns = ("id", "name", "status", "weight", "max_priority")
    long_columns = (
        "project_id",
        "projects",
        "pools",
        "cohort",
        "nominal",
        "preemption",
        "placement",
    )
    filters = (
        Option("--name", "With this name"),
        Option("--status", "With this status", choices=("open", "drained", "closed")),
    )
    example = "openstack gpu queue list"


class ShowQueue(ShowNoun):
    """Show a queue."""

    noun = "queue"
    example = "openstack gpu queue show vision"


class CreateQueue(CreateNoun):
    """Create a queue."""

    noun = "queue"
    fields = (*_FIELDS, Option("--project", "The project it belongs to", field="project_id"))
    example = "openstack gpu queue create vision --pool vision --max-priority 700"


class SetQueue(SetNoun):
    """Change a queue."""

    noun = "queue"
    fields = (Option("--name", "A new name"), *_FIELDS)
    example = "openstack gpu queue set vision --status drained"


class DeleteQueue(DeleteNoun):
    """Delete queues that have no live jobs."""

    noun = "queue"
    example = "openstack gpu queue delete vision"
