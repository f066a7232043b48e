# SPDX-License-Identifier: Apache-2.0
"""Options of the scheduler."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "scheduler"

OPTS: list[cfg.Opt] = [
    cfg.FloatOpt(
        "interval_s", default=1.0, min=0.05, help="The longest time between two passes, in seconds."
    ),
    cfg.FloatOpt(
        "min_interval_s",
        default=0.05,
        min=0.0,
        help="The shortest time between two passes, in seconds: wake-ups within it share one.",
    ),
    cfg.StrOpt(
        "coordination_url",
        default=None,
        help="tooz URL that elects the leader; by default the database. Empty: every scheduler "
        "leads and the epoch decides.",
    ),
    cfg.IntOpt(
        "promises",
        default=1,
        min=-1,
        help="How many waiting jobs get a promised start (1: EASY, -1: conservative).",
    ),
    cfg.IntOpt(
        "counterfactuals",
        default=5,
        min=0,
        help="For how many waiting shapes per pass changes are tried that would start them now.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the group."""
    conf.register_opts(OPTS, group=GROUP)
