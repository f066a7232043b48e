# SPDX-License-Identifier: Apache-2.0
"""How long jobs wait under each policy, on logs of real clusters, by the product's simulator.

    python -m benchmarks.scheduling.waiting cluster02.csv.gz:14 cluster03.csv.gz:21 ... \
        [--policy NAME ...] [--first 4000] [--study tradeoff] [--output FILE.json]

Each trace is given with the hosts of the cluster that it runs on. The score of a policy is half of
its mean completion over that of ``skip`` and half of its big gangs' P90 wait over that of ``easy``
(the mean alone where no big gang waits under EASY).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from gpuservice.simulation import options, reading
from gpuservice.simulation.cluster import from_spec
from gpuservice.simulation.policies import named
from gpuservice.simulation.replay import Replay, World
from gpuservice.simulation.statistics import Waiting
from gpuservice.simulation.workload import Reading

RESULTS = Path(__file__).parent / "results"
HOUR_S = 3600.0
HOST_GPUS = 8

#: name -> (policy of the simulator, settings).
_PREEMPTING = (
    "scheduler.preempt=due_gangs,short_jobs",
    "workload.preemptible=true",
    "simulation.grace_s=0",
    "simulation.remaining_limits=true",
    # Gangs need not be early where they need not drain nodes.
    "scheduler.due.gang_limit=0.15",
    "scheduler.due.small_backlog=6",
    "scheduler.due.small_running=1",
)
RUNS: dict[str, tuple[str, tuple[str, ...]]] = {
    "fifo": ("fifo", ()),
    "skip": ("skip", ()),
    "easy": ("easy", ()),
    "conservative": ("conservative", ()),
    "sjf": ("sjf", ()),
    "default": ("default", ()),
    # The default shares fairly among queues; a trace is one queue, so this is to be the same.
    "default-fifo": ("default", ("scheduler.order=fifo",)),
    "limits-5x": ("default", ("workload.limit_factor=5",)),
    "limits-5x-scattered": (
        "default",
        ("workload.limit_factor=5", "workload.limit_scatter_sigma=1"),
    ),
    "preemption": ("default", _PREEMPTING),
}
#: What is tried beside the default to show what it trades.
TRADEOFF: dict[str, tuple[str, tuple[str, ...]]] = {
    "default": ("default", ()),
    **{
        f"{name}={value:g}": ("default", (f"scheduler.due.{name}={value}",))
        for name, values in {
            "gang_least": (0.0, 0.2, 0.4),
            "gang_backlog": (0.0, 0.8, 3.0, 6.0),
            "gang_alike": (0.0, 4.0, 16.0),
            "small_backlog": (1.0, 2.0, 4.0, 8.0),
            "small_running": (0.0, 0.25, 1.0),
            "calm": (0.0, 0.3, 1.2),
        }.items()
        for value in values
    },
}
BASES = ("skip", "easy")

#: Floors of the score by trace and hosts, and of any other.
SCORES = {
    ("cluster01", 8): 1.05,
    ("cluster02", 14): 0.95,
    ("cluster03", 21): 0.95,
    ("cluster04", 70): 0.95,
}
OTHER_SCORE, MEAN_SCORE, AIM_MEAN_SCORE = 1.10, 0.85, 0.70
AIMS = {("cluster02", 14): 0.80, ("cluster04", 70): 0.80}
WRONG_LIMITS = {"limits-5x": 1.05, "limits-5x-scattered": 1.25}
BIG_MAX, LONGEST = 1.3, 1.5
#: Where preemption has floors, and which.
PREEMPTED = (("cluster02", 14), ("cluster03", 21), ("cluster04", 70))
PREEMPTED_MEAN, PREEMPTED_BIG = 0.95, 0.5


def trace_of(word: str) -> tuple[Path, int]:
    """FILE:HOSTS."""
    path, colon, hosts = word.rpartition(":")
    if not colon or not hosts.isdigit() or int(hosts) < 1:
        raise argparse.ArgumentTypeError(f"'{word}': write FILE:HOSTS, such as trace.csv.gz:14")
    return Path(path), int(hosts)


def one_run(
    path: Path, hosts: int, policy: str, settings: Sequence[str], first: int | None
) -> dict[str, Any]:
    """The figures of one replay (times in hours), with its CPU seconds."""
    known = named(policy)
    chosen = options.apply(
        options.Options(
            known.policy, World(oracle=known.oracle), Reading(host_gpus=HOST_GPUS, first=first)
        ),
        settings,
    )
    jobs = reading.workload(str(path), chosen.workload, "auto")
    began = time.process_time()
    replayed = Replay(
        from_spec(f"{hosts}x{HOST_GPUS}:gpu"), jobs, chosen.scheduler, chosen.simulation
    ).run()
    cpu_s = time.process_time() - began
    records = replayed.records
    waiting = Waiting.of(records)
    late = [record.slip_s for record in records if record.slip_s > 0]
    return {
        "jobs": len(records),
        "never_started": sum(not record.attempts for record in records),
        "mean_completion_h": waiting.mean_completion / HOUR_S,
        "wait_p90_h": waiting.wait.p90 / HOUR_S,
        "wait_max_h": waiting.wait.max / HOUR_S,
        "big_gangs": waiting.big_wait.count,
        "big_wait_p90_h": waiting.big_wait.p90 / HOUR_S,
        "big_wait_max_h": waiting.big_wait.max / HOUR_S,
        "preemptions": sum(a.outcome == "preempted" for r in records for a in r.attempts),
        "most_preemptions_of_a_job": max(
            (sum(a.outcome == "preempted" for a in r.attempts) for r in records), default=0
        ),
        "promises": sum(record.promise_s is not None for record in records),
        "late_promises": len(late),
        "max_slip_s": max(late, default=0.0),
        "cpu_s": cpu_s,
    }


def compared(
    run: dict[str, Any], skip: dict[str, Any], easy: dict[str, Any]
) -> dict[str, float | None]:
    """Ratios to the two policies that everybody knows. None: nothing to compare with."""
    mean = run["mean_completion_h"] / skip["mean_completion_h"]
    big = _over(run["big_wait_p90_h"], easy["big_wait_p90_h"])
    return {
        "mean_over_skip": mean,
        "big_p90_over_easy": big,
        "score": mean if big is None else (mean + big) / 2,
        "big_max_over_easy": _over(run["big_wait_max_h"], easy["big_wait_max_h"]),
        "longest_over_both": _over(run["wait_max_h"], max(easy["wait_max_h"], skip["wait_max_h"])),
    }


def _over(one: float, other: float) -> float | None:
    return one / other if other > 0 else None


def judged(trace: str, hosts: int, name: str, run: dict[str, Any], whole: bool) -> dict[str, bool]:
    """Which floors (and aims) a run of ours reaches."""
    ratio, key = run["ratios"], (trace.partition(".")[0], hosts)
    known = whole and key in SCORES

    def within(figure: str, bound: float) -> bool:
        return ratio[figure] is None or ratio[figure] <= bound

    if name == "preemption":
        if not whole or key not in PREEMPTED:
            return {}
        return {
            f"mean {PREEMPTED_MEAN} x skip": within("mean_over_skip", PREEMPTED_MEAN),
            f"big P90 {PREEMPTED_BIG} x EASY": within("big_p90_over_easy", PREEMPTED_BIG),
        }
    if name in WRONG_LIMITS:
        return {f"score {WRONG_LIMITS[name]}": within("score", WRONG_LIMITS[name])}
    floor = SCORES[key] if known else OTHER_SCORE
    found = {
        f"score {floor}": within("score", floor),
        f"big gangs' maximum {BIG_MAX} x EASY": within("big_max_over_easy", BIG_MAX),
        f"longest wait {LONGEST} x both": within("longest_over_both", LONGEST),
        "no promise slips": run["late_promises"] == 0,
    }
    if known and key in AIMS:
        found[f"aim: score {AIMS[key]}"] = within("score", AIMS[key])
    return found


def measure(
    traces: Sequence[tuple[Path, int]],
    runs: dict[str, tuple[str, tuple[str, ...]]],
    first: int | None,
    processes: int,
) -> dict[str, dict[str, Any]]:
    """ "trace@hosts" -> run -> figures, ratios and what is reached."""
    found: dict[str, dict[str, Any]] = {}
    everything = {**{name: RUNS[name] for name in BASES}, **runs}
    with ProcessPoolExecutor(processes) as pool:
        begun = {
            (path, hosts, name): pool.submit(one_run, path, hosts, *how, first)
            for path, hosts in traces
            for name, how in everything.items()
        }
        for (path, hosts, name), run in begun.items():
            place = f"{path.name}@{hosts}"
            figures = found.setdefault(place, {})[name] = run.result()
            done = found[place]
            if "skip" in done and "easy" in done:
                figures["ratios"] = compared(figures, done["skip"], done["easy"])
                if everything[name][0] == "default":
                    figures["reached"] = judged(path.name, hosts, name, figures, first is None)
            print(f"{place} {name}: {figures['cpu_s']:.0f} s", file=sys.stderr, flush=True)
        for done in found.values():
            done["skip"]["ratios"] = compared(done["skip"], done["skip"], done["easy"])
    return found


def table(found: dict[str, dict[str, Any]]) -> str:
    """Markdown, one line a run."""
    heads = (
        "trace@hosts", "policy", "score", "mean h (x skip)", "big P90 h (x EASY)",
        "big max h (x EASY)", "longest wait h (x both)", "preemptions", "late", "not reached",
    )  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for place, runs in found.items():
        for name, run in runs.items():
            ratio = run["ratios"]
            missed = [what for what, held in run.get("reached", {}).items() if not held]
            cells = (
                place,
                name,
                f"{ratio['score']:.2f}",
                _with(run["mean_completion_h"], ratio["mean_over_skip"]),
                _with(run["big_wait_p90_h"], ratio["big_p90_over_easy"]),
                _with(run["big_wait_max_h"], ratio["big_max_over_easy"]),
                _with(run["wait_max_h"], ratio["longest_over_both"]),
                str(run["preemptions"]),
                str(run["late_promises"]),
                ", ".join(missed) or "-",
            )
            lines.append(f"| {' | '.join(cells)} |")
    mean = mean_score(found)
    if mean is not None:
        lines.append(
            f"\nMean score of the default on the four traces: {mean:.3f} "
            f"(floor {MEAN_SCORE}, aim {AIM_MEAN_SCORE})"
        )
    return "\n".join(lines)


def _with(value: float, ratio: float | None) -> str:
    return f"{value:.1f} ({ratio:.2f})" if ratio is not None else f"{value:.1f}"


def mean_score(found: dict[str, dict[str, Any]]) -> float | None:
    """Of the default, where all four traces were run at the hosts that have floors."""
    scores = [
        runs["default"]["ratios"]["score"]
        for place, runs in found.items()
        if (place.partition(".")[0], int(place.rpartition("@")[2])) in SCORES and "default" in runs
    ]
    return sum(scores) / len(scores) if len(scores) == len(SCORES) else None


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scheduling.waiting", description=__doc__.split("\n")[0]
    )
    add = parser.add_argument
    add("traces", nargs="+", type=trace_of, metavar="FILE:HOSTS", help="trace and its hosts of 8")
    add("--policy", action="append", choices=RUNS, help="may be repeated (default: all)")
    add("--first", type=int, help="no more than so many jobs of each trace")
    add("--study", choices=("policies", "tradeoff"), default="policies", help="what is compared")
    add("--processes", type=int, default=2, choices=(1, 2), help="default: 2")
    add("--output", type=Path, help="default: results/waiting.json beside this file")
    return parser.parse_args(words)


def missed(found: dict[str, dict[str, Any]]) -> list[str]:
    """The floors (not aims) that no run of ours may miss and one does."""
    named = [
        f"{place}, {name}: {what}"
        for place, runs in found.items()
        for name, run in runs.items()
        for what, held in run.get("reached", {}).items()
        if not held and not what.startswith("aim")
    ]
    mean = mean_score(found)
    return named + ([f"mean score {MEAN_SCORE}"] if mean is not None and mean > MEAN_SCORE else [])


def main(words: Sequence[str] | None = None) -> int:
    """Measure, write the JSON, print the table; 1 when a floor does not hold."""
    args = parse(words)
    runs = TRADEOFF if args.study == "tradeoff" else RUNS
    if args.policy:
        runs = {name: RUNS[name] for name in args.policy}
    found = measure(args.traces, runs, args.first, args.processes)
    name = "waiting.json" if args.study == "policies" else "waiting-tradeoff.json"
    output = args.output or RESULTS / name
    output.parent.mkdir(parents=True, exist_ok=True)
    made = {"first": args.first, "mean_score": mean_score(found), "traces": found}
    output.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    print(table(found))
    if args.study == "tradeoff":
        return 0  # shows what other settings cost
    for what in missed(found):
        print(f"floor MISSED {what}", file=sys.stderr)
    return int(bool(missed(found)))


if __name__ == "__main__":
    sys.exit(main())
