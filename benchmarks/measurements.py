# SPDX-License-Identifier: Apache-2.0
"""The measurements: each runs once on a running service and returns its figures."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from benchmarks.programs import spent, wait_until
from benchmarks.rest_client import quantiles, submit
from benchmarks.world import World

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured; ``--quick`` takes smaller numbers."""

    repeats: int = 3
    submissions: int = 3000
    jobs: int = 3000
    waiting: int = 10_000
    ended: int = 100_000
    array: int = 5000
    requests: int = 100


QUICK = Sizes(repeats=1, submissions=400, jobs=400, waiting=1000, ended=5000, requests=20)


def _per_job(cpu: dict[str, float], count: int) -> dict[str, float]:
    """CPU milliseconds a job, by program and for all of the service's own programs."""
    own = sum(cpu[name] for name in ("api", "scheduler", "conductor", "agents"))
    return {
        "cpu_ms_per_job": round(1000 * own / count, 2),
        "machine_cpu_ms_per_job": round(1000 * cpu["machine"] / count, 2),
    }


def submissions(world: World, sizes: Sizes) -> Figures:
    """Jobs put in line over eight keep-alive connections while no node takes any."""
    world.clear_jobs()
    world.cordon()
    before = world.programs.cpu()
    took, latencies = submit(world.url, sizes.submissions)
    cpu = spent(before, world.programs.cpu())
    return {
        "per_s": round(sizes.submissions / took, 1),
        **quantiles(latencies),
        "cpu_s": cpu,
        "api_cpu_ms_per_job": round(1000 * cpu["api"] / sizes.submissions, 2),
    }


def finished(world: World, sizes: Sizes) -> Figures:
    """Jobs brought to their end by all nodes, from the first start to the last end."""
    world.clear_jobs()
    world.cordon()
    submit(world.url, sizes.jobs)
    before = world.programs.cpu()
    world.cordon("uncordon")
    wait_until(
        lambda: not world.value("SELECT count(*) FROM jobs WHERE ended_at IS NULL"),
        "every job has ended",
        patience_s=sizes.jobs / 5 + 60,
        pause_s=0.25,
    )
    cpu = spent(before, world.programs.cpu())
    good = world.value("SELECT count(*) FROM jobs WHERE status = 'succeeded'")
    if good != sizes.jobs:
        raise RuntimeError(f"{sizes.jobs - good} of {sizes.jobs} jobs did not succeed")
    seconds = float(
        world.value(
            "SELECT extract(epoch FROM (SELECT max(ended_at) FROM jobs) - "
            "(SELECT min(created_at) FROM attempts))"
        )
    )
    return {
        "per_s": round(sizes.jobs / seconds, 1),
        "seconds": round(seconds, 2),
        "cpu_s": cpu,
        **_per_job(cpu, sizes.jobs),
    }


def array(world: World, sizes: Sizes) -> Figures:
    """Acceptance of one large array."""
    world.clear_jobs()
    world.cordon()
    begin = time.perf_counter()
    world.rest.call(
        "POST",
        "/v1/jobs",
        {"job": {"name": "array", "command": ["true"], "array": {"size": sizes.array}}},
    )
    return {"accepted_ms": round(1000 * (time.perf_counter() - begin), 2)}


def explain(world: World, sizes: Sizes) -> Figures:
    """First byte of ``explain`` while many jobs wait and the scheduler goes on planning."""
    world.clear_jobs()
    world.cordon()
    jobs = world.insert_jobs(sizes.waiting, ended=False)
    wait_until(
        lambda: world.value("SELECT count(*) FROM jobs WHERE waiting_code IS NULL") == 0,
        "every waiting job is explained",
    )
    before = world.programs.cpu()
    chosen = jobs[:: max(1, len(jobs) // sizes.requests)]
    times = [world.rest.first_byte_ms(f"/v1/jobs/{job}/explain") for job in chosen]
    return {**quantiles(times), "cpu_s": spent(before, world.programs.cpu())}


def listing(world: World, sizes: Sizes) -> Figures:
    """First page, a filtered page, and a page far down of a project with many ended jobs."""
    world.clear_jobs()
    jobs = world.insert_jobs(sizes.ended, ended=True)
    middle = jobs[len(jobs) // 2]
    paths = {
        "first": "/v1/jobs?limit=100",
        "status": "/v1/jobs?limit=100&status=succeeded",
        "none": "/v1/jobs?limit=100&status=failed",
        "deep": f"/v1/jobs?limit=100&marker={middle}",
        "show": f"/v1/jobs/{middle}",
    }
    before = world.programs.cpu()
    figures = {
        name: quantiles([world.rest.first_byte_ms(path) for _ in range(sizes.requests)])
        for name, path in paths.items()
    }
    return {**figures, "cpu_s": spent(before, world.programs.cpu())}
