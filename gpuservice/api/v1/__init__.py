# SPDX-License-Identifier: Apache-2.0
"""Version 1: one file a group of nouns; a verb is schema, guard, one service call, view."""

from __future__ import annotations

from gpuservice.api.endpoint import Endpoint


def endpoints() -> list[Endpoint]:
    """Every endpoint of version 1."""
    from gpuservice.api.v1 import (
        accounts,
        agent,
        catalogue,
        cohorts,
        jobs,
        pools,
        processes,
        simulations,
    )

    modules = (catalogue, processes, pools, cohorts, accounts, jobs, simulations, agent)
    return [row for module in modules for row in module.TABLE.rows]
