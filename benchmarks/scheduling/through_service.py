# SPDX-License-Identifier: Apache-2.0
"""A steady stream of short jobs through the whole service, watched by a client beside it.

    python tools/with_services.py --durable --only rabbitmq,postgresql -- \
        python -m benchmarks.scheduling.through_service [--minutes 10] [--rate 15] [--load 0.85] \
        [--output benchmarks/scheduling/results/through-service.json]

Jobs of six teams come at a fixed rate, whatever the service does (open loop), and are brought to
their end by eight nodes of eight GPUs whose agents only pretend to run processes. ``--load`` is the
share of the GPUs that the jobs' own run times fill; what the service needs to start and to end one
comes on top. Four times a second the client reads a page of the waiting jobs of a team, with the
reasons, and explains one of them.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from benchmarks.__main__ import machine
from benchmarks.programs import GPUS, HOSTS, spent, wait_until
from benchmarks.rest_client import Connection, quantiles
from benchmarks.scheduling.timed_jobs import percentile
from benchmarks.world import World, running

TEAMS = {"team1": 40, "team2": 20, "team3": 10, "team4": 10, "team5": 10, "team6": 10}
#: (nodes, GPUs of each) and how common it is.
SHAPES = {(1, 1): 70, (1, 2): 17, (1, 4): 8, (1, 8): 3, (2, 8): 2}
#: Run times are spread evenly between these parts of their mean.
SPREAD = (0.3, 1.7)
LIMIT_S = 60
PATIENCE_S = 120.0
#: Looks a second, and how long (seconds) a window of the scheduler's CPU time is.
LOOKS, WINDOW_S = 4, 10.0

#: Floors: of one core, and milliseconds.
CORE_SHARE, P99_MS = 0.5, 150.0

_WAITS = "SELECT extract(epoch FROM started_at - created_at) FROM jobs WHERE started_at IS NOT NULL"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job of the stream."""

    team: str
    nodes: int
    gpus: int
    seconds: float

    @property
    def body(self) -> dict[str, Any]:
        """The request."""
        return {
            "job": {
                "name": "stream",
                "command": ["true"],
                "env": {"NOFORK_SECONDS": f"{self.seconds:.2f}"},
                "tasks": {"count": self.nodes},
                "resources": {"gpus": self.gpus},
                "max_runtime_s": LIMIT_S,
            }
        }


def stream(count: int, rate: float, load: float, seed: int = 1) -> list[Arrival]:
    """The jobs: together they fill ``load`` of all GPUs when they come at ``rate`` a second."""
    dice = random.Random(seed)
    teams = dice.choices(list(TEAMS), list(TEAMS.values()), k=count)
    shapes = dice.choices(list(SHAPES), list(SHAPES.values()), k=count)
    parts = [dice.uniform(*SPREAD) for _ in range(count)]
    work = sum(nodes * gpus * part for (nodes, gpus), part in zip(shapes, parts, strict=True))
    unit = load * HOSTS * GPUS * count / rate / work
    return [
        Arrival(team, nodes, gpus, part * unit)
        for team, (nodes, gpus), part in zip(teams, shapes, parts, strict=True)
    ]


@dataclass
class Watch:
    """What the client beside the stream sees."""

    lists: list[float] = field(default_factory=list)
    explains: list[float] = field(default_factory=list)
    windows: list[float] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def look(self, url: str, stop: threading.Event) -> None:
        """Look again and again at the pages of the teams in turn."""
        clients = {team: Connection(url, team) for team in TEAMS}
        dice, teams = random.Random(2), list(TEAMS)
        turn = 0
        while not stop.wait(1.0 / LOOKS):
            client = clients[teams[turn % len(teams)]]
            turn += 1
            try:
                began = time.perf_counter()
                page = client.call("GET", "/v1/jobs?limit=100&status=queued")["jobs"]
                self.lists.append(1000 * (time.perf_counter() - began))
                self.waiting.append(len(page))
                if page:
                    job = dice.choice(page)["id"]
                    began = time.perf_counter()
                    client.call("GET", f"/v1/jobs/{job}/explain")
                    self.explains.append(1000 * (time.perf_counter() - began))
            except Exception as failure:
                self.failures.append(str(failure))
        for client in clients.values():
            client.close()

    def watch_cpu(self, read: Callable[[], float], stop: threading.Event) -> None:
        """The share of a core that the scheduler takes, window by window."""
        used, at = read(), time.monotonic()
        while not stop.wait(WINDOW_S):
            more, now = read(), time.monotonic()
            self.windows.append((more - used) / (now - at))
            used, at = more, now


def send(url: str, arrivals: Sequence[Arrival], rate: float, connections: int = 4) -> float:
    """Submit each at its moment; how late (seconds) the latest was."""
    began, late = time.monotonic(), [0.0] * connections

    def work(number: int) -> None:
        clients = {team: Connection(url, team) for team in TEAMS}
        for place in range(number, len(arrivals), connections):
            due = began + place / rate
            time.sleep(max(0.0, due - time.monotonic()))
            late[number] = max(late[number], time.monotonic() - due)
            clients[arrivals[place].team].call("POST", "/v1/jobs", arrivals[place].body)
        for client in clients.values():
            client.close()

    with ThreadPoolExecutor(connections) as pool:
        for done in [pool.submit(work, number) for number in range(connections)]:
            done.result()
    return max(late)


def measure(world: World, arrivals: Sequence[Arrival], rate: float) -> dict[str, Any]:
    """The figures of one stream."""
    watch, stop = Watch(), threading.Event()
    threads = [
        threading.Thread(target=watch.look, args=(world.url, stop)),
        threading.Thread(
            target=watch.watch_cpu, args=(lambda: world.programs.cpu()["scheduler"], stop)
        ),
    ]
    before, began = world.programs.cpu(), time.monotonic()
    for thread in threads:
        thread.start()
    try:
        late = send(world.url, arrivals, rate)
        streamed = time.monotonic() - began
        at_end = spent(before, world.programs.cpu())
        wait_until(
            lambda: not world.value("SELECT count(*) FROM jobs WHERE ended_at IS NULL"),
            "every job has ended",
            PATIENCE_S,
            0.5,
        )
        took = time.monotonic() - began
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    good = world.value("SELECT count(*) FROM jobs WHERE status = 'succeeded'")
    waits = [float(one) for one in world.values(_WAITS)]
    return {
        "jobs": len(arrivals),
        "succeeded": good,
        "submitting_s": round(streamed, 1),
        "all_ended_s": round(took, 1),
        "latest_submission_late_s": round(late, 2),
        "scheduler_core_share": round(at_end["scheduler"] / streamed, 3),
        "scheduler_core_share_worst_window": round(max(watch.windows, default=0.0), 3),
        "scheduler_cpu_ms_per_job": round(1000 * at_end["scheduler"] / len(arrivals), 2),
        "list": quantiles(watch.lists),
        "explain": quantiles(watch.explains or [0.0]),
        "looks": len(watch.lists),
        "explained": len(watch.explains),
        "failed_looks": watch.failures[:10],
        "waiting_on_page_max": max(watch.waiting, default=0),
        "wait_s": {
            "mean": round(sum(waits) / len(waits), 3),
            "p50": round(percentile(waits, 0.5), 3),
            "p90": round(percentile(waits, 0.9), 3),
            "max": round(max(waits), 3),
        },
        "cpu_s": at_end,
    }


def holds(found: dict[str, Any]) -> bool:
    """Whether the floors hold."""
    return bool(
        found["succeeded"] == found["jobs"]
        and not found["failed_looks"]
        and found["scheduler_core_share"] < CORE_SHARE
        and found["list"]["p99_ms"] < P99_MS
        and found["explain"]["p99_ms"] < P99_MS
    )


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write; 1 when a floor does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=15.0, help="jobs a second")
    parser.add_argument("--load", type=float, default=0.85)
    parser.add_argument("--keep", type=Path, help="empty directory for configuration and logs")
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args(arguments)
    about = machine()
    arrivals = stream(round(chosen.minutes * 60 * chosen.rate), chosen.rate, chosen.load)
    with running("nofork", chosen.keep) as world:
        pid = next(one.pid for one in psutil.Process().children() if "scheduler" in _words(one))
        print(f"the scheduler is process {pid}", flush=True)
        found = measure(world, arrivals, chosen.rate)
    result = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": about,
        "rate": chosen.rate,
        "load": chosen.load,
        **found,
    }
    print(json.dumps(result, indent=1))
    if chosen.output:
        chosen.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0 if holds(found) else 1


def _words(process: psutil.Process) -> str:
    return " ".join(process.cmdline())


if __name__ == "__main__":
    # Whoever is told to go ends what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
