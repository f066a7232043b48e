# SPDX-License-Identifier: Apache-2.0
"""The cloud driver."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "cloud"

OPTS: list[cfg.Opt] = [
    cfg.StrOpt(
        "driver",
        default="simulated",
        help="The cloud driver: simulated, or local (the NVIDIA cards of this machine).",
    ),
    cfg.FloatOpt(
        "settle_s",
        default=5.0,
        min=0.0,
        help="How long after the last try to create a node the cloud is looked at before it is "
        "tried again, in seconds.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the group."""
    conf.register_opts(OPTS, group=GROUP)
