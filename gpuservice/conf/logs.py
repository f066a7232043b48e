# SPDX-License-Identifier: Apache-2.0
"""Where the logs of tasks are kept."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "logs"

OPTS: list[cfg.Opt] = [
    cfg.StrOpt("driver", default="file", help="The log store."),
    cfg.StrOpt(
        "directory",
        default="/var/lib/gpuservice/logs",
        help="The directory of the file store; shared by all API processes.",
    ),
    cfg.IntOpt(
        "max_bytes",
        default=67108864,
        min=1024,
        help="The largest log of one stream of one task, in bytes.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the group."""
    conf.register_opts(OPTS, group=GROUP)
