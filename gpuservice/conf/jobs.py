# SPDX-License-Identifier: Apache-2.0
"""Options of jobs."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "jobs"

OPTS: list[cfg.Opt] = [
    cfg.IntOpt("max_array", default=10000, min=1, help="The largest array."),
    cfg.IntOpt(
        "start_timeout_s",
        default=300,
        min=1,
        help="Within this time every rank of an attempt must have started; the node of a "
        "silent one counts as failed. Seconds.",
    ),
    cfg.StrOpt(
        "port_range",
        default="20000-29999",
        help="Ports for MASTER_PORT, unique per address while in use.",
    ),
    cfg.IntOpt(
        "default_max_runtime_s",
        default=None,
        min=1,
        help="The limit of jobs whose queue has no limit of its own, in seconds; none if unset.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the group."""
    conf.register_opts(OPTS, group=GROUP)


def ports(conf: cfg.ConfigOpts) -> tuple[int, ...]:
    """The ports of ``[jobs] port_range``."""
    low, _, high = conf.jobs.port_range.partition("-")
    return tuple(range(int(low), int(high) + 1))
