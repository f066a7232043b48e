# SPDX-License-Identifier: Apache-2.0
"""Names and units of quota: GPU amounts are milli inside and GPUs outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuservice.domain.work import QuotaState

UNLIMITED = -1

#: The names that every project has; ``gpus:<type>`` come on top, one a GPU type.
NAMES = ("gpus", "pools", "nodes", "jobs:queued", "jobs:running")


def in_milli(name: str) -> bool:
    """Whether amounts of this name are kept in milli-GPUs."""
    return name == "gpus" or name.startswith("gpus:")


def shown(name: str, amount: int) -> int | float:
    """An amount as users see it: GPUs instead of milli-GPUs (whole ones as integers)."""
    if amount == UNLIMITED or not in_milli(name):
        return amount
    return amount // 1000 if amount % 1000 == 0 else amount / 1000


def kept(name: str, amount: int) -> int:
    """A limit as it is stored."""
    return amount * 1000 if in_milli(name) and amount != UNLIMITED else amount


def of_nodes(gpu_type: str, gpu_count: int, nodes: int = 1) -> dict[str, int]:
    """What ``nodes`` nodes of a flavor count, from ``requested`` to ``deleted``."""
    milli = 1000 * gpu_count * nodes
    return {"nodes": nodes, "gpus": milli, f"gpus:{gpu_type}": milli}


def room(states: Sequence[QuotaState], each: Mapping[str, int]) -> tuple[int | None, str | None]:
    """How many more of something that takes ``each`` fit (None: no bound), and the name of the
    limit that bounds it."""
    bounds = [
        (max(0, state.limit - state.in_use) // each[state.name], state.name)
        for state in states
        if state.limit != UNLIMITED and each.get(state.name)
    ]
    return min(bounds) if bounds else (None, None)


def exceeded_alone(asked: Mapping[str, int], limits: Mapping[str, int]) -> str | None:
    """The first name that a request exceeds even with nothing else in use, or None."""
    for name in sorted(asked):
        limit = limits.get(name, UNLIMITED)
        if limit != UNLIMITED and asked[name] > limit:
            return name
    return None
