# SPDX-License-Identifier: Apache-2.0
"""Commands on nodes of pools."""

from __future__ import annotations

from gpuservice.clients.osc.generic import ActOnNoun, ListNoun, ShowNoun
from gpuservice.clients.osc.options import Option


class ListNodes(ListNoun):
    """List the nodes of the project's pools."""

    noun = "node"
    items = "nodes"
    columns = ("id", "name", "pool_id", "status", "addresses", "live_tasks")
    long_columns = (
        "devices",
        "vcpus",
        "memory_mib",
        "last_seen_at",
        "status_reason",
        "drain_deadline_at",
        "fault",
    )
    filters = (
        Option("--name", "With this name"),
        Option("--status", "With this status"),
        Option("--pool", "Of the pool with this id", field="pool_id"),
    )
    example = "openstack gpu node list --status ready"


class ShowNode(ShowNoun):
    """Show a node with its devices."""

    noun = "node"
    example = "openstack gpu node show vision-1"


class CordonNode(ActOnNoun):
    """Let nothing new come to nodes."""

    noun = "node"
    action = "cordon"
    details = (Option("--reason", "Why; shown with it"),)
    example = "openstack gpu node cordon vision-1"


class DrainNode(ActOnNoun):
    """Let nothing new come to nodes; what runs there goes on to its end."""

    noun = "node"
    action = "drain"
    details = (Option("--reason", "Why; shown with it"),)
    example = "openstack gpu node drain vision-1"


class UncordonNode(ActOnNoun):
    """Let work come to nodes again."""

    noun = "node"
    action = "uncordon"
    example = "openstack gpu node uncordon vision-1"


class RepairNode(ActOnNoun):
    """Have nodes built anew."""

    noun = "node"
    action = "repair"
    details = (Option("--reason", "Why; shown with it"),)
    example = "openstack gpu node repair vision-1"
