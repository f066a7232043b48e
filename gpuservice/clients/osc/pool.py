# SPDX-License-Identifier: Apache-2.0
"""Commands on pools."""

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
from gpuservice.clients.osc.options import Option
from gpuservice.clients.osc.values import boolean, duration, pair

_SIZES = (
    Option("--min-nodes", "At least so many nodes", int),
    Option("--max-nodes", "At most so many nodes", int),
    Option("--target-nodes", "So many nodes (where min and max are equal or nothing scales)", int),
    Option("--autoscale", "Grow and shrink with the work: true or false", boolean),
    Option(
        "--idle-timeout", "Give a node back when it was idle so long", duration, "idle_timeout_s"
    ),
    Option("--on-shortage", "What to do when a node cannot be had", choices=("wait", "fail")),
    Option(
        "--share-with",
        "A project that may use it, or *; repeat for more",
        field="shared_with",
        many="list",
    ),
    Option("--isolation", "Between projects", choices=("node", "device", "none")),
)
_FIELDS = (
    Option("--flavor", "What its nodes are made of (name or id)", required=True),
    *_SIZES,
    Option("--image", "Image of its nodes"),
    Option("--network", "A network of its nodes; repeat for more", field="networks", many="list"),
    Option("--key-name", "Key pair for its nodes"),
    Option("--engine", "What runs tasks there", choices=("agent", "none")),
    Option(
        "--engine-option",
        "An option of the engine; repeat for more",
        pair,
        "engine_options",
        "KEY=VALUE",
        many="map",
    ),
)


class ListPools(ListNoun):
    """List the project's pools."""

    noun = "pool"
    items = "pools"
    columns = ("id", "name", "status", "min_nodes", "max_nodes", "target_nodes")
    long_columns = (
        "flavor",
        "autoscale",
        "wanted_nodes",
        "engine",
        "isolation",
        "shared_with",
        "waiting",
        "fault",
    )
    filters = (
        Option("--name", "With this name"),
        Option("--status", "With this status"),
        Option("--engine", "With this engine"),
        Option("--flavor", "Of the flavor with this id", field="flavor_id"),
    )
    example = "openstack gpu pool list --long"


class ShowPool(ShowNoun):
    """Show a pool."""

    noun = "pool"
    example = "openstack gpu pool show vision"


class CreatePool(CreateNoun):
    """Create a pool; its nodes are built from then on."""

    noun = "pool"
    fields = _FIELDS
    example = (
        "openstack gpu pool create vision --flavor a100x4 --min-nodes 2 --max-nodes 8 "
        "--autoscale true"
    )


class SetPool(SetNoun):
    """Change a pool's size, idle time or sharing."""

    noun = "pool"
    fields = (Option("--name", "A new name"), *_SIZES)
    example = "openstack gpu pool set vision --max-nodes 16"


class DeletePool(DeleteNoun):
    """Delete pools with their nodes."""

    noun = "pool"
    example = "openstack gpu pool delete vision"


class ExplainPool(ShowNoun):
    """Explain why a pool is not (yet) what it should be."""

    noun = "pool"
    example = "openstack gpu pool explain vision"

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Ask and show."""
        return self.shown(parsed_args, self.gpu.explain_pool(self.one(parsed_args.target)))
