# SPDX-License-Identifier: Apache-2.0
"""The numbers that the proving week is drawn from, worked out anew from the logs.

    python -m benchmarks.scheduling.fits --itp cluster0*.csv.gz --philly philly_sia.csv.gz \
        --openb openb_pod_list_default.csv.gz --swf wagap-2013.swf.gz
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.scheduling.virtual_clusters import open_trace

#: GPUs of training jobs that are fitted together.
SIZES = ((1, 1), (2, 4), (8, 8), (16, 16), (32, 1 << 30))
#: Submissions of one virtual cluster and size closer than this are one run (seconds).
RUN_GAP_S = 30.0


def lognormal(values: Iterable[float]) -> dict[str, float]:
    """Mean and deviation of the logarithms."""
    logs = [math.log(value) for value in values if value > 0]
    if not logs:
        return {"count": 0}
    return {
        "count": len(logs),
        "mean": round(statistics.mean(logs), 2),
        "deviation": round(statistics.pstdev(logs), 2),
    }


def rows_of(path: Path) -> list[dict[str, str]]:
    """A CSV file with a header."""
    with open_trace(path) as file:
        return list(csv.DictReader(file))


def training(paths: Sequence[Path]) -> dict[str, Any]:
    """Durations by GPUs, and how many jobs are of which size."""
    rows = [row for path in sorted(paths) for row in rows_of(path)]
    found: dict[str, Any] = {"wave": wave([float(row["submission_time"]) for row in rows])}
    for low, high in SIZES:
        here = [float(row["duration"]) for row in rows if low <= int(row["num_gpu"]) <= high]
        found[str(low)] = {**lognormal(here), "part": round(len(here) / len(rows), 4)}
    return found


def wave(times: Sequence[float]) -> float:
    """How high the daily wave of submissions is, over their mean."""
    turns = [time / 86400 * math.tau for time in times]
    even = sum(map(math.cos, turns)) / len(turns)
    odd = sum(map(math.sin, turns)) / len(turns)
    return round(2 * math.hypot(even, odd), 2)


def rhythm(path: Path) -> dict[str, Any]:
    """Days of the week, the daily wave, and runs of submissions."""
    rows = rows_of(path)
    stamps = [datetime.fromisoformat(row["timestamp"]).replace(tzinfo=UTC) for row in rows]
    days = Counter(stamp.weekday() for stamp in stamps)
    times = [stamp.timestamp() for stamp in stamps]
    lengths = runs(rows, times)
    return {
        "days": [round(days[day] * 7 / len(rows), 2) for day in range(7)],
        "wave": wave(times),
        "alone": round(sum(length == 1 for length in lengths) / len(lengths), 2),
        "mean_run": round(statistics.mean(lengths), 2),
    }


def runs(rows: Sequence[dict[str, str]], times: Sequence[float]) -> list[int]:
    """Lengths of runs of like submissions shortly after another."""
    found: list[int] = []
    last: dict[tuple[str, str], tuple[float, int]] = {}
    for time, row in sorted(zip(times, rows, strict=True), key=lambda pair: pair[0]):
        key = (row["cluster"], row["num_gpus"])
        before, length = last.get(key, (float("-inf"), 0))
        if time - before > RUN_GAP_S and length:
            found.append(length)
            length = 0
        last[key] = (time, length + 1)
    return found + [length for _, length in last.values()]


def pods(path: Path) -> dict[str, Any]:
    """Run times of pods: latency-sensitive ones with a GPU, shares of one, none."""
    ran: dict[str, list[float]] = {"interactive": [], "evaluation": [], "data": []}
    for row in rows_of(path):
        if not row["scheduled_time"] or not row["deletion_time"]:
            continue
        seconds = float(row["deletion_time"]) - float(row["scheduled_time"])
        if row["qos"] == "LS" and int(row["num_gpu"]):
            ran["interactive"].append(seconds)
        if 0 < int(row["gpu_milli"]) < 1000:
            ran["evaluation"].append(seconds)
        if not int(row["num_gpu"]):
            ran["data"].append(seconds)
    return {kind: lognormal(seconds) for kind, seconds in ran.items()}


def limits(path: Path) -> dict[str, float]:
    """How much too long time limits are: median and quarters of limit over run time."""
    with open_trace(path) as file:
        fields = [line.split() for line in file]
    over = sorted(
        float(one[8]) / float(one[3]) for one in fields if len(one) >= 18 and float(one[3]) > 0
    )
    return {name: round(over[int(part * len(over))], 2) for name, part in _QUARTERS.items()}


_QUARTERS = {"quarter": 0.25, "median": 0.5, "three_quarters": 0.75}


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="benchmarks.scheduling.fits", description=__doc__)
    parser.add_argument("--itp", type=Path, nargs="+")
    parser.add_argument("--philly", type=Path)
    parser.add_argument("--openb", type=Path)
    parser.add_argument("--swf", type=Path)
    arguments = parser.parse_args(argv)
    found: dict[str, Any] = {}
    if arguments.itp:
        found["training"] = training(arguments.itp)
    if arguments.philly:
        found["rhythm"] = rhythm(arguments.philly)
    if arguments.openb:
        found["pods"] = pods(arguments.openb)
    if arguments.swf:
        found["limits"] = limits(arguments.swf)
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
