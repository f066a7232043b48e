# SPDX-License-Identifier: Apache-2.0
"""What the queues of a cohort may use of each other's GPUs, counted anew for every question.

Of a GPU type with a nominal amount a queue keeps ``nominal - lending limit`` for itself; what it
uses beyond that comes out of what the cohort lends. A type without a nominal amount has no bound
and is neither lent nor borrowed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from gpuservice.planner.snapshot import PendingJob, QueueState


class Sharing:
    """Use by queue and GPU type, in milli-GPUs."""

    def __init__(self, queues: Iterable[QueueState]) -> None:
        self.queues = {queue.id: queue for queue in queues}
        self.use: Counter[tuple[str, str]] = Counter()
        self.firm: Counter[tuple[str, str]] = Counter()  # of it, what is not preemptible

    def copy(self) -> Sharing:
        """The same, to go on with on its own."""
        other = Sharing(self.queues.values())
        other.use, other.firm = self.use.copy(), self.firm.copy()
        return other

    def take(
        self, queue_id: str, amounts: Mapping[str, int], preemptible: bool, sign: int = 1
    ) -> None:
        """Enter (or with -1 take back) what a gang uses."""
        for gpu_type, milli in amounts.items():
            self.use[queue_id, gpu_type] += sign * milli
            self.firm[queue_id, gpu_type] += 0 if preemptible else sign * milli

    def guaranteed(self, queue: QueueState, gpu_type: str) -> int:
        """What a queue never lends."""
        nominal = queue.nominal.get(gpu_type, 0)
        return nominal - min(nominal, queue.lending_limit.get(gpu_type, nominal))

    def charge(self, queue: QueueState, gpu_type: str, more: int = 0) -> int:
        """What a queue has of the cohort's common part."""
        if gpu_type not in queue.nominal:
            return 0
        use = self.use[queue.id, gpu_type] + more
        return max(0, use - self.guaranteed(queue, gpu_type))

    def over(self, queue_id: str, gpu_type: str) -> int:
        """How much a queue uses beyond its nominal amount."""
        queue = self.queues.get(queue_id)
        if queue is None or gpu_type not in queue.nominal:
            return 0
        return self.use[queue_id, gpu_type] - queue.nominal[gpu_type]

    def allows(self, job: PendingJob, amounts: Mapping[str, int]) -> bool:
        """Whether a queue may have this much more for the job."""
        queue = self.queues.get(job.queue_id)
        return queue is not None and all(
            self._allows(queue, job, gpu_type, milli)
            for gpu_type, milli in amounts.items()
            if milli
        )

    def _allows(self, queue: QueueState, job: PendingJob, gpu_type: str, milli: int) -> bool:
        nominal = queue.nominal.get(gpu_type)
        if nominal is None:
            return True
        use = self.use[queue.id, gpu_type] + milli
        if queue.cohort is None:
            return use <= nominal
        if not job.preemptible and self.firm[queue.id, gpu_type] + milli > nominal:
            return False
        if gpu_type in queue.borrowing_limit and use > nominal + queue.borrowing_limit[gpu_type]:
            return False
        if self.charge(queue, gpu_type, milli) == self.charge(queue, gpu_type):
            return True
        members = [one for one in self.queues.values() if one.cohort == queue.cohort]
        charged = sum(self.charge(one, gpu_type, milli if one is queue else 0) for one in members)
        lent = sum(
            one.nominal[gpu_type] - self.guaranteed(one, gpu_type)
            for one in members
            if gpu_type in one.nominal
        )
        return charged <= lent
