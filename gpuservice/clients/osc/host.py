# SPDX-License-Identifier: Apache-2.0
"""Commands on hosts."""

from __future__ import annotations

from gpuservice.clients.osc.generic import ActOnNoun, ListNoun, ShowNoun
from gpuservice.clients.osc.options import Option
from gpuservice.clients.osc.values import duration


class ListHosts(ListNoun):
    """List hosts with the numbers of their devices."""

    noun = "host"
    items = "hosts"
    columns = ("id", "name", "kind", "state", "status", "devices_used", "devices_total")
    long_columns = (
        "rack",
        "zone",
        "link_domain",
        "vcpus",
        "memory_mib",
        "status_reason",
        "drain_deadline_at",
    )
    scoped = False
    filters = (
        Option("--name", "With this name"),
        Option("--kind", "Of this kind", choices=("hypervisor", "baremetal", "standalone")),
        Option("--state", "In this state", choices=("up", "down")),
        Option(
            "--status",
            "With this status",
            choices=("enabled", "cordoned", "draining", "maintenance"),
        ),
        Option("--rack", "In this rack"),
    )
    example = "openstack gpu host list --status draining"


class ShowHost(ShowNoun):
    """Show a host."""

    noun = "host"
    example = "openstack gpu host show gpu-07"


class CordonHost(ActOnNoun):
    """Let nothing new come to hosts."""

    noun = "host"
    action = "cordon"
    details = (Option("--reason", "Why; shown with it"),)
    example = "openstack gpu host cordon gpu-07 --reason 'new driver'"


class DrainHost(ActOnNoun):
    """Let nothing new come to hosts.

    What runs there goes on to its end, or until the notice is over: then it is stopped and put in
    line again, without counting as an attempt.
    """

    noun = "host"
    action = "drain"
    details = (
        Option("--reason", "Why; shown with it"),
        Option(
            "--notice",
            "Time that running work still has, like 1h; 0 for none",
            duration,
            "notice_s",
        ),
    )
    example = "openstack gpu host drain gpu-07 --notice 1h"


class MaintainHost(ActOnNoun):
    """Take hosts into maintenance."""

    noun = "host"
    action = "maintenance"
    details = (Option("--reason", "Why; shown with it"),)
    example = "openstack gpu host maintenance gpu-07"


class UncordonHost(ActOnNoun):
    """Let work come to hosts again."""

    noun = "host"
    action = "uncordon"
    example = "openstack gpu host uncordon gpu-07"
