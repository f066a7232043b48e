# SPDX-License-Identifier: Apache-2.0
"""Which of the service's own processes live, told from their heartbeats."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from gpuservice.domain.work import ServiceRecord

#: Seconds between two heartbeats of a process.
BEAT_S = 10.0
#: Rows of processes that were not seen for so long (seconds) say nothing any more.
FORGOTTEN_S = 24 * 3600.0
#: Programs that nodes talk to.
HEARING = ("gpuservice-api", "gpuservice-all-in-one")
#: A process that has missed two heartbeats, and a little, is taken for dead, seconds.
_DEAF_AFTER_S = 2.5 * BEAT_S


def last_heard(services: Iterable[ServiceRecord]) -> datetime | None:
    """When a process that could hear nodes was last known to live; null: none ever."""
    return max((one.seen_at for one in services if one.binary in HEARING), default=None)


def deaf(heard: datetime | None, now: datetime) -> bool:
    """Whether no process can hear nodes."""
    return heard is None or now - heard > timedelta(seconds=_DEAF_AFTER_S)


def heard_for(services: Iterable[ServiceRecord], since: datetime) -> timedelta:
    """For how long, after ``since``, some process could hear nodes: the union of the times from
    each one's start to its last heartbeat."""
    times = sorted(
        (max(one.started_at, since), one.seen_at)
        for one in services
        if one.binary in HEARING and one.seen_at > since
    )
    total, end = timedelta(0), since
    for begin, last in times:
        if last > end:
            total += last - max(begin, end)
            end = last
    return total
