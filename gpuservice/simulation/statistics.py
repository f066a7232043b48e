# SPDX-License-Identifier: Apache-2.0
"""Figures of a replay, as the studies count them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuservice.simulation.records import Record

#: GPUs from which on a gang is called big.
BIG_GPUS = 16


def percentile(ordered: Sequence[float], share: float) -> float:
    """The element at ``share`` x n of a sorted list, nothing between two of them."""
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and percentiles of some times."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Of any number of them (all 0 of none)."""
        ordered = sorted(values)
        if not ordered:
            return cls(0, 0.0, 0.0, 0.0, 0.0, 0.0)
        return cls(
            len(ordered),
            sum(ordered) / len(ordered),
            percentile(ordered, 0.5),
            percentile(ordered, 0.9),
            percentile(ordered, 0.99),
            ordered[-1],
        )


def wait_of(record: Record) -> float | None:
    """From submission to the first start; None: it never started."""
    return record.attempts[0].start_s - record.job.since_s if record.attempts else None


def completion_of(record: Record) -> float | None:
    """From submission to the last end; None: it has not ended, or never ran."""
    if record.ended_s is None or not record.attempts:
        return None
    return record.ended_s - record.job.since_s


def delay_of(record: Record) -> float | None:
    """Completion less the time it needs: first wait, later waits and work done twice."""
    completion = completion_of(record)
    if completion is None:
        return None
    needs = record.job.duration_s
    return completion - (needs if record.limit is None else min(needs, record.limit))


def is_big(record: Record) -> bool:
    """Whether the job is a big gang."""
    return record.job.milli >= 1000 * BIG_GPUS


@dataclass(frozen=True, slots=True)
class Waiting:
    """What acceptance of waiting is judged by, in seconds."""

    mean_completion: float
    wait: Spread
    big_wait: Spread

    @classmethod
    def of(cls, records: Sequence[Record]) -> Waiting:
        """Of those jobs that started."""
        ran = [record for record in records if record.attempts]
        return cls(
            Spread.of(one for r in ran if (one := completion_of(r)) is not None).mean,
            Spread.of(one for r in ran if (one := wait_of(r)) is not None),
            Spread.of(one for r in ran if is_big(r) and (one := wait_of(r)) is not None),
        )


def score(ours: Waiting, skip: Waiting, easy: Waiting) -> float:
    """Half of mean completion against skip's, half of the big gangs' P90 wait against EASY's; the
    mean alone where there are no big gangs to speak of (or none that waits)."""
    mean = ours.mean_completion / skip.mean_completion
    if easy.big_wait.p90 <= 0:
        return mean
    return 0.5 * mean + 0.5 * ours.big_wait.p90 / easy.big_wait.p90
