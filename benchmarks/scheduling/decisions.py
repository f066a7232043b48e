# SPDX-License-Identifier: Apache-2.0
"""CPU time of scheduling decisions, from the kept state of a session and from a bare snapshot.

    python -m benchmarks.scheduling.decisions [--only CASE ...] [--repeat 5] [--scale] \
        [--plot scale.png] [--output benchmarks/scheduling/results/decisions.json]

Each case is the whole decision: order by tiers and fair shares, quotas of projects and queues,
GPU types, promises, verdicts for all that waits, and the reasons of the first hundred of the line.
Times are CPU milliseconds of this process, the best of ``--repeat``; ``ratio`` is the time over
that of a fixed numpy loop in the same run, which says how fast the machine was. ``--scale`` adds
the cost as a function of jobs, shapes, hosts and queues. Published figures of other systems
contain their API traffic: they are named for orientation, not as a like-for-like race.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.scheduling import decision_cases as cases
from gpuservice.planner.plan_types import Plan


@dataclass(frozen=True, slots=True)
class Case:
    """One measured decision: what prepares it, its floor and aim in ms where it has any, what
    others publish."""

    prepare: Callable[[], Callable[[], Plan]]
    floor_ms: float | None
    aim_ms: float | None
    peer: str


CASES: dict[str, Case] = {
    "fill_500x8_4000_mixed": Case(cases.fill, 300, 60, "KAI 398 s end to end"),
    "busy_128x8_10000_waiting": Case(
        cases.busy, 30, 6, "Slurm 54 ms main pass on one shape, 2.2 s backfill"
    ),
    "busy_1250x8_100000_waiting_first": Case(cases.huge_first, 500, 100, ""),
    "busy_1250x8_100000_waiting_one_end": Case(cases.huge_one_end, 50, 10, ""),
    "busy_1250x8_100000_waiting_kept": Case(cases.huge_kept, None, None, ""),
    "impossible_512_gang_500x8": Case(cases.impossible_gang, 10, 2, "KAI 250 s"),
    "reclaim_2000_gpus": Case(cases.reclaim, 300, 60, "KAI 102 s"),
    "rack_gang_512_of_4096": Case(cases.rack_gang, 50, 10, ""),
}


def calibration() -> float:
    """CPU milliseconds of a fixed piece of numpy work."""
    numbers = np.arange(200_000, dtype=np.float64)
    began = time.process_time()
    for _ in range(20):
        np.sort(np.sin(numbers))
    return 1000 * (time.process_time() - began)


def measure(case: Case, repeat: int) -> tuple[float, Plan]:
    """(best CPU milliseconds, the plan)."""
    best, made = float("inf"), Plan()
    for _ in range(repeat):
        decide = case.prepare()
        began = time.process_time()
        made = decide()
        best = min(best, 1000 * (time.process_time() - began))
    return best, made


def figures(names: Iterable[str], repeat: int) -> dict[str, dict[str, object]]:
    """Each case by name."""
    found: dict[str, dict[str, object]] = {}
    for name in names:
        case = CASES[name]
        unit = calibration()
        spent, made = measure(case, repeat)
        found[name] = {
            "ms": round(spent, 2),
            "ratio": round(spent / unit, 3),
            "floor_ms": case.floor_ms,
            "aim_ms": case.aim_ms,
            "starts": len(made.starts),
            "preemptions": len(made.preemptions),
            "promises": len(made.promises),
            "peer": case.peer,
        }
        bounds = f"floor {case.floor_ms:g}   aim {case.aim_ms:g}" if case.floor_ms else "no floor"
        print(f"{name:38} {spent:9.2f} ms   {bounds}")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write; 1 when a floor does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", nargs="*", choices=list(CASES), default=list(CASES))
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--scale", action="store_true")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--plot", type=Path, help="a PNG of what --scale measures")
    chosen = parser.parse_args(arguments)
    found: dict[str, object] = {"cases": figures(chosen.only, chosen.repeat)}
    if chosen.scale:
        scale = cases.scaling(measure_one)
        found["scale"] = scale
        if chosen.plot:
            plot(scale, chosen.plot)
    found["peak_memory_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    if chosen.output:
        chosen.output.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n")
    late = [
        name
        for name, one in found["cases"].items()  # type: ignore[attr-defined]
        if one["floor_ms"] is not None and one["ms"] > one["floor_ms"]
    ]
    print("peak memory", found["peak_memory_mib"], "MiB;", f"floors missed: {late or 'none'}")
    return 1 if late else 0


def plot(scale: Mapping[str, Sequence[tuple[int, float]]], path: Path) -> None:
    """Four curves: what a first pass over a busy cluster costs as one number grows."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(scale), figsize=(16, 4), layout="constrained")
    for panel, (name, points) in zip(axes, scale.items(), strict=True):
        panel.plot([number for number, _ in points], [spent for _, spent in points], "o-")
        panel.set_xlabel(name)
        panel.set_ylabel("CPU ms")
        panel.set_xlim(left=0)
        panel.set_ylim(bottom=0)
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def measure_one(decide: Callable[[], Plan]) -> float:
    """CPU milliseconds of one decision."""
    began = time.process_time()
    decide()
    return 1000 * (time.process_time() - began)


if __name__ == "__main__":
    sys.exit(main())
