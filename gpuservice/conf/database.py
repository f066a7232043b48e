# SPDX-License-Identifier: Apache-2.0
"""oslo.db's options, under its own group."""

from __future__ import annotations

import copy

from oslo_config import cfg
from oslo_db import options

GROUP = "database"

OPTS: list[cfg.Opt] = copy.deepcopy(options.database_opts)
#: Each request holds one connection; oslo.db's own 5 would open and close the rest again and again.
cfg.set_defaults(OPTS, max_pool_size=20)


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the group."""
    conf.register_opts(OPTS, group=GROUP)
