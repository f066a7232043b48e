# SPDX-License-Identifier: Apache-2.0
"""What the leading scheduler keeps of what has ended: decayed sums, and how far it has come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

#: The names of the two marks: of what was had, and of run times and their limits.
USAGE, LIMITS = "usage", "limits"

#: (queue, project, user)
UsageKey = tuple[str, str, str]
#: (queue, user, kind)
HistoryKey = tuple[str, str, str]
#: (when it ended, id): everything up to it is in the sums.
Mark = tuple[datetime, str]


@dataclass(frozen=True, slots=True)
class UsageSum:
    """Milli-GPU-seconds that a user had by a queue, as they were worth at ``as_of``."""

    key: UsageKey
    milli_gpu_seconds: float
    as_of: datetime


@dataclass(frozen=True, slots=True)
class EndedShare:
    """A share of a device that was given back."""

    id: str
    key: UsageKey
    milli: int
    began: datetime
    ended: datetime


@dataclass(frozen=True, slots=True)
class EndedRun:
    """An attempt that succeeded: how long it ran, and how long it might have."""

    id: str
    key: HistoryKey
    ended: datetime
    run_s: float
    limit_s: float


@dataclass(frozen=True, slots=True)
class HistorySum:
    """How many such attempts, their run times and their limits, as they were worth at ``as_of``."""

    key: HistoryKey
    runs: float
    run_s: float
    limit_s: float
    as_of: datetime


class UsageRepository(Protocol):
    """Sums with their marks. One writer: the scheduler that leads, under its epoch."""

    def mark(self, name: str) -> Mark | None:
        """How far the sums of this name go, or None before the first."""

    def set_mark(self, name: str, mark: Mark) -> None:
        """From here on."""

    def ended_shares(self, after: Mark, before: datetime, limit: int) -> list[EndedShare]:
        """What was given back after the mark and before that moment, in that order."""

    def sums(self, keys: Iterable[UsageKey]) -> list[UsageSum]:
        """The sums of some."""

    def save_sums(self, sums: Sequence[UsageSum]) -> None:
        """Insert or replace."""

    def forget_sums(self, before: datetime) -> None:
        """Drop sums of both kinds that nothing was added to since."""

    def usage(self, since: datetime) -> tuple[list[UsageSum], list[EndedShare]]:
        """Every sum, and what was given back after its mark (and ``since``): in one query."""

    def ended_runs(self, after: Mark, before: datetime, limit: int) -> list[EndedRun]:
        """Attempts that succeeded within a limit, ended after the mark and before that moment."""

    def histories(self, keys: Iterable[HistoryKey] | None = None) -> list[HistorySum]:
        """The sums of some, or all."""

    def save_histories(self, sums: Sequence[HistorySum]) -> None:
        """Insert or replace."""
