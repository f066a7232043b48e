# SPDX-License-Identifier: Apache-2.0
"""Decayed GPU usage, one number a user: never summed up again from history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import exp, log

from gpuservice.planner.snapshot import UsageKey


class DecayedUsage(Mapping[UsageKey, float]):
    """Milli-GPU-seconds that each (queue, project, user) had, what runs counted up to ``now``.

    What a key had at its last change, and what it has held since, give its value at any later
    moment: u' = held - u ln 2 / half-life. So a moment costs nothing until a value is asked for,
    and the value does not depend on how often it was.
    """

    def __init__(self, half_life_s: float, had: Mapping[UsageKey, float] | None = None) -> None:
        self._decay = log(2) / half_life_s
        self._kept: dict[UsageKey, tuple[float, float, float]] = {  # value, since, held
            key: (value, 0.0, 0.0) for key, value in (had or {}).items()
        }
        self._now = 0.0

    def at(self, now: float) -> DecayedUsage:
        """The same, as of ``now``."""
        self._now = now
        return self

    def hold(self, key: UsageKey, milli: int, now: float) -> None:
        """From ``now`` on the key holds so much more (or less)."""
        self._now = now
        held = self._kept[key][2] if key in self._kept else 0.0
        self._kept[key] = (self.get(key, 0.0), now, held + milli)

    def __getitem__(self, key: UsageKey) -> float:
        value, since, held = self._kept[key]
        if self._now == since:
            return value
        left = exp(-self._decay * (self._now - since))
        return value * left + held * (1.0 - left) / self._decay

    def __iter__(self) -> Iterator[UsageKey]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)
