# SPDX-License-Identifier: Apache-2.0
"""How the cluster stood after each moment, as rows."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO


@dataclass(frozen=True, slots=True)
class Row:
    """After everything of ``time_s``: elements that wait, gangs that run, milli-GPUs."""

    time_s: float
    waiting: int
    running: int
    used_milli: int
    free_milli: int
    by_project: dict[str, int]


class Timeline:
    """One row a moment at which anything changed; what projects hold is kept as changes."""

    def __init__(self) -> None:
        self._held: dict[str, int] = {}
        self._changed: dict[str, int] = {}
        self._used = 0
        self._rows: list[tuple[float, int, int, int, int, dict[str, int]]] = []

    @property
    def projects(self) -> list[str]:
        """Every project that ever held anything."""
        return sorted(self._held)

    def hold(self, project: str, milli: int) -> None:
        """A project holds so much more (or less)."""
        self._used += milli
        self._held[project] = self._changed[project] = self._held.get(project, 0) + milli

    def note(self, now: float, waiting: int, running: int, free_milli: int) -> None:
        """A row of this moment (the last one, if there are several)."""
        if self._rows and self._rows[-1][0] == now:
            self._changed = {**self._rows.pop()[5], **self._changed}
        self._rows.append((now, waiting, running, self._used, free_milli, self._changed))
        self._changed = {}

    def rows(self) -> Iterator[Row]:
        """The rows, in order."""
        held: dict[str, int] = {}
        for time_s, waiting, running, used, free, changed in self._rows:
            held.update(changed)
            yield Row(time_s, waiting, running, used, free, dict(held))

    def write(self, file: IO[str]) -> None:
        """As CSV: one column for each project behind the sums."""
        projects = self.projects
        out = csv.writer(file, lineterminator="\n")
        out.writerow(
            ["time_s", "waiting", "running", "used_milli", "free_milli"]
            + [f"used_milli:{name}" for name in projects]
        )
        for row in self.rows():
            time_s = int(row.time_s) if row.time_s == int(row.time_s) else row.time_s
            out.writerow(
                [time_s, row.waiting, row.running, row.used_milli, row.free_milli]
                + [row.by_project.get(name, 0) for name in projects]
            )
