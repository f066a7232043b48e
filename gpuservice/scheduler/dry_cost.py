# SPDX-License-Identifier: Apache-2.0
"""What a job would cost if it ran to its limit: GPU time, and money where flavors have prices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gpuservice.domain.inventory import Flavor, Pool
from gpuservice.domain.work import Job
from gpuservice.planner.snapshot import PoolState, Request, TaskPlacement
from gpuservice.scheduler.collect import Collected

_HOUR_S = 3600


class Costs:
    """Prices by pool: minor currency units for a GPU and an hour."""

    def __init__(self, pools: Mapping[str, Pool], flavors: Mapping[str, Flavor]) -> None:
        self._prices: dict[str, float] = {}
        for pool in pools.values():
            flavor = flavors.get(pool.flavor_id)
            if flavor is not None and flavor.price_per_hour is not None and flavor.gpu_count:
                self._prices[pool.id] = flavor.price_per_hour / flavor.gpu_count

    def of(
        self,
        job: Job,
        request: Request,
        candidates: Sequence[PoolState],
        places: Sequence[TaskPlacement],
        collected: Collected,
    ) -> dict[str, Any]:
        """``gpu_milli_seconds`` by the limit (null without one), and the ``price`` for it: where
        ``places`` are not known, between the cheapest and the dearest pool that it may run on."""
        if job.max_runtime_s is None:
            return {"gpu_milli_seconds": None, "price": None}
        seconds = job.max_runtime_s * job.elements
        if places:
            held: dict[str, int] = {}
            for task in places:
                pool_id = collected.nodes[task.node_id].pool_id
                held[pool_id] = held.get(pool_id, 0) + sum(milli for _, milli in task.devices)
            total = sum(held.values())
            prices = [self._sum(held)] if held.keys() <= self._prices.keys() else []
        else:
            each = {pool.id: _milli(request, pool) for pool in candidates}
            total = max(each.values(), default=request.count * request.gpu_milli)
            prices = [self._sum({pool: milli}) for pool, milli in each.items() if pool in self]
        return {
            "gpu_milli_seconds": total * seconds,
            "price": {
                "least": _whole(min(prices) * seconds),
                "most": _whole(max(prices) * seconds),
            }
            if prices and total
            else None,
        }

    def __contains__(self, pool_id: object) -> bool:
        return pool_id in self._prices

    def _sum(self, held: Mapping[str, int]) -> float:
        """Minor units a second."""
        return sum(self._prices[pool] * milli for pool, milli in held.items()) / 1000 / _HOUR_S


def _milli(request: Request, pool: PoolState) -> int:
    """Milli-GPUs of the whole gang on a pool."""
    each = request.gpu_milli
    if request.gpu_memory_mib is not None:
        memory = max(pool.template.gpu_memory_mib, 1)
        each = min(1000, math.ceil(1000 * request.gpu_memory_mib / memory))
    return each * request.count


def _whole(price: float) -> int:
    """A begun unit counts (what floats add to a whole number does not)."""
    return math.ceil(round(price, 6))
