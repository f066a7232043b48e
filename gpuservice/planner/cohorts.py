# SPDX-License-Identifier: Apache-2.0
"""What queues may use: nominal, what they lend and what they borrow in their cohort.

Of each GPU type a queue is guaranteed ``nominal - lending_limit`` (at least nothing) whatever
others do. What it uses beyond that is charged to the cohort, whose queues put in the rest of
their nominal; beyond its nominal it borrows, up to ``borrowing_limit``. (The rules of Kueue's
cohorts, whose flavors are GPU types here.)

What is not preemptible is never borrowed: together it fits the queue's nominal. What else the
queue runs may go beyond, and whatever is borrowed can be given back when its owner needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpuservice.planner.capacity import PLENTY
from gpuservice.planner.snapshot import QueueState

#: Milli-GPUs by GPU type.
ByType = Mapping[str, int]


@dataclass(slots=True)
class _Common:
    """What the queues of a cohort have together of one GPU type."""

    total: int = 0
    charged: int = 0


@dataclass(slots=True)
class _Share:
    """One queue's part of one GPU type. ``firm``: of what is used, what is not preemptible."""

    nominal: int
    guaranteed: int
    most: int
    common: _Common | None
    used: int = 0
    firm: int = 0

    @property
    def charge(self) -> int:
        return max(0, self.used - self.guaranteed)


@dataclass(slots=True)
class QueueQuotas:
    """Use and limits of every queue, counting what this very plan gives."""

    queues: Mapping[str, QueueState]
    _shares: dict[tuple[str, str], _Share] = field(default_factory=dict)
    _commons: dict[tuple[str, str], _Common] = field(default_factory=dict)

    @classmethod
    def of(cls, queues: Iterable[QueueState]) -> QueueQuotas:
        """Quotas of queues of which nothing is used."""
        quotas = cls({queue.id: queue for queue in queues})
        for queue in quotas.queues.values():
            for gpu_type, nominal in queue.nominal.items():
                lent = min(nominal, queue.lending_limit.get(gpu_type, nominal))
                common = None
                if queue.cohort is None:
                    lent, most = 0, nominal
                else:
                    most = nominal + queue.borrowing_limit.get(gpu_type, PLENTY)
                    common = quotas._commons.setdefault((queue.cohort, gpu_type), _Common())
                    common.total += lent
                quotas._shares[queue.id, gpu_type] = _Share(nominal, nominal - lent, most, common)
        return quotas

    @property
    def limited(self) -> bool:
        """Whether any queue has a nominal."""
        return bool(self._shares)

    def add(self, queue_id: str, used: ByType, preemptible: bool, sign: int = 1) -> None:
        """Count milli-GPUs that a queue takes (or, with -1, gives back)."""
        for gpu_type, milli in used.items():
            share = self._shares.get((queue_id, gpu_type))
            if share is None:
                continue
            before = share.charge
            share.used += sign * milli
            if not preemptible:
                share.firm += sign * milli
            if share.common is not None:
                share.common.charged += share.charge - before

    def room(self, queue_id: str, gpu_type: str, preemptible: bool) -> int:
        """Milli-GPUs that the queue may still take; what is not preemptible never borrows."""
        share = self._shares.get((queue_id, gpu_type))
        if share is None:
            return PLENTY
        room = min(share.most - share.used, _lent(share))
        if not preemptible:
            room = min(room, share.nominal - share.firm)
        return max(room, 0)

    def owed(self, queue_id: str, gpu_type: str) -> int:
        """Milli-GPUs within the queue's nominal that it does not use: what it may reclaim."""
        share = self._shares.get((queue_id, gpu_type))
        return 0 if share is None else max(share.nominal - share.used, 0)

    def borrowed(self, queue_id: str, gpu_type: str) -> int:
        """Milli-GPUs that the queue uses beyond its nominal."""
        share = self._shares.get((queue_id, gpu_type))
        return 0 if share is None else max(share.used - share.nominal, 0)

    def facts(self, queue_id: str, gpu_type: str) -> dict[str, int | None]:
        """The numbers of a queue's share, in milli-GPUs."""
        share = self._shares.get((queue_id, gpu_type))
        if share is None:
            return {}
        common = share.common
        return {
            "nominal": share.nominal,
            "used": share.used,
            "used_not_preemptible": share.firm,
            "may_use": None if share.most >= PLENTY else share.most,
            "left_in_cohort": None if common is None else max(common.total - common.charged, 0),
        }


def _lent(share: _Share) -> int:
    """What is left of a queue's guarantee and of the cohort."""
    common = share.common
    if common is None:
        return share.nominal - share.used
    return max(0, share.guaranteed - share.used) + common.total - common.charged
