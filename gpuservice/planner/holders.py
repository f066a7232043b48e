# SPDX-License-Identifier: Apache-2.0
"""Who holds what a waiting job could use, soonest to end first."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest

from gpuservice.planner.holds import FOREVER
from gpuservice.planner.plan_types import Holder
from gpuservice.planner.snapshot import RunningGang
from gpuservice.planner.world import World

#: Holders named at most; the rest is left out.
MAX_HOLDERS = 10

#: Milli-GPUs by (pool, GPU type).
Use = dict[tuple[str, str], int]


class Holders:
    """Holders by (pools, GPU types), each worked out once."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[tuple[tuple[str, ...], tuple[str, ...]], tuple[Holder, ...]] = {}

    def of(self, pools: tuple[str, ...], types: tuple[str, ...]) -> tuple[Holder, ...]:
        """Running jobs on GPUs of these types (none: any) in these pools."""
        key = (pools, types)
        if key not in self._known:
            self._known[key] = self._find(frozenset(pools), frozenset(types))
        return self._known[key]

    def _find(self, pools: frozenset[str], types: frozenset[str]) -> tuple[Holder, ...]:
        held: dict[str, Holder] = {}
        for gang, use in self._gangs():
            milli = sum(
                amount
                for (pool, gpu_type), amount in use.items()
                if pool in pools and (not types or gpu_type in types)
            )
            if not milli:
                continue
            before = held.get(gang.job_id)
            if before is not None:  # an array's elements are one holder
                milli += before.gpus_milli
            held[gang.job_id] = Holder(gang.job_id, gang.project_id, milli, _later(before, gang))
        return tuple(nsmallest(MAX_HOLDERS, held.values(), key=_end))

    def _gangs(self) -> Iterable[tuple[RunningGang, Use]]:
        return ((record.gang, record.by_pool) for record in self._world.gangs.values())


def _later(before: Holder | None, gang: RunningGang) -> float | None:
    """When the last of a job's gangs ends; None when one has no limit."""
    if before is None:
        return gang.promised_end
    if before.ends_by is None or gang.promised_end is None:
        return None
    return max(before.ends_by, gang.promised_end)


def _end(holder: Holder) -> tuple[float, str]:
    return FOREVER if holder.ends_by is None else holder.ends_by, holder.job_id
