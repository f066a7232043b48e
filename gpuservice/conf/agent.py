# SPDX-License-Identifier: Apache-2.0
"""The server's side of the agents on nodes."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "agent"

OPTS: list[cfg.Opt] = [
    cfg.IntOpt(
        "lease_s",
        default=60,
        min=2,
        help="A node that was not heard of for this long may be given up; its own supervisors "
        "end its tasks then. Seconds.",
    ),
    cfg.FloatOpt(
        "interval_s", default=5.0, min=0.05, help="The interval at which agents sync, in seconds."
    ),
    cfg.IntOpt(
        "bootstrap_ttl_s",
        default=1800,
        min=10,
        help="How long the one-time token of a new node lives, in seconds.",
    ),
    cfg.IntOpt(
        "orphan_after_s",
        default=300,
        min=1,
        help="After this long without an agent a task is ended by its supervisor, in seconds.",
    ),
    cfg.ListOpt(
        "file_roots",
        default=[],
        help="Directories below which file:// inputs and outputs may lie. Set for the API too, it "
        "refuses others when a job is submitted; the node refuses them in any case.",
    ),
    cfg.ListOpt(
        "denied_networks",
        default=[],
        help="Networks (CIDR) that tasks data must not be fetched from.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the group."""
    conf.register_opts(OPTS, group=GROUP)
