# SPDX-License-Identifier: Apache-2.0
"""Who holds what a waiting job could use, soonest to end first."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator

from gpuservice.planner.holds import FOREVER
from gpuservice.planner.plan_types import Holder
from gpuservice.planner.snapshot import RunningGang
from gpuservice.planner.world import World

#: Holders named at most; the rest is left out.
MAX_HOLDERS = 10


class Holders:
    """Holders by (pools, GPU types), each worked out once."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._further_ends = world.running.by_end()
        self._known_ends: list[int] = []
        self._known: dict[tuple[tuple[str, ...], tuple[str, ...]], tuple[Holder, ...]] = {}

    def of(self, pools: tuple[str, ...], types: tuple[str, ...]) -> tuple[Holder, ...]:
        """Running jobs on GPUs of these types (none: any) in these pools."""
        key = (pools, types)
        if key not in self._known:
            self._known[key] = self._find(frozenset(pools), frozenset(types))
        return self._known[key]

    def _by_end(self) -> Iterator[int]:
        """Numbers of what runs, the soonest to end first; taken as far as anybody asks."""
        yield from self._known_ends
        for number in self._further_ends:
            self._known_ends.append(number)
            yield number

    def _find(self, pools: frozenset[str], types: frozenset[str]) -> tuple[Holder, ...]:
        """Jobs are looked at in the order in which their first gang ends; what of them ends last
        says when they are gone. So nobody is looked at who cannot be among the first any more."""
        found: list[tuple[tuple[float, str], Holder]] = []
        seen: set[str] = set()
        running = self._world.running
        for number in self._by_end():
            record, end = running.get(number), running.end(number)
            if record is None:
                continue
            job_id = record.gang.job_id
            if len(found) >= MAX_HOLDERS and end > found[MAX_HOLDERS - 1][0][0]:
                break
            if job_id not in seen:
                seen.add(job_id)
                holder = self._of_job(job_id, pools, types)
                if holder is not None:
                    insort(found, (_end(holder), holder), key=_key)
        return tuple(holder for _, holder in found[:MAX_HOLDERS])

    def _of_job(self, job_id: str, pools: frozenset[str], types: frozenset[str]) -> Holder | None:
        """What a job holds there; an array's elements are one holder."""
        held: Holder | None = None
        for gang_id in self._world.running.of_job[job_id]:
            record = self._world.gangs[gang_id]
            milli = 0
            for (pool, gpu_type), amount in record.by_pool.items():
                if pool in pools and (not types or gpu_type in types):
                    milli += amount
            if milli:
                gang = record.gang
                before = 0 if held is None else held.gpus_milli
                held = Holder(job_id, gang.project_id, before + milli, _later(held, gang))
        return held


def _later(before: Holder | None, gang: RunningGang) -> float | None:
    """When the last of a job's gangs ends; None when one has no limit."""
    if before is None:
        return gang.promised_end
    if before.ends_by is None or gang.promised_end is None:
        return None
    return max(before.ends_by, gang.promised_end)


def _end(holder: Holder) -> tuple[float, str]:
    return FOREVER if holder.ends_by is None else holder.ends_by, holder.job_id


def _key(found: tuple[tuple[float, str], Holder]) -> tuple[float, str]:
    return found[0]
