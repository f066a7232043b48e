# SPDX-License-Identifier: Apache-2.0
"""A workload played in real time: its jobs, what became of them, and the figures of that."""

from __future__ import annotations

import csv
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

#: A job of so many GPUs or more counts among the big ones.
BIG = 16
#: Shorter run times count as this one (seconds) in the bounded slowdown.
_LEAST_S = 10.0


@dataclass(frozen=True, slots=True)
class TimedJob:
    """When a team submits what: ``nodes`` times ``gpus`` for ``duration_s`` seconds."""

    number: int
    submit_s: float
    team: str
    nodes: int
    gpus: int
    duration_s: float

    @property
    def all_gpus(self) -> int:
        """GPUs on all its nodes."""
        return self.nodes * self.gpus


@dataclass(frozen=True, slots=True)
class Played:
    """A job that has ended; seconds since the beginning."""

    job: TimedJob
    submitted: float
    started: float
    ended: float

    @property
    def wait(self) -> float:
        """Seconds from submission to start."""
        return self.started - self.submitted


def read(path: Path) -> list[TimedJob]:
    """The rows of a CSV with the columns submit_s, team, nodes, gpus_per_node, duration_s."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            TimedJob(
                number,
                float(row["submit_s"]),
                row["team"],
                int(row["nodes"]),
                int(row["gpus_per_node"]),
                float(row["duration_s"]),
            )
            for number, row in enumerate(csv.DictReader(file))
        ]


def seeded(jobs: Sequence[TimedJob], seed: int) -> list[TimedJob]:
    """The same jobs in another order at the same moments; seed 0 leaves them as they are."""
    order = list(jobs)
    if seed:
        random.Random(seed).shuffle(order)
    moments = [job.submit_s for job in jobs]
    return [
        replace(job, number=number, submit_s=at)
        for number, (job, at) in enumerate(zip(order, moments, strict=True))
    ]


def percentile(values: Sequence[float], part: float) -> float:
    """The element at ``part`` of the sorted values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def score(played: Sequence[Played], gpus: int) -> dict[str, Any]:
    """The figures of a run on so many GPUs."""
    waits = [one.wait for one in played]
    big = [one.wait for one in played if one.job.all_gpus >= BIG]
    begin, end = min(one.submitted for one in played), max(one.ended for one in played)
    work = sum(one.job.all_gpus * one.job.duration_s for one in played)
    slowdowns = [
        max(1.0, (one.ended - one.submitted) / max(one.job.duration_s, _LEAST_S)) for one in played
    ]
    return {
        "jobs": len(played),
        "mean_wait_s": round(statistics.mean(waits), 2),
        "p50_wait_s": round(percentile(waits, 0.5), 2),
        "p90_wait_s": round(percentile(waits, 0.9), 2),
        "max_wait_s": round(max(waits), 2),
        "big_p90_wait_s": round(percentile(big, 0.9), 2) if big else None,
        "makespan_s": round(end - begin, 2),
        "utilisation": round(work / (gpus * (end - begin)), 4),
        "mean_bounded_slowdown": round(statistics.mean(slowdowns), 3),
        "mean_overhead_s": round(
            statistics.mean(one.ended - one.started - one.job.duration_s for one in played), 3
        ),
        "mean_wait_by_gpus": _means(played, lambda one: one.job.all_gpus),
        "mean_wait_by_team": _means(played, lambda one: one.job.team),
    }


def _means(played: Sequence[Played], key: Callable[[Played], Any]) -> dict[str, float]:
    groups: dict[Any, list[float]] = {}
    for one in played:
        groups.setdefault(key(one), []).append(one.wait)
    return {str(name): round(statistics.mean(groups[name]), 2) for name in sorted(groups)}


def marks(directory: Path, job: TimedJob, suffix: str) -> list[float]:
    """The moments that a job's processes wrote into their files (``NUMBER.RANK.suffix``)."""
    found = []
    for file in directory.glob(f"{job.number}.*.{suffix}"):
        text = file.read_text(encoding="ascii").strip()
        if text:
            found.append(float(text))
    return found


def script(directory: Path, job: TimedJob, rank: str) -> str:
    """A shell script that marks its start, sleeps, and marks its end."""
    stem = f"{directory}/{job.number}.{rank}"
    return (
        f"date +%s.%N > {stem}.start\nsleep {job.duration_s:g}\n"
        f"date +%s.%N > {stem}.tmp && mv {stem}.tmp {stem}.end\n"
    )
