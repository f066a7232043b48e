# SPDX-License-Identifier: Apache-2.0
"""Whether queues that share a cluster lose anything by it, and whether their shares are right.

    python -m benchmarks.scheduling.sharing --philly philly_sia.csv.gz \
        [--alone ALONE.json] [--output benchmarks/scheduling/results/sharing.json]
    python -m benchmarks.scheduling.sharing --shares-only

First part: the virtual clusters of the Philly log, each alone on hosts of its own, and all together
as queues of one cohort whose nominal is what each had alone, with reclaim. A preempted job loses
10 minutes and is told 60 seconds before. Delay is end less submission less duration. A queue of at
least 100 jobs must not have a P90 delay above the one that it has alone by more than a tenth and
two minutes; the mean delay of all jobs must be at most half of what it is on split clusters.

Second part: saturated queues of unequal weights over ten half-lives; each must have its weight's
part of the GPU time within 5 %.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.scheduling.floors import Floor, at_most, status
from benchmarks.scheduling.shares import WEIGHTS, measure_shares
from benchmarks.scheduling.virtual_clusters import (
    Delays,
    a_part_not_preemptible,
    alone,
    by_queue,
    gpu_hours_lost,
    hosts_of,
    read_jobs,
    together,
)
from gpuservice.planner.snapshot import Policy
from gpuservice.simulation.policies import POLICIES
from gpuservice.simulation.records import Record
from gpuservice.simulation.replay import World
from gpuservice.simulation.workload import WorkloadJob

#: Queues with fewer jobs are reported, not judged.
JUDGED_JOBS = 100
TOLERANCE, TOLERANCE_H = 1.1, 120 / 3600
#: Of the split clusters' mean delay; and how far a share may be from its weight's part.
MEAN_FLOOR, SHARE_FLOOR = 0.5, 0.05
GRACE_S, LOST_S = 60.0, 600.0

#: How a virtual cluster is run alone: the policy that the comparison names, and our default.
ALONE = ("skip", "default")

#: Whatever is borrowed goes when its owner needs it, however young and however often.
SHARED = replace(
    POLICIES["default"].policy,
    preempt=frozenset({"reclaim"}),
    protected_s=0.0,
    max_preemptions=1_000_000,
)

#: Variants of the shared run: name -> (policy, one job in so many is not preemptible).
VARIANTS: Mapping[str, tuple[Policy, int]] = {
    "reclaim": (SHARED, 0),
    "reclaim, skip inside": (
        replace(
            POLICIES["skip"].policy,
            order="fair",
            preempt=SHARED.preempt,
            protected_s=0.0,
            max_preemptions=1_000_000,
        ),
        0,
    ),
    "reclaim, a third not preemptible": (SHARED, 3),
    "no reclaim": (replace(SHARED, preempt=frozenset()), 0),
}

Figures = dict[str, Any]


def split_figures(
    groups: Mapping[str, Sequence[WorkloadJob]], hosts: Mapping[str, int]
) -> dict[str, Figures]:
    """queue -> policy -> delays, each queue on hosts of its own."""
    found: dict[str, Figures] = {}
    for queue, jobs in reversed(list(groups.items())):
        for name in ALONE:
            began = time.process_time()
            made = alone(jobs, hosts[queue], POLICIES[name].policy)
            found.setdefault(queue, {})[name] = asdict(Delays.of(made.records))
            spent = time.process_time() - began
            print(f"{queue} alone, {name}: {spent:.0f} s", file=sys.stderr, flush=True)
    return found


def shared_figures(
    jobs: Sequence[WorkloadJob], hosts: Mapping[str, int], policy: Policy, split: Mapping[str, Any]
) -> Figures:
    """What sharing made of every queue, and how it stands to being alone."""
    began = time.process_time()
    made = together(jobs, hosts, policy, World(grace_s=GRACE_S, lost_s=LOST_S))
    spent = time.process_time() - began
    by: dict[str, list[Record]] = {queue: [] for queue in hosts}
    for record in made.records:
        by[record.job.queue].append(record)
    queues = {queue: Delays.of(records) for queue, records in by.items()}
    count = len(made.records)
    mean = sum(one.mean_h * one.jobs for one in queues.values()) / count
    figures: Figures = {
        "queues": {queue: asdict(one) for queue, one in queues.items()},
        "mean_h": mean,
        "preemptions": sum(one.preemptions for one in queues.values()),
        "gpu_hours_lost": gpu_hours_lost(made.records),
        "never_started": sum(one.never for one in queues.values()),
        "passes": made.passes,
        "cpu_s": round(spent, 1),
    }
    for name in ALONE:
        before = {queue: split[queue][name] for queue in hosts}
        split_mean = sum(one["mean_h"] * one["jobs"] for one in before.values()) / count
        figures[f"beside {name}"] = {
            "split_mean_h": split_mean,
            "ratio": mean / split_mean if split_mean else 0.0,
            "above": [
                queue
                for queue, one in queues.items()
                if one.jobs >= JUDGED_JOBS
                and one.p90_h > TOLERANCE * before[queue]["p90_h"] + TOLERANCE_H
            ],
            "above_at_all": [
                queue
                for queue, one in queues.items()
                if one.jobs >= JUDGED_JOBS and one.p90_h > before[queue]["p90_h"] + 1 / 3600
            ],
        }
    return figures


def study(arguments: argparse.Namespace) -> Figures:
    """Split and shared clusters."""
    jobs = read_jobs(arguments.philly, arguments.first)
    groups = by_queue(jobs)
    hosts = {queue: hosts_of(some) for queue, some in groups.items()}
    if arguments.alone and arguments.alone.exists():
        split = json.loads(arguments.alone.read_text(encoding="utf-8"))
    else:
        split = split_figures(groups, hosts)
        if arguments.alone:
            arguments.alone.write_text(_text(split), encoding="utf-8")
    found: Figures = {"hosts": hosts, "alone": split, "shared": {}}
    for name in arguments.variants or tuple(VARIANTS):
        policy, one_in = VARIANTS[name]
        here = a_part_not_preemptible(jobs, one_in) if one_in else jobs
        figures = found["shared"][name] = shared_figures(here, hosts, policy, split)
        beside = figures["beside skip"]
        print(
            f"{name}: mean {figures['mean_h']:.2f} h ({beside['ratio']:.2f} x), above: "
            f"{beside['above'] or 'none'}, {figures['cpu_s']} s",
            file=sys.stderr,
            flush=True,
        )
    return found


def floors(found: Figures) -> Iterator[Floor]:
    """What was measured beside what it must reach."""
    for case, shares in found["shares"].items():
        apart = max(abs(shares[queue] - 1) for queue in WEIGHTS)
        yield at_most(f"shares, {case}: farthest from its part", round(apart, 3), SHARE_FLOOR)
    for name, figures in found.get("shared", {}).items():
        if name != "reclaim":
            continue
        beside = figures["beside skip"]
        yield at_most(f"{name}: queues above what they have alone", len(beside["above"]), 0)
        yield at_most(f"{name}: mean delay over the split clusters'", beside["ratio"], MEAN_FLOOR)


def _text(found: Any) -> str:
    return json.dumps(_rounded(found), indent=1, sort_keys=True) + "\n"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list) else value


def main(argv: Sequence[str] | None = None) -> int:
    """The command; 1 when a floor does not hold."""
    parser = argparse.ArgumentParser(prog="benchmarks.scheduling.sharing", description=__doc__)
    parser.add_argument("--philly", type=Path)
    parser.add_argument("--alone", type=Path, help="keep the split runs here, and take them there")
    parser.add_argument("--first", type=int, help="no more than that many jobs")
    parser.add_argument("--variants", nargs="*", choices=tuple(VARIANTS))
    parser.add_argument("--shares-only", action="store_true")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args(argv)
    if not arguments.philly and not arguments.shares_only:
        parser.error("--philly or --shares-only")
    found: Figures = {"shares": measure_shares()}
    if not arguments.shares_only:
        found.update(study(arguments))
    text = _text(found)
    if arguments.output:
        arguments.output.write_text(text, encoding="utf-8")
    else:
        print(text)
    return status(floors(found))


if __name__ == "__main__":
    sys.exit(main())
