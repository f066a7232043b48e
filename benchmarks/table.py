# SPDX-License-Identifier: Apache-2.0
"""Results as a table for people: ``python -m benchmarks.table FILE``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

#: Whose CPU seconds are named, in this order.
PROGRAMS = ("api", "scheduler", "conductor", "agents", "postgresql", "rabbitmq", "client")

#: What stands in a row that is judged: measurement -> (figure, words, floor, aim).
GOALS: dict[str, tuple[str, str, float, float]] = {
    "submissions": ("per_s", "submissions/s, 1 API process, 8 connections", 150, 400),
    "finished-processes": ("per_s", "finished jobs/s, a process each", 40, 67),
    "finished-nofork": ("per_s", "finished jobs/s, no-fork runner", 100, 300),
}
_LATENCIES = {
    "explain": "first byte of `explain`, 10,000 jobs queued",
    "first": "first page of 100,000 ended jobs",
    "status": "the same, one status",
    "none": "the same, a status that none has",
    "deep": "a page in the middle",
    "show": "one job of them",
}


def _cpu(figures: dict[str, Any], count: int | None) -> str:
    used = figures.get("cpu_s", {})
    if not count:
        return ", ".join(f"{name} {used[name]}" for name in PROGRAMS if used.get(name))
    return ", ".join(
        f"{name} {1000 * used[name] / count:.1f}" for name in PROGRAMS if used.get(name)
    )


def lines(found: dict[str, Any], jobs: int) -> list[str]:
    """The rows of a results file; ``jobs``: how many each throughput run had."""
    results = {name: entry["median"] for name, entry in found["results"].items() if name != "plan"}
    rows = [
        "| what | median of 3 | floor | aim | CPU ms a job |",
        "|---|---|---|---|---|",
    ]
    for name, (figure, words, floor, aim) in GOALS.items():
        if name in results:
            one = results[name]
            rows.append(
                f"| {words} | **{one[figure]}** | {floor} | {aim} | {_cpu(one, jobs)};"
                f" machine {1000 * one['cpu_s']['machine'] / jobs:.1f} |"
            )
    if "array" in results:
        rows.append(
            f"| an array of 5,000 accepted | **{results['array']['accepted_ms']} ms** | 50 ms | | |"
        )
    latencies = {"explain": results.get("explain"), **results.get("list", {})}
    rows.extend(
        f"| {words} | **{one['p50_ms']} ms**, p99 {one['p99_ms']} ms | | | |"
        for name, words in _LATENCIES.items()
        if (one := latencies.get(name))
    )
    for name, entry in found["results"].get("plan", {}).items():
        told = ", ".join(f"{key} {value}" for key, value in entry.items())
        rows.append(f"| plan: {name} | {told} | | | |")
    return rows


def main() -> None:
    """Print the table of a results file."""
    found = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    machine = found["machine"]
    print(
        f"{found['at']}: {machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, "
        f"{machine['system']}, Python {machine['python']}.\n"
    )
    print("\n".join(lines(found, 400 if found["quick"] else 3000)))


if __name__ == "__main__":
    main()
