# SPDX-License-Identifier: Apache-2.0
"""The same jobs in real time on a real Slurm tuned to EASY and on this service, in one run.

    python tools/with_services.py --durable --only rabbitmq,postgresql,mariadb -- \
        python -m benchmarks.scheduling.slurm WORKLOAD.csv [--seeds 0 1 2] \
        [--set due_gang_h=0.02 ...] [--output benchmarks/scheduling/results/slurm.json]

The workload has the columns submit_s, team, nodes, gpus_per_node, duration_s. Both sides have eight
nodes of eight GPUs, run real processes that sleep, share fairly between teams, and are told a limit
of 60 seconds for each job (Slurm knows whole minutes only). Submissions do not wait for anything
(open loop); starts and ends are what the processes themselves write down. Seed 0 is the workload
as it is; others put its jobs into another order at the same moments. The two sides run one after
the other, which of them first changes with the seed. Needs root (Slurm's nodes do).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from benchmarks.__main__ import machine
from benchmarks.programs import GPUS, HOSTS
from benchmarks.rest_client import Connection
from benchmarks.scheduling import slurm_cluster
from benchmarks.scheduling.floors import at_most, status
from benchmarks.scheduling.slurm_cluster import EASY, Shape, Slurm
from benchmarks.scheduling.timed_jobs import Played, TimedJob, marks, read, score, script, seeded
from benchmarks.world import running

MARIADB = "GPUSERVICE_TEST_MARIADB_URL"
LIMIT_S = 60
#: Nothing takes longer than the last submission and so many seconds.
PATIENCE_S = 400.0
#: Not in /tmp: tasks have a /tmp of their own.
PLACE = "/run"

Submit = Callable[[TimedJob], None]
Figures = dict[str, Any]
#: What is compared, smaller being better.
FLOORS = ("mean_wait_s", "p90_wait_s", "makespan_s", "cpu_ms_per_job")
COMPARED = ("mean_wait_s", "p90_wait_s", "makespan_s", "big_p90_wait_s", "cpu_ms_per_job")


@contextmanager
def open_directory() -> Iterator[Path]:
    """A directory into which processes of any user may write."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=PLACE) as name:
        os.chmod(name, 0o1777)
        yield Path(name)


def play(jobs: Sequence[TimedJob], submit: Submit, directory: Path) -> list[Played]:
    """Submit each at its moment and wait for all; raises ``TimeoutError`` when some do not end."""
    zero = time.time()
    submitted: dict[int, float] = {}
    for job in jobs:
        time.sleep(max(0.0, zero + job.submit_s - time.time()))
        submitted[job.number] = time.time() - zero
        submit(job)
    until = time.time() + PATIENCE_S
    while time.time() < until:
        ends = [marks(directory, job, "end") for job in jobs]
        if all(len(end) >= _processes(directory, job) for job, end in zip(jobs, ends, strict=True)):
            break
        time.sleep(0.5)
    else:
        raise TimeoutError("not every job has ended")
    return [
        Played(
            job,
            submitted[job.number],
            max(marks(directory, job, "start")) - zero,
            max(marks(directory, job, "end")) - zero,
        )
        for job in jobs
    ]


def _processes(directory: Path, job: TimedJob) -> int:
    """How many processes of the job have started, at least one."""
    return max(1, len(list(directory.glob(f"{job.number}.*.start"))))


def on_slurm(jobs: Sequence[TimedJob], database: str, tuning: str) -> Figures:
    """The figures of Slurm."""
    teams = sorted({job.team for job in jobs})
    with open_directory() as place, open_directory() as marked:
        slurm = Slurm(place, Shape(HOSTS, GPUS), database, teams, tuning)
        try:
            slurm.start()
            before = slurm.cpu()
            played = play(jobs, lambda job: slurm.submit(job, script(marked, job, "0")), marked)
            after = slurm.cpu()
        finally:
            slurm.stop()
    spent = {name: after[name] - before[name] for name in after}
    return _figures(played, spent, "slurmctld")


def on_service(jobs: Sequence[TimedJob], settings: Sequence[str]) -> Figures:
    """The figures of this service: separate programs, an agent a node, a process a task."""
    with open_directory() as marked, running("process", scheduler=settings) as world:
        clients = {team: Connection(world.url, team) for team in sorted({j.team for j in jobs})}

        def submit(job: TimedJob) -> None:
            clients[job.team].call("POST", "/v1/jobs", _body(job, marked))

        before = world.programs.cpu()
        played = play(jobs, submit, marked)
        after = world.programs.cpu()
        for client in clients.values():
            client.close()
    names = ("scheduler", "api", "conductor", "agents", "postgresql", "rabbitmq")
    return _figures(played, {name: after[name] - before[name] for name in names}, "scheduler")


def _body(job: TimedJob, marked: Path) -> dict[str, Any]:
    return {
        "job": {
            "name": f"job-{job.number}",
            "command": ["/bin/sh", "-c", script(marked, job, "$RANK")],
            "tasks": {"count": job.nodes},
            "resources": {"gpus": job.gpus},
            "max_runtime_s": LIMIT_S,
            "preemptible": False,
        }
    }


def _figures(played: Sequence[Played], spent: dict[str, float], decides: str) -> Figures:
    return {
        **score(played, HOSTS * GPUS),
        "cpu_ms_per_job": round(1000 * spent[decides] / len(played), 2),
        "cpu_s": {name: round(value, 2) for name, value in spent.items()},
        "log": [
            [one.job.number, *(round(at, 3) for at in (one.submitted, one.started, one.ended))]
            for one in played
        ],
    }


def compared(runs: Sequence[dict[str, Figures]]) -> dict[str, Any]:
    """Means over the seeds, and whether ours is no worse."""
    found: dict[str, Any] = {}
    for name in COMPARED:
        if any(run[side][name] is None for run in runs for side in ("slurm", "service")):
            continue  # no such jobs in the workload
        both = {
            side: round(statistics.mean(run[side][name] for run in runs), 2)
            for side in ("slurm", "service")
        }
        found[name] = {**both, "no_worse": both["service"] <= both["slurm"]}
    return found


def table(result: dict[str, Any]) -> str:
    """The runs and their means as a table."""
    rows = [
        "| seed | side | mean wait s | P90 | 16 GPUs P90 | makespan | decision CPU ms a job |",
        "|---|---|---|---|---|---|---|",
    ]
    names = ("mean_wait_s", "p90_wait_s", "big_p90_wait_s", "makespan_s", "cpu_ms_per_job")
    for run in result["runs"]:
        for side in ("slurm", "service"):
            values = " | ".join(str(run[side][name]) for name in names)
            rows.append(f"| {run['seed']} | {side} | {values} |")
    for side in ("slurm", "service"):
        values = " | ".join(str(result["means"].get(name, {}).get(side)) for name in names)
        rows.append(f"| mean | {side} | {values} |")
    return "\n".join(rows)


def _check(parser: argparse.ArgumentParser) -> str:
    """The socket of the accounting database; says what is missing otherwise."""
    lacking = slurm_cluster.missing()
    if lacking:
        parser.error(
            "there is no Slurm to compare with; install its Debian packages: "
            f"apt-get install --no-install-recommends {' '.join(lacking)} (bindep slurm)"
        )
    if os.geteuid():
        parser.error("the nodes of Slurm need root")
    if MARIADB not in os.environ:
        parser.error("run it under tools/with_services.py --only rabbitmq,postgresql,mariadb")
    return parse_qs(urlsplit(os.environ[MARIADB]).query)["unix_socket"][0]


def main(arguments: list[str] | None = None) -> int:
    """Play, compare, print, write; 1 when a floor does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("workload", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--tuning", default=EASY, help="Slurm's SchedulerParameters")
    parser.add_argument(
        "--set", action="append", default=[], metavar="OPTION=VALUE", help="of our [scheduler]"
    )
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args(arguments)
    database = _check(parser)
    about = machine()
    jobs = read(chosen.workload)
    runs: list[dict[str, Any]] = []
    for number, seed in enumerate(chosen.seeds):
        order = seeded(jobs, seed)
        sides: dict[str, Callable[[], Figures]] = {
            "slurm": lambda order=order: on_slurm(order, database, chosen.tuning),  # type: ignore[misc]
            "service": lambda order=order: on_service(order, chosen.set),  # type: ignore[misc]
        }
        turn = list(sides) if number % 2 == 0 else list(sides)[::-1]
        run: dict[str, Any] = {"seed": seed, "first": turn[0]}
        for side in turn:
            run[side] = sides[side]()
            told = {name: run[side][name] for name in COMPARED}
            print(f"seed {seed} {side}: {told}", flush=True)
        runs.append(run)
    result = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": about,
        "tuning": chosen.tuning,
        "settings": chosen.set,
        "means": compared(runs),
        "runs": runs,
    }
    if chosen.output:
        chosen.output.write_text(json.dumps(result) + "\n", encoding="utf-8")
    print(table(result))
    means = result["means"]
    return status(
        at_most(f"{name} beside Slurm's", means[name]["service"], means[name]["slurm"])
        for name in FLOORS
    )


if __name__ == "__main__":
    # Whoever is told to go ends what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
