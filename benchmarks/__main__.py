# SPDX-License-Identifier: Apache-2.0
"""Measure the service on the PostgreSQL and RabbitMQ that tools/with_services.py started."""

from __future__ import annotations

import argparse
import json
import platform
import statistics
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from benchmarks import measurements, plan_time
from benchmarks.measurements import QUICK, Figures, Sizes
from benchmarks.world import World, running

#: name -> (runner of the agents, measurement)
MEASUREMENTS: dict[str, tuple[str, Callable[[World, Sizes], Figures]]] = {
    "submissions": ("nofork", measurements.submissions),
    "array": ("nofork", measurements.array),
    "finished-nofork": ("nofork", measurements.finished),
    "explain": ("nofork", measurements.explain),
    "list": ("nofork", measurements.listing),
    "finished-processes": ("process", measurements.finished),
}
RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    model = ""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "cpu": model,
        "cores": psutil.cpu_count(),
        "system": platform.platform(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "python": platform.python_version(),
        "load_before": psutil.getloadavg()[0],
    }


def median(runs: Sequence[Any]) -> Any:
    """The median of each number of equal shapes."""
    if isinstance(runs[0], dict):
        return {name: median([run[name] for run in runs]) for name in runs[0]}
    return round(statistics.median(runs), 2)


def measure(names: Sequence[str], sizes: Sizes, keep: Path | None) -> dict[str, Any]:
    """Every named measurement, each runner on a service of its own."""
    results: dict[str, Any] = {}
    for runner in ("nofork", "process"):
        chosen = [name for name in names if MEASUREMENTS[name][0] == runner]
        if not chosen:
            continue
        with running(runner, _directory(keep, runner)) as world:
            for name in chosen:
                runs = [MEASUREMENTS[name][1](world, sizes) for _ in range(sizes.repeats)]
                results[name] = {"median": median(runs), "runs": runs}
                print(name, json.dumps(results[name]["median"]), flush=True)
    return results


def _directory(keep: Path | None, runner: str) -> Path | None:
    if keep is None:
        return None
    (keep / runner).mkdir(parents=True)
    return keep / runner


def main() -> None:
    """Measure, print, and keep the results as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small numbers, once each")
    parser.add_argument(
        "--only", default=",".join((*MEASUREMENTS, "plan")), help="comma-separated measurements"
    )
    parser.add_argument("--output", type=Path, help="the JSON file (default: results/DATE.json)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave logs in this directory")
    given = parser.parse_args()
    names = given.only.split(",")
    about = machine()
    sizes = QUICK if given.quick else Sizes()
    results = measure([name for name in names if name != "plan"], sizes, given.keep)
    if "plan" in names:
        results["plan"] = plan_time.figures()
    now = datetime.now(UTC)
    output = given.output or RESULTS / f"{now:%Y-%m-%d}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(
        json.dumps(
            {
                "at": now.isoformat(timespec="seconds"),
                "machine": about,
                "quick": given.quick,
                "results": results,
            },
            indent=1,
        )
        + "\n",
        encoding="utf-8",
    )
    print(f"results in {output}")


if __name__ == "__main__":
    main()
