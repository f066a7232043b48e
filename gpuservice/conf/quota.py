# SPDX-License-Identifier: Apache-2.0
"""Limits of projects that have none of their own; -1 is unlimited."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "quota"

OPTS: list[cfg.Opt] = [
    cfg.StrOpt("driver", default="database", help="Where limits come from."),
    cfg.IntOpt("default_gpus", default=-1, min=-1, help="GPUs held."),
    cfg.IntOpt("default_pools", default=-1, min=-1, help="Pools."),
    cfg.IntOpt("default_nodes", default=-1, min=-1, help="Nodes of pools."),
    cfg.IntOpt(
        "default_jobs_queued", default=-1, min=-1, help="Waiting jobs; each array element counts."
    ),
    cfg.IntOpt(
        "default_jobs_running", default=-1, min=-1, help="Running jobs; each array element counts."
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the group."""
    conf.register_opts(OPTS, group=GROUP)


def defaults(conf: cfg.ConfigOpts) -> dict[str, int]:
    """Default limits by quota name, in stored units (GPUs in milli)."""
    group = conf.quota
    gpus = group.default_gpus
    return {
        "gpus": gpus * 1000 if gpus >= 0 else gpus,
        "pools": group.default_pools,
        "nodes": group.default_nodes,
        "jobs:queued": group.default_jobs_queued,
        "jobs:running": group.default_jobs_running,
    }
