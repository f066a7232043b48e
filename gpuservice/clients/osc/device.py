# SPDX-License-Identifier: Apache-2.0
"""Commands on devices."""

from __future__ import annotations

from gpuservice.clients.osc.generic import ActOnNoun, ListNoun, ShowNoun
from gpuservice.clients.osc.options import Option


class ListDevices(ListNoun):
    """List devices."""

    noun = "device"
    items = "devices"
    columns = ("id", "host_id", "address", "gpu_type", "health", "used_milli")
    long_columns = (
        "memory_mib",
        "mode",
        "link_group",
        "numa_node",
        "allocated_to",
        "health_reason",
    )
    scoped = False
    filters = (
        Option("--host", "On the host with this id", field="host_id"),
        Option("--gpu-type", "Of this GPU type"),
        Option("--health", "In this health"),
        Option("--node", "Held by the node with this id", field="node_id"),
    )
    example = "openstack gpu device list --health quarantined"


class ShowDevice(ShowNoun):
    """Show a device."""

    noun = "device"
    example = "openstack gpu device show 6f0c2f0e-4c6c-4a7e-9a39-2f5f0b7c1a11"


class QuarantineDevice(ActOnNoun):
    """Let nothing use devices."""

    noun = "device"
    action = "quarantine"
    details = (Option("--reason", "Why; shown with it"),)
    example = "openstack gpu device quarantine 6f0c2f0e-4c6c-4a7e-9a39-2f5f0b7c1a11 --reason xid79"


class ReleaseDevice(ActOnNoun):
    """Let devices be used again."""

    noun = "device"
    action = "release"
    details = (Option("--reason", "Why; shown with it"),)
    example = "openstack gpu device release 6f0c2f0e-4c6c-4a7e-9a39-2f5f0b7c1a11"


class RetestDevice(ActOnNoun):
    """Have devices tested again."""

    noun = "device"
    action = "retest"
    example = "openstack gpu device retest 6f0c2f0e-4c6c-4a7e-9a39-2f5f0b7c1a11"
