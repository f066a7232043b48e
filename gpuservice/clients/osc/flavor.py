# SPDX-License-Identifier: Apache-2.0
"""Commands on flavors."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from gpuservice.clients.osc.generic import (
    CreateNoun,
    DeleteNoun,
    ListNoun,
    SetNoun,
    ShowNoun,
)
from gpuservice.clients.osc.options import Option, collected
from gpuservice.clients.osc.values import boolean, memory

_PROJECT = Option(
    "--project",
    "A project that may use it although it is not public; repeat for more",
    field="projects",
    many="list",
)
_FREE = (
    Option("--public", "Whether every project may use it: true or false", boolean),
    Option("--price-per-hour", "Price of a node's hour in minor currency units", int),
    Option(
        "--numa-policy",
        "How close its parts must be",
        choices=("required", "preferred", "legacy", "socket"),
    ),
)


class ListFlavors(ListNoun):
    """List the flavors that the caller may use."""

    noun = "flavor"
    items = "flavors"
    columns = ("id", "name", "gpu_type", "gpu_count", "mode", "status")
    long_columns = ("vcpus", "memory_mib", "disk_gib", "public", "projects", "price_per_hour")
    scoped = False
    filters = (
        Option("--name", "With this name"),
        Option("--gpu-type", "Of this GPU type"),
        Option("--mode", "Of this mode", choices=("passthrough", "vgpu", "mig", "baremetal")),
        Option("--status", "With this status", choices=("active", "drifted", "error")),
    )
    example = "openstack gpu flavor list --gpu-type a100-80gb"


class ShowFlavor(ShowNoun):
    """Show a flavor."""

    noun = "flavor"
    example = "openstack gpu flavor show a100x4"


class CreateFlavor(CreateNoun):
    """Create a flavor."""

    noun = "flavor"
    fields = (
        Option("--gpu-type", "GPU type of its nodes", required=True),
        Option("--gpus", "GPUs of a node", int, "gpu_count", required=True),
        Option(
            "--mode", "How the GPUs are given", choices=("passthrough", "vgpu", "mig", "baremetal")
        ),
        Option("--partition", "Partition of the type, for the modes mig and vgpu"),
        Option("--vcpus", "CPUs of a node", int),
        Option("--memory", "Memory of a node, in MiB or like 512GiB", memory, "memory_mib"),
        Option("--disk", "Disk of a node in GiB", int, "disk_gib"),
        *_FREE,
        _PROJECT,
    )
    example = "openstack gpu flavor create a100x4 --gpu-type a100-80gb --gpus 4 --memory 512GiB"


class SetFlavor(SetNoun):
    """Change name, access or price of a flavor."""

    noun = "flavor"
    fields = (Option("--name", "A new name"), *_FREE, _PROJECT)
    example = "openstack gpu flavor set a100x4 --project 8f2a4c --price-per-hour 1250"

    def changes(self, parsed_args: argparse.Namespace, target: Any) -> dict[str, Any]:
        """Projects are added to those that have access."""
        changes = collected(self.fields, parsed_args)
        if "projects" in changes:
            changes["projects"] = sorted({*(target.projects or ()), *changes["projects"]})
        return changes


class UnsetFlavor(SetNoun):
    """Take access or the price away from a flavor."""

    noun = "flavor"
    fields = (
        Option(
            "--project",
            "A project that may use it no longer; repeat for more",
            field="projects",
            many="list",
        ),
        Option("--price", "Have no price", field="price_per_hour", const="none"),
    )
    example = "openstack gpu flavor unset a100x4 --project 8f2a4c"

    def changes(self, parsed_args: argparse.Namespace, target: Any) -> dict[str, Any]:
        """Projects are taken from those that have access."""
        changes = collected(self.fields, parsed_args)
        if "projects" in changes:
            gone = set(changes["projects"])
            changes["projects"] = [one for one in target.projects or () if one not in gone]
        if "price_per_hour" in changes:
            changes["price_per_hour"] = None
        return changes


class DeleteFlavor(DeleteNoun):
    """Delete flavors that no pool uses."""

    noun = "flavor"
    example = "openstack gpu flavor delete a100x4"


class SyncFlavor(ShowNoun):
    """Make the cloud have what a flavor says."""

    noun = "flavor"
    example = "openstack gpu flavor sync a100x4 --dry-run"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Which, and whether really."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--dry-run", action="store_true", help="Only show the differences")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Sync and show status and differences."""
        answer = self.gpu.sync_flavor(self.one(parsed_args.target), parsed_args.dry_run)
        return self.shown(
            parsed_args, {**answer["flavor"], "differences": answer.get("differences", [])}
        )


class ShowCapacity(ShowNoun):
    """See how many more nodes of a flavor fit now."""

    noun = "flavor"
    example = "openstack gpu flavor capacity a100x4"

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Ask and show."""
        return self.shown(parsed_args, self.gpu.flavor_capacity(self.one(parsed_args.target)))
