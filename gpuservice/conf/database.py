# SPDX-License-Identifier: Apache-2.0
"""oslo.db's options, under its own group."""

from __future__ import annotations

from oslo_config import cfg
from oslo_db import options

GROUP = "database"

OPTS: list[cfg.Opt] = list(options.database_opts)


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the group."""
    conf.register_opts(OPTS, group=GROUP)
