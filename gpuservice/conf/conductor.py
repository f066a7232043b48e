# SPDX-License-Identifier: Apache-2.0
"""Options of the conductor."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "conductor"

OPTS: list[cfg.Opt] = [
    cfg.FloatOpt(
        "interval_s", default=1.0, min=0.05, help="The longest time between two passes, in seconds."
    ),
    cfg.IntOpt("batch", default=200, min=1, help="Attempts handled in one transaction."),
    cfg.IntOpt(
        "loss_margin_s",
        default=30,
        min=0,
        help="Added to the lease before a silent node is given up, in seconds: in this time "
        "its supervisors notice the lease's end and kill what runs there.",
    ),
    cfg.IntOpt(
        "build_timeout_s",
        default=1800,
        min=1,
        help="Within this time a node must have registered, in seconds.",
    ),
    cfg.IntOpt(
        "build_attempts",
        default=3,
        min=1,
        help="How often a node is built before its fault is final.",
    ),
    cfg.IntOpt(
        "inventory_interval_s",
        default=30,
        min=1,
        help="How often hosts and devices are read from the cloud, in seconds.",
    ),
    cfg.IntOpt(
        "cloud_threads",
        default=16,
        min=1,
        max=256,
        help="How many nodes are built, repaired or deleted at the same time: that many calls of "
        "the cloud may be under way.",
    ),
    cfg.IntOpt(
        "claim_s",
        default=60,
        min=1,
        help="How long a lease on a piece of work lasts without renewal, in seconds.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the group."""
    conf.register_opts(OPTS, group=GROUP)
