# SPDX-License-Identifier: Apache-2.0
"""The proving week: six teams on 64 GPUs, a host that dies, a deadline, users who ask too much.

    python -m benchmarks.scheduling.proving_week [--seeds 1 2 3 4 5] \
        [--output benchmarks/scheduling/results/proving_week.json]

Floors, for each seed: 90 % of standard jobs start within 10 minutes; interactive P90 wait below
60 seconds. That explanations are true all week is a test of its own
(``tests/simulation/test_proving_week.py``).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuservice.domain.jobspec import PRIORITIES
from gpuservice.planner.snapshot import Policy
from gpuservice.simulation.policies import POLICIES
from gpuservice.simulation.proving_week import (
    PARTS,
    POLICY,
    SEEDS,
    STANDARD_GPUS,
    WORLD,
    Week,
    cluster,
    is_standard,
    jobs,
)
from gpuservice.simulation.records import Record
from gpuservice.simulation.replay import Replay
from gpuservice.simulation.report import summary
from gpuservice.simulation.statistics import Spread, wait_of
from gpuservice.simulation.workload import WorkloadJob

SOON_S = 600.0
FLOOR, INTERACTIVE_FLOOR_S = 0.9, 60.0

Change = Callable[[Sequence[WorkloadJob]], Sequence[WorkloadJob]]


def as_they_are(jobs: Sequence[WorkloadJob]) -> Sequence[WorkloadJob]:
    """The recommended priorities."""
    return jobs


def training_first(jobs: Sequence[WorkloadJob]) -> Sequence[WorkloadJob]:
    """Training before evaluation and data."""
    other = {"training": PRIORITIES["normal"], "evaluation": PRIORITIES["low"]}
    other["data"] = PRIORITIES["low"]
    return [replace(job, priority=other.get(job.kind, job.priority)) for job in jobs]


def nothing_preempted(jobs: Sequence[WorkloadJob]) -> Sequence[WorkloadJob]:
    """No job may be preempted, so nothing is borrowed."""
    return [replace(job, preemptible=False) for job in jobs]


#: Name -> (policy, what is changed of the jobs).
SETTINGS: Mapping[str, tuple[Policy, Change]] = {
    "recommended": (POLICY, as_they_are),
    "training before evaluation": (POLICY, training_first),
    "no preemption": (replace(POLICY, preempt=frozenset()), as_they_are),
    "no borrowing": (POLICY, nothing_preempted),
    "easy": (POLICIES["easy"].policy, as_they_are),
}


def soon(records: Sequence[Record]) -> float:
    """The part that started within ten minutes; who never started did not."""
    waits = [wait_of(record) for record in records]
    return sum(1 for one in waits if one is not None and one <= SOON_S) / max(len(waits), 1)


def p90(records: Sequence[Record]) -> float:
    """P90 of waits (seconds)."""
    return Spread.of(one for record in records if (one := wait_of(record)) is not None).p90


def figures(seed: int, policy: Policy, change: Change) -> dict[str, Any]:
    """One week."""
    week = change(jobs(Week(seed)))
    began = time.process_time()
    made = Replay(cluster(), week, policy, WORLD).run()
    spent = time.process_time() - began
    standard = [record for record in made.records if is_standard(record.job)]
    gangs = [one for one in standard if one.job.milli >= 1000 * STANDARD_GPUS]
    told = summary(made)
    found: dict[str, Any] = {
        "jobs": len(week),
        "standard": len(standard),
        "soon": round(soon(standard), 4),
        "gangs_of_16": {"jobs": len(gangs), "soon": round(soon(gangs), 4), "p90_s": p90(gangs)},
        "preemptions": told["preemptions"],
        "node_failures": told["node_failures"],
        "never_started": told["never_started"],
        "utilisation": told["utilisation"],
        "statuses": told["statuses"],
        "passes": made.passes,
        "cpu_s": round(spent, 1),
    }
    for kind in PARTS:
        here = [record for record in made.records if record.job.kind == kind]
        right = [record for record in here if is_standard(record.job)]
        found[kind] = {"jobs": len(here), "soon": round(soon(right), 4), "p90_s": p90(here)}
    found["floors_held"] = (
        found["soon"] >= FLOOR and found["interactive"]["p90_s"] < INTERACTIVE_FLOOR_S
    )
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """The command; 1 if a floor was not held by the recommended settings."""
    parser = argparse.ArgumentParser(prog="benchmarks.scheduling.proving_week", description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="*", default=list(SEEDS))
    parser.add_argument("--settings", nargs="*", choices=tuple(SETTINGS), default=["recommended"])
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args(argv)
    found: dict[str, dict[str, Any]] = {}
    for name in arguments.settings:
        policy, change = SETTINGS[name]
        for seed in arguments.seeds:
            one = found.setdefault(name, {})[str(seed)] = figures(seed, policy, change)
            print(
                f"{name}, seed {seed}: {100 * one['soon']:.1f} % of {one['standard']}, "
                f"interactive P90 {one['interactive']['p90_s']:.0f} s, gangs {one['gangs_of_16']}, "
                f"{one['cpu_s']} s",
                file=sys.stderr,
                flush=True,
            )
    text = json.dumps(found, indent=1, sort_keys=True) + "\n"
    if arguments.output:
        arguments.output.write_text(text, encoding="utf-8")
    else:
        print(text)
    return int(not all(one["floors_held"] for one in found.get("recommended", {}).values()))


if __name__ == "__main__":
    sys.exit(main())
