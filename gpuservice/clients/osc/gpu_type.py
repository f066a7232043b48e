# SPDX-License-Identifier: Apache-2.0
"""Commands on GPU types."""

from __future__ import annotations

from gpuservice.clients.osc.generic import CreateNoun, DeleteNoun, ListNoun, SetNoun, ShowNoun
from gpuservice.clients.osc.options import Option
from gpuservice.clients.osc.values import json_value, memory

_FIELDS = (
    Option("--vendor", "nvidia, amd, ascend, ..."),
    Option("--memory", "Memory of one, in MiB or like 80GiB", memory, "memory_mib"),
    Option("--pci-id", "vendor:product in hex; repeat for more", field="pci_ids", many="list"),
    Option("--architecture", "For example ampere"),
    Option("--interconnect", "For example nvlink"),
    Option(
        "--partition",
        "A MIG or vGPU profile as JSON; repeat for more",
        json_value,
        "partitions",
        many="list",
    ),
    Option("--resource-class", "Placement's resource class"),
    Option("--trait", "A trait of Placement; repeat for more", field="traits", many="list"),
)


class ListTypes(ListNoun):
    """List GPU types."""

    noun = "gpu_type"
    items = "gpu_types"
    columns = ("id", "name", "vendor", "memory_mib")
    long_columns = ("architecture", "interconnect", "pci_ids", "partitions", "traits")
    scoped = False
    filters = (Option("--name", "With this name"), Option("--vendor", "Of this vendor"))
    example = "openstack gpu type list --vendor nvidia"


class ShowType(ShowNoun):
    """Show a GPU type."""

    noun = "gpu_type"
    example = "openstack gpu type show a100-80gb"


class CreateType(CreateNoun):
    """Create a GPU type."""

    noun = "gpu_type"
    fields = _FIELDS
    example = (
        "openstack gpu type create a100-80gb --vendor nvidia --memory 80GiB --pci-id 10de:20b2"
    )


class SetType(SetNoun):
    """Change a GPU type."""

    noun = "gpu_type"
    fields = _FIELDS
    example = "openstack gpu type set a100-80gb --interconnect nvlink"


class DeleteType(DeleteNoun):
    """Delete GPU types that nothing uses."""

    noun = "gpu_type"
    example = "openstack gpu type delete a100-80gb"
