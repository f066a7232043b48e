# SPDX-License-Identifier: Apache-2.0
"""What a study must reach, told one line each; a study that misses one ends with status 1."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Floor:
    """A figure and the bound that it must keep: at most ``bound``, or at least."""

    what: str
    value: float
    bound: float
    at_least: bool = False

    @property
    def held(self) -> bool:
        """Whether the figure keeps its bound."""
        return self.value >= self.bound if self.at_least else self.value <= self.bound


def at_most(what: str, value: float, bound: float) -> Floor:
    """A figure that must not be larger."""
    return Floor(what, value, bound)


def at_least(what: str, value: float, bound: float) -> Floor:
    """A figure that must not be smaller."""
    return Floor(what, value, bound, at_least=True)


def status(floors: Iterable[Floor]) -> int:
    """Tell each on stderr; the exit status of the study."""
    missed = 0
    for floor in floors:
        missed += not floor.held
        print(
            f"floor {'held  ' if floor.held else 'MISSED'} {floor.what}: {floor.value:g} "
            f"({'at least' if floor.at_least else 'at most'} {floor.bound:g})",
            file=sys.stderr,
        )
    return int(missed > 0)
