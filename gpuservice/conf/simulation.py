# SPDX-License-Identifier: Apache-2.0
"""Options of what-if simulations."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "simulation"

OPTS: list[cfg.Opt] = [
    cfg.IntOpt(
        "time_limit_s",
        default=1800,
        min=1,
        help="A simulation that takes longer is ended as failed, in seconds.",
    ),
    cfg.IntOpt(
        "memory_mib",
        default=2048,
        min=256,
        help="What the process of a simulation may use of memory, in MiB.",
    ),
    cfg.IntOpt(
        "max_jobs",
        default=20000,
        min=1,
        help="How many recorded jobs a simulation replays at most.",
    ),
    cfg.IntOpt(
        "max_kept",
        default=200,
        min=1,
        help="How many simulations are kept; to ask for more, delete some.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the group."""
    conf.register_opts(OPTS, group=GROUP)
