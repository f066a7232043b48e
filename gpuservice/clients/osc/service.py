# SPDX-License-Identifier: Apache-2.0
"""Commands on the service's own processes."""

from __future__ import annotations

from gpuservice.clients.osc.generic import ListNoun, SetNoun
from gpuservice.clients.osc.options import Option


class ListServices(ListNoun):
    """List the service's own processes."""

    noun = "service"
    items = "services"
    columns = ("id", "binary", "host", "state", "status", "last_seen_at")
    long_columns = ("version",)
    scoped = False
    filters = (
        Option("--binary", "Of this program"),
        Option("--host", "On this host"),
        Option("--status", "With this status", choices=("enabled", "disabled")),
    )
    example = "openstack gpu service list --binary gpuservice-conductor"


class SetService(SetNoun):
    """Enable or disable one of the service's own processes."""

    noun = "service"
    fields = (
        Option("--enable", "Let it work", field="status", const="enabled"),
        Option("--disable", "Let it rest", field="status", const="disabled"),
    )
    example = "openstack gpu service set 6f0c2f0e-4c6c-4a7e-9a39-2f5f0b7c1a11 --disable"
