# SPDX-License-Identifier: Apache-2.0
"""What is still to come, and when: a heap, and the arrivals, which are in order already."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from heapq import heapify, heappop, heappush

from gpuservice.simulation.cluster import Cluster
from gpuservice.simulation.records import Record
from gpuservice.simulation.workload import moment


class Kind(IntEnum):
    """What happens; of one moment in this order: what ends has ended before its node goes."""

    END = 0
    NODE_AWAY = 1
    NODE_BACK = 2
    DEADLINE = 3
    ARRIVAL = 4
    DUE = 5
    UNPROTECTED = 6
    WINDOW = 7


_NEVER = (float("inf"), Kind.WINDOW, 0, "")

Live = Callable[[Kind, str, float], bool]


class Agenda:
    """Everything that has a time."""

    def __init__(self, records: Sequence[Record], cluster: Cluster) -> None:
        self._arrivals = [(record.job.submit_s, record.job_id) for record in records]
        self._next = 0
        self._heap: list[tuple[float, Kind, int, str]] = []
        self._count = 0
        away = _merged(cluster)
        for at, back, node in away:
            self.add(at, Kind.NODE_AWAY, node)
            self.add(back, Kind.NODE_BACK, node)
        for one in cluster.reservations:
            self.add(moment(one.starts_at), Kind.WINDOW, one.id)
            self.add(moment(one.ends_at), Kind.WINDOW, one.id)
        for record in records:
            if record.job.deadline_s is not None:
                self.add(record.job.deadline_s, Kind.DEADLINE, record.job_id)
            if record.due is not None and record.due > record.job.submit_s:
                self.add(record.due, Kind.DUE, record.job_id)
        heapify(self._heap)

    def add(self, at: float, kind: Kind, what: str) -> None:
        """Something will happen."""
        self._count += 1
        heappush(self._heap, (at, kind, self._count, what))

    def next(self, live: Live) -> float | None:
        """The next moment at which anything happens; None: nothing ever will."""
        heap = self._heap
        while heap and not live(heap[0][1], heap[0][3], heap[0][0]):
            heappop(heap)
        arrival = self._arrivals[self._next][0] if self._next < len(self._arrivals) else None
        if not heap:
            return arrival
        return heap[0][0] if arrival is None else min(arrival, heap[0][0])

    def of(self, now: float, live: Live) -> Iterator[tuple[Kind, str]]:
        """Everything of this moment, what comes of it at once included."""
        heap = self._heap
        while True:
            at, kind, _, what = heap[0] if heap else _NEVER
            arrives = self._next < len(self._arrivals) and self._arrivals[self._next][0] <= now
            if at <= now and (not arrives or kind < Kind.ARRIVAL):
                heappop(heap)
                if live(kind, what, at):
                    yield kind, what
                continue
            if not arrives:
                return
            self._next += 1
            yield Kind.ARRIVAL, self._arrivals[self._next - 1][1]


def _merged(cluster: Cluster) -> list[tuple[float, float, str]]:
    """Outages by node, those that touch or overlap as one."""
    spans: list[tuple[float, float, str]] = []
    for one in sorted(cluster.outages, key=lambda outage: (outage.node, outage.at_s)):
        at, back = moment(one.at_s), moment(one.at_s + one.for_s)
        if spans and spans[-1][2] == one.node and at <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(back, spans[-1][1]), one.node)
        else:
            spans.append((at, back, one.node))
    return spans
