# SPDX-License-Identifier: Apache-2.0
"""Where artifacts and checkpoints are kept."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "artifacts"

OPTS: list[cfg.Opt] = [
    cfg.StrOpt("driver", default="file", help="The object store."),
    cfg.StrOpt(
        "directory",
        default="/var/lib/gpuservice/objects",
        help="The directory of the file store; shared by all API and conductor processes.",
    ),
    cfg.IntOpt("max_bytes", default=1073741824, min=1024, help="The largest artifact, in bytes."),
    cfg.IntOpt(
        "checkpoint_max_bytes",
        default=64 << 30,
        min=1024,
        help="The largest checkpoint of one rank, all its files together, in bytes. Of each "
        "task at most two complete ones and one that is being uploaded are kept.",
    ),
    cfg.IntOpt("max_per_task", default=1000, min=1, help="How many artifacts one task may keep."),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the group."""
    conf.register_opts(OPTS, group=GROUP)
