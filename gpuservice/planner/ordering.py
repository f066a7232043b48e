# SPDX-License-Identifier: Apache-2.0
"""The order of the line: priority tier, then age, then submission."""

from __future__ import annotations

from collections.abc import Iterable

from gpuservice.planner.snapshot import PendingJob


def line(pending: Iterable[PendingJob]) -> list[PendingJob]:
    """Waiting jobs, first in line first."""
    return sorted(pending, key=lambda job: (-job.priority, job.queued_at, job.sequence, job.job_id))


class Positions:
    """Ranks among waiting jobs that share a candidate pool."""

    def __init__(self) -> None:
        self._seen: dict[frozenset[str], int] = {}

    def next(self, pool_ids: Iterable[str]) -> int:
        """The position of the next waiting job in line, which looks at these pools."""
        pools = frozenset(pool_ids)
        ahead = sum(count for other, count in self._seen.items() if other & pools)
        self._seen[pools] = self._seen.get(pools, 0) + 1
        return ahead + 1
