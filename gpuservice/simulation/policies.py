# SPDX-License-Identifier: Apache-2.0
"""Policies by name, so that every comparison is one command."""

from __future__ import annotations

from dataclasses import dataclass

from gpuservice.planner.snapshot import Policy
from gpuservice.simulation.faults import InputFault


@dataclass(frozen=True, slots=True)
class Named:
    """A policy of the planner. ``oracle``: the planner is told how long jobs really run."""

    policy: Policy
    oracle: bool = False


_LINE = Policy(
    order="fifo",
    promises=0,
    small_promises=0,
    due=None,
    backfill_order="line",
    preempt=frozenset(),
)


def _like_line(**changes: object) -> Policy:
    fields = {name: getattr(_LINE, name) for name in Policy.__slots__}
    return Policy(**{**fields, **changes})


POLICIES = {
    "default": Named(Policy()),
    "fifo": Named(_like_line(backfill=False)),
    "skip": Named(_LINE),
    "easy": Named(_like_line(promises=1)),
    "conservative": Named(_like_line(promises=-1)),
    "sjf": Named(_like_line(backfill_order="short_first"), oracle=True),
    "multifactor": Named(_like_line(order="multifactor", promises=1)),
}


def named(name: str) -> Named:
    """The policy of a name.

    :raises InputFault: if there is none.
    """
    if name not in POLICIES:
        raise InputFault(f"--policy {name}: there is no such policy; one of {', '.join(POLICIES)}")
    return POLICIES[name]
