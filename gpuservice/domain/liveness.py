# SPDX-License-Identifier: Apache-2.0
"""Which of the service's own processes live, told from their heartbeats."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from gpuservice.domain.work import ServiceRecord

#: Seconds between two heartbeats of a process.
BEAT_S = 10.0
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
