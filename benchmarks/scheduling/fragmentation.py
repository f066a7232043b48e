# SPDX-License-Identifier: Apache-2.0
"""What share of a cluster's GPUs each packing policy gives out, beside published figures.

    python -m benchmarks.scheduling.fragmentation --nodes NODES.csv LISTS... \
        [--published fgd_published_summary.csv] [--output benchmarks/scheduling/results/NAME.json]

LISTS are pod lists of the openb trace (.csv, .csv.gz) or directories of them. A policy is the
name of one of the packing mode with options behind it: ``default:known=arrivals`` learns what is
asked for from the requests so far, ``default+queue:hold=true`` keeps what did not fit waiting;
``planner`` is the planner that the service runs (it learns from what waits and runs).
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmarks.scheduling.floors import Floor, at_least, at_most, status
from benchmarks.scheduling.planner_packing import by_planner
from gpuservice.simulation.openb import ListError, Node, Pod, read_nodes, read_pods
from gpuservice.simulation.packing import run_packing

RESULTS = Path(__file__).parent / "results"
#: Ours knowing the list as FGD does, ours learning it, and the published six.
ONE_BY_ONE = (
    "default",
    "default:known=arrivals",
    "fgd",
    "bestfit",
    "packing",
    "clustering",
    "dotprod",
    "random",
)
#: The planner itself, as the service runs it, request by request.
PLANNER = "planner"
WITH_QUEUE = ("default+queue", "default+queue:hold=true")
#: Names in the published summary.
PUBLISHED = {
    "06-FGD": "fgd",
    "05-BestFit": "bestfit",
    "04-GpuPacking": "packing",
    "03-GpuClustering": "clustering",
    "02-DotProd": "dotprod",
    "01-Random": "random",
}
FIRST_SEED = 42
#: Allocation in % on the list ``default``; and how far our ``fgd`` may be from the published one.
DEFAULT_FLOORS = {"default": 95.7, "default+queue": 96.0}
SAME_AS_PUBLISHED = 0.3


def find_lists(given: Iterable[Path]) -> dict[str, Path]:
    """Name -> file of each pod list; what all names begin with is left out of them."""
    files: list[Path] = []
    for path in given:
        files += sorted(path.glob("*pod_list*.csv*")) if path.is_dir() else [path]
    if not files:
        raise SystemExit("no pod list there")
    return {
        path.name.split(".csv")[0].partition("pod_list_")[2] or path.stem: path for path in files
    }


def read_published(path: Path | None) -> dict[tuple[str, str], float]:
    """(list, policy) -> mean allocation in % at 100 % arrived."""
    if path is None:
        return {}
    with path.open(encoding="utf-8", newline="") as text:
        return {
            (row["workload"].partition("pod_list_")[2], PUBLISHED[row["policy"]]): float(
                row["mean"]
            )
            for row in csv.DictReader(text)
            if row["metric"] == "alloc_pct" and row["arrived_pct"] == "100"
        }


@lru_cache(1)
def _nodes(path: Path) -> list[Node]:
    return read_nodes(path)


@lru_cache(2)
def _pods(path: Path) -> list[Pod]:
    return read_pods(path)


def one_run(nodes: Path, pods: Path, policy: str, seed: int, inflation: float) -> dict[str, Any]:
    """The summary of one run, with its seconds."""
    words, _, options = policy.partition(":")
    name, _, queue = words.partition("+")
    chosen = dict(pair.split("=", 1) for pair in options.split(",") if pair)
    hosts, requests = _nodes(nodes), _pods(pods)
    began = time.process_time()
    if policy == PLANNER:
        summary = by_planner(hosts, requests, seed, inflation)
        return {**summary, "cpu_s": time.process_time() - began}
    result = run_packing(
        hosts,
        requests,
        policy=name,
        seed=seed,
        inflation=inflation,
        queue=queue == "queue",
        options=chosen,
    )
    return {**result["summary"], "cpu_s": time.process_time() - began}


def figures(runs: Sequence[dict[str, Any]], published: float | None) -> dict[str, Any]:
    """Mean and spread over the seeds."""
    allocation = [run["allocation_ratio"]["100"] for run in runs]
    if None in allocation:
        raise ValueError("of a list too small, or with less inflation, no request comes at 100 %")
    mean = statistics.fmean(allocation)
    found: dict[str, Any] = {
        "allocation_at_100": round(mean, 3),
        "sd": round(statistics.stdev(allocation), 3) if len(runs) > 1 else 0.0,
        "held": round(statistics.fmean(run["held"] for run in runs), 1),
        "cpu_s": round(statistics.fmean(run["cpu_s"] for run in runs), 2),
    }
    for measure in ("allocation_ratio", "fragmentation_ratio", "fragments_of_all"):
        found[measure] = {
            point: round(statistics.fmean(run[measure][point] for run in runs), 3)
            for point, value in runs[0][measure].items()
            if value is not None and all(run[measure][point] is not None for run in runs)
        }
    if published is not None:
        found["published"] = published
    return found


def measure(
    args: argparse.Namespace,
    policies: Sequence[str],
    published: dict[tuple[str, str], float],
) -> dict[str, dict[str, Any]]:
    """list -> policy -> figures; written down after each, as all of it takes a while."""
    settings = {
        "seeds": [FIRST_SEED, FIRST_SEED + args.seeds - 1],
        "inflation": args.inflation,
        "nodes": args.nodes.name,
    }
    lists = find_lists(args.lists)
    found = kept(args.output, settings) if args.resume else {}
    args.output.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(args.processes) as pool:
        begun = {
            (name, policy): [
                pool.submit(one_run, args.nodes, lists[name], policy, seed, args.inflation)
                for seed in range(FIRST_SEED, FIRST_SEED + args.seeds)
            ]
            for policy in policies
            for name in lists
            if policy not in found.get(name, {})
        }
        for (name, policy), runs in begun.items():
            told = published.get((name, policy.partition(":")[0]))
            found.setdefault(name, {})[policy] = figures([run.result() for run in runs], told)
            reached = found[name][policy]["allocation_at_100"]
            print(f"{name:12} {policy:32} {reached:7.2f}", file=sys.stderr, flush=True)
            text = json.dumps({"settings": settings, "lists": found}, indent=1)
            args.output.write_text(text + "\n", encoding="utf-8")
    return {name: found[name] for name in lists}


def kept(path: Path, settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What an earlier run with the same settings wrote down."""
    if not path.exists():
        return {}
    earlier = json.loads(path.read_text(encoding="utf-8"))
    if earlier["settings"] != settings:
        raise ValueError(f"{path} is of other settings: {earlier['settings']}")
    lists: dict[str, dict[str, Any]] = earlier["lists"]
    return lists


def table(
    found: dict[str, dict[str, Any]],
    policies: Sequence[str],
    published: dict[tuple[str, str], float],
) -> str:
    """Markdown: ours less the published FGD in brackets, the others less their published figure."""
    known = [name for name in PUBLISHED.values() if any(key[1] == name for key in published)]
    heads = ["list", *(f"{name}, published" for name in known), *policies]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for name, by_policy in found.items():
        cells = [
            f"{published[name, one]:.2f}" if (name, one) in published else "-" for one in known
        ]
        for policy in policies:
            mine = by_policy[policy]["allocation_at_100"]
            plain = policy.partition(":")[0]
            rival = published.get((name, plain if plain in PUBLISHED.values() else "fgd"))
            cells.append(f"{mine:.2f}" + (f" ({mine - rival:+.2f})" if rival is not None else ""))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    cells = ["-" for _ in known]
    for policy in policies:
        plain = policy.partition(":")[0]
        gains = [
            by_policy[policy]["allocation_at_100"] - rival
            for name, by_policy in found.items()
            if (rival := published.get((name, plain if plain in PUBLISHED.values() else "fgd")))
        ]
        cells.append(f"{statistics.fmean(gains):+.2f}" if gains else "-")
    lines.append(f"| *mean difference* | {' | '.join(cells)} |")
    return "\n".join(lines)


def floors(
    found: dict[str, dict[str, Any]], published: dict[tuple[str, str], float]
) -> Iterable[Floor]:
    """What was measured beside what it must reach."""
    for name, by_policy in found.items():
        reached = {policy: one["allocation_at_100"] for policy, one in by_policy.items()}
        if name == "default":
            for policy in DEFAULT_FLOORS.keys() & reached.keys():
                yield at_least(f"{name}, {policy}", reached[policy], DEFAULT_FLOORS[policy])
        rival = published.get((name, "fgd"))
        if rival is None:
            continue
        if "default" in reached:
            yield at_least(f"{name}, default over published FGD", reached["default"], rival)
        if "fgd" in reached:
            apart = round(abs(reached["fgd"] - rival), 3)
            yield at_most(f"{name}, fgd and published FGD apart", apart, SAME_AS_PUBLISHED)


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scheduling.fragmentation", description=__doc__.split("\n")[0]
    )
    parser.add_argument("lists", nargs="+", type=Path, help="pod lists, or directories of them")
    parser.add_argument("--nodes", required=True, type=Path, help="node list")
    parser.add_argument("--published", type=Path, help="summary of published figures")
    parser.add_argument(
        "--policy",
        action="append",
        help=f"may be repeated; default: {' '.join(ONE_BY_ONE + WITH_QUEUE)}",
    )
    parser.add_argument("--seeds", type=int, default=10, help="runs of each (default: 10)")
    parser.add_argument("--inflation", type=float, default=1.3, help="default: 1.3")
    parser.add_argument("--processes", type=int, default=2, choices=(1, 2), help="default: 2")
    parser.add_argument(
        "--output", type=Path, default=RESULTS / "fragmentation.json", help="default: %(default)s"
    )
    parser.add_argument(
        "--resume", action="store_true", help="measure what the output does not have yet"
    )
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Measure, write the JSON, print the table; 1 when a floor does not hold."""
    args = parse(words)
    policies = args.policy or [*ONE_BY_ONE, *WITH_QUEUE]
    published = read_published(args.published)
    try:
        found = measure(args, policies, published)
    except (ListError, ValueError) as fault:
        raise SystemExit(str(fault)) from fault
    print(table(found, policies, published))
    return status(floors(found, published))


if __name__ == "__main__":
    sys.exit(main())
