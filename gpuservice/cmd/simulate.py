# SPDX-License-Identifier: Apache-2.0
"""gpuservice-simulate: what a policy would do with a workload on a cluster."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import IO, Any

from gpuservice.simulation import (
    comparison,
    options,
    packing,
    packing_lists,
    packing_policies,
    plots,
    reading,
    report,
)
from gpuservice.simulation.faults import InputFault
from gpuservice.simulation.policies import POLICIES, named
from gpuservice.simulation.replay import Replay, World
from gpuservice.simulation.workload import Reading

PROGRAM = "gpuservice-simulate"
MODES = ("replay", "packing", "packing+queue")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one simulation, or compare two results. 2: something given was wrong."""
    parser = _parser()
    args = parser.parse_args(sys.argv[1:] if argv is None else argv)
    try:
        return _compare(args) if args.compare else _simulate(args)
    except InputFault as fault:
        sys.stderr.write(f"{PROGRAM}: {fault}\n")
        return 2
    except BrokenPipeError:
        # Whoever read the table wants no more of it; nothing is left to be flushed at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Replay a workload on a cluster under a policy, by the planner of the service.",
        epilog=f"What --set changes, with the defaults:\n{options.describe()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--workload", metavar="FILE", help="jobs: CSV, SWF, ITP, Philly or openb pods; .gz too")
    add("--cluster", metavar="SPEC|FILE", help="such as 8x8:a100-80gb, or JSON, or openb nodes")
    add("--format", choices=reading.FORMATS, default="auto", help="of the workload (auto)")
    add(
        "--policy",
        metavar="NAME",
        default="default",
        help=f"{', '.join(POLICIES)}; packing: {', '.join(packing_policies.NAMES)}",
    )
    add("--set", metavar="GROUP.NAME=VALUE", action="append", default=[], help="see below")
    add("--output", metavar="FILE", help="result as JSON (- is standard output)")
    add("--timeline", metavar="FILE", help="CSV with a row for each moment of change")
    add("--plot", metavar="FILE", help="PNG; needs gpuservice[simulate]")
    add("--compare", nargs=2, metavar=("FIRST", "SECOND"), help="two results: what differs")
    add("--mode", choices=MODES, default="replay", help="packing: placement alone (replay)")
    add("--inflation", type=float, default=1.3, help="packing: GPUs that arrive (1.3)")
    add("--seed", type=int, default=42, help="packing: of the order of arrival (42)")
    return parser


def _compare(args: argparse.Namespace) -> int:
    first, second = (comparison.summary_of(path) for path in args.compare)
    sys.stdout.write(comparison.compare(first, second) + "\n")
    return 0


def _simulate(args: argparse.Namespace) -> int:
    for name in ("workload", "cluster"):
        if getattr(args, name) is None:
            raise InputFault(f"--{name} is missing (and no --compare is given)")
    return _replay(args) if args.mode == "replay" else _pack(args)


def _replay(args: argparse.Namespace) -> int:
    policy = named(args.policy)
    cluster = reading.cluster(args.cluster)
    chosen = options.apply(
        options.Options(
            policy.policy,
            World(oracle=policy.oracle),
            Reading(host_gpus=max(cluster.host_gpus, 1)),
        ),
        args.set,
    )
    if args.plot:
        plots.must_be_possible()
    jobs = reading.workload(args.workload, chosen.workload, args.format)
    timeline = bool(args.timeline or args.plot)
    with _opened(args.output) as output, _opened(args.timeline) as rows:
        replayed = Replay(
            cluster, jobs, chosen.scheduler, chosen.simulation, timeline=timeline
        ).run()
        made = report.result(replayed, cluster.nodes)
        if output is not None:
            report.write(made, output)
        if rows is not None and replayed.timeline is not None:
            replayed.timeline.write(rows)
    if args.plot:
        plots.draw(replayed, cluster.nodes, args.plot)
    if args.output != "-":
        sys.stdout.write(_in_short(made["summary"]) + "\n")
    return 0


def _in_short(summary: dict[str, Any]) -> str:
    wait, big = summary["wait_s"], summary["big_gang"]
    return "\n".join(
        (
            f"jobs {summary['jobs']}, never started {summary['never_started']}, "
            f"preemptions {summary['preemptions']}",
            f"makespan {summary['makespan_s']} s, utilisation {100 * summary['utilisation']:.1f} %",
            f"wait: mean {wait['mean']:.0f} s, P90 {wait['p90']:.0f} s, max {wait['max']:.0f} s",
            f"completion: mean {summary['completion_s']['mean']:.0f} s",
            f"gangs of {big['gpus']} GPUs or more: {big['jobs']}, "
            f"P90 wait {big['wait_s']['p90']:.0f} s",
        )
    )


def _pack(args: argparse.Namespace) -> int:
    """Placement alone."""
    if args.policy not in packing_policies.NAMES:
        names = ", ".join(packing_policies.NAMES)
        raise InputFault(f"--policy {args.policy}: --mode {args.mode} has {names}")
    chosen = {}
    for setting in args.set:
        name, equals, value = setting.partition("=")
        if not equals or not name.startswith("packing."):
            raise InputFault(f"--set {setting}: --mode {args.mode} takes packing.NAME=VALUE")
        chosen[name.removeprefix("packing.")] = value
    nodes = packing_lists.nodes(args.cluster)
    pods = packing_lists.pods(args.workload, args.format, nodes)
    try:
        made = packing.run_packing(
            nodes,
            pods,
            policy=args.policy,
            seed=args.seed,
            inflation=args.inflation,
            queue=args.mode == "packing+queue",
            options=packing.parse_options(chosen),
        )
    except ValueError as fault:
        raise InputFault(f"--mode {args.mode}: {fault}") from None
    with _opened(args.output) as output:
        if output is not None:
            report.write(made, output)
    if args.output != "-":
        ratio = made["summary"]["allocation_ratio"]
        sys.stdout.write(f"allocated, % of GPUs, by arrived demand in %: {json.dumps(ratio)}\n")
    return 0


@contextlib.contextmanager
def _opened(path: str | None) -> Iterator[IO[str] | None]:
    """A file to be written, opened before the work that fills it."""
    if path is None:
        yield None
    elif path == "-":
        yield sys.stdout
    else:
        with contextlib.ExitStack() as stack:
            try:
                file = stack.enter_context(open(path, "w", encoding="utf-8", newline="\n"))
            except OSError as error:
                raise InputFault(f"{path}: cannot be written: {error.strerror}") from None
            yield file


if __name__ == "__main__":
    sys.exit(main())
