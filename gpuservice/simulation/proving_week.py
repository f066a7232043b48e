# SPDX-License-Identifier: Apache-2.0
"""One week of six teams on 64 GPUs, drawn from what real logs say; the same for the same seed.

Where each number comes from (fits of ``benchmarks/scheduling/fits.py`` on published logs):

- durations: lognormal, mean and deviation of their logarithms (seconds). Training by GPUs: the ITP
  logs of Microsoft, clusters 01 to 05 (29,815 jobs). Interactive: latency-sensitive pods of
  Alibaba's openb trace that hold a GPU (3,590). Evaluation: its pods with a share of a GPU (2,573);
  data: its pods without one (1,052).
- GPUs of a training job: as the ITP logs have them, with more than 8 GPUs twice as often as there
  and single GPUs less often (60 %, not 77 %), so that gangs count.
- runs of equal submissions: Philly (Microsoft, 82,247 jobs): 83 % of submissions stand alone, with
  the others within 30 seconds of the one before, 3.08 a submission.
- days of the week: Philly. Hours of the day: a wave as high as Philly's (0.29; ITP's 0.12), with
  its top in the afternoon.
- limits: 2 to 13 times the duration, the medians of two logs that have both (hpc2n 2.2,
  wagap-2013 13.5).
- kinds' parts of the GPU time: an assumption, within what the logs' summaries say.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from gpuservice.domain.jobspec import PRIORITIES
from gpuservice.planner.snapshot import Policy, QueueState, Request
from gpuservice.simulation.cluster import Cluster, Outage, plain_node
from gpuservice.simulation.replay import World
from gpuservice.simulation.workload import WorkloadJob, moment

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
WEEK_S = 7 * DAY_S
HOSTS, HOST_GPUS, GPU_TYPE = 8, 8, "a100-80gb"

#: The seeds that the figures are of.
SEEDS = (1, 2, 3, 4, 5)

#: GPUs that each team's queue is guaranteed.
TEAMS: Mapping[str, int] = {
    "vision": 16,
    "language": 16,
    "speech": 8,
    "robotics": 8,
    "search": 8,
    "platform": 8,
}

#: A standard job fits its queue's nominal and asks for at most so many GPUs.
STANDARD_GPUS = 16

#: Kind -> its part of the GPU time.
PARTS: Mapping[str, float] = {
    "interactive": 0.08,
    "training": 0.72,
    "evaluation": 0.15,
    "data": 0.05,
}

#: GPUs of a training job -> (part of the jobs, mean and deviation of log seconds).
TRAINING: Mapping[int, tuple[float, float, float]] = {
    1: (0.60, 8.85, 1.06),
    2: (0.07, 8.82, 1.47),
    4: (0.10, 8.82, 1.47),
    8: (0.17, 9.59, 1.44),
    16: (0.05, 10.04, 1.97),
    32: (0.01, 10.47, 1.75),
}

#: Kind -> (mean and deviation of log seconds, the longest that the operator allows).
DURATIONS: Mapping[str, tuple[float, float, float]] = {
    "interactive": (6.88, 1.82, 8 * HOUR_S),
    "evaluation": (6.38, 1.98, 4 * HOUR_S),
    "data": (6.53, 1.72, 8 * HOUR_S),
}
TRAINING_MOST_S = 48 * HOUR_S
LEAST_S = 20.0

#: Shares of a GPU that openb's pods ask for most, and how often.
FRACTIONS: Mapping[int, float] = {1000: 0.55, 810: 0.15, 650: 0.08, 470: 0.12, 320: 0.10}

#: How many submissions stand alone, and how long runs of equal ones are (mean).
ALONE = 0.83
RUN_MEAN = 13.2
RUN_MOST = 200

#: Monday to Sunday, and the hours of a day (least at 4, most at 16 o'clock).
DAYS = (0.86, 1.07, 1.14, 1.29, 1.44, 0.61, 0.59)
HOUR_SWING, BUSIEST_HOUR = 0.3, 16.0

LIMIT_FACTORS = (2.0, 13.0)
LIMIT_STEP_S = 900.0

#: The team that has a deadline on Friday evening sends more before it, and says so.
DEADLINE_S = 4 * DAY_S + 18 * HOUR_S
CRUNCH_S = 36 * HOUR_S
CRUNCH = 1.6

#: A host dies on Wednesday at 11 and is back after 6 hours.
OUTAGE = Outage("n0003", 2 * DAY_S + 11 * HOUR_S, 6 * HOUR_S)

#: Short work goes before training, which checkpoints and gives way; people go before both.
PRIORITY: Mapping[str, int] = {
    "interactive": PRIORITIES["high"],
    "training": PRIORITIES["low"],
    "evaluation": PRIORITIES["normal"],
    "data": PRIORITIES["normal"],
}


#: How the scheduler is set for such teams, and the grace that jobs have by default.
POLICY = Policy(preempt=frozenset({"priority", "reclaim"}), max_preemptions=10)
WORLD = World(grace_s=30.0, lost_s=600.0)


@dataclass(frozen=True, slots=True)
class Week:
    """A week to be drawn. ``load``: offered GPU time over what there is."""

    seed: int
    load: float = 0.8


def cluster() -> Cluster:
    """8 hosts of 8, one of which dies; each team a queue with its nominal, in one cohort."""
    nodes = tuple(plain_node(f"n{row:04d}", HOST_GPUS, GPU_TYPE) for row in range(HOSTS))
    queues = tuple(
        QueueState(
            team,
            (),
            weight=float(gpus),
            cohort="lab",
            nominal={GPU_TYPE: 1000 * gpus},
            preemption="both",
        )
        for team, gpus in TEAMS.items()
    )
    return Cluster(nodes, queues, outages=(OUTAGE,))


def is_standard(job: WorkloadJob) -> bool:
    """Whether the job is one that the floors are about."""
    return job.milli <= 1000 * min(STANDARD_GPUS, TEAMS[job.queue])


def work_of(job: WorkloadJob) -> float:
    """GPU-seconds of a job with all its elements."""
    return job.milli / 1000 * job.duration_s * job.array_size


def jobs(week: Week) -> tuple[WorkloadJob, ...]:
    """The week's jobs, by submission."""
    source = random.Random(week.seed)
    busy = source.choice(tuple(TEAMS))
    found: list[WorkloadJob] = []
    for kind, part in PARTS.items():
        wanted = part * week.load * HOSTS * HOST_GPUS * WEEK_S
        drawn = _of_kind(source, kind, wanted, busy)
        found.extend(drawn)
    found.sort(key=lambda job: job.submit_s)
    return tuple(replace(job, name=f"{job.kind}-{row:05d}") for row, job in enumerate(found))


def _of_kind(source: random.Random, kind: str, wanted: float, busy: str) -> Iterator[WorkloadJob]:
    """Jobs of a kind until their work is what was wanted; the last one is cut to fit."""
    left = wanted
    while left > 0:
        team = source.choices(tuple(TEAMS), weights=tuple(map(float, TEAMS.values())))[0]
        at = _when(source, team == busy)
        for job in _submission(source, kind, team, at, busy):
            work = work_of(job)
            if work > left:
                cut = max(job.duration_s * left / work, 1.0)
                job = replace(job, duration_s=moment(cut))
            yield job
            left -= work
            if left <= 0:
                return


def _when(source: random.Random, crunch: bool) -> float:
    """A moment of the week, by its rhythm."""
    most = max(DAYS) * (1 + HOUR_SWING) * CRUNCH
    while True:
        at = source.uniform(0.0, WEEK_S)
        hour = at % DAY_S / HOUR_S
        weight = DAYS[int(at // DAY_S)]
        weight *= 1 + HOUR_SWING * math.cos((hour - BUSIEST_HOUR) / 24 * math.tau)
        if crunch and 0 <= DEADLINE_S - at <= CRUNCH_S:
            weight *= CRUNCH
        if source.uniform(0.0, most) < weight:
            return moment(at)


def _submission(
    source: random.Random, kind: str, team: str, at: float, busy: str
) -> Iterator[WorkloadJob]:
    """One job, an array, or a run of like ones a few seconds apart."""
    gpus = 1
    if kind == "training":
        sizes = tuple(TRAINING)
        gpus = source.choices(sizes, weights=[TRAINING[one][0] for one in sizes])[0]
    length = _run(source) if kind in ("evaluation", "data") or gpus == 1 else 1
    if kind == "interactive":
        length = 1
    request = _request(source, kind, gpus)
    user = f"{team}-{source.randrange(6)}"
    if kind == "evaluation":
        yield _job(source, kind, team, user, at, request, gpus, length, busy)
        return
    for _ in range(length):
        yield _job(source, kind, team, user, at, request, gpus, 1, busy)
        at = moment(at + source.uniform(1.0, 30.0))


def _run(source: random.Random) -> int:
    if source.random() < ALONE:
        return 1
    return min(2 + int(source.expovariate(1.0 / (RUN_MEAN - 2.0))), RUN_MOST)


def _request(source: random.Random, kind: str, gpus: int) -> Request:
    if kind == "data" or kind == "interactive":
        milli = source.choices(tuple(FRACTIONS), weights=tuple(FRACTIONS.values()))[0]
        return Request(gpu_milli=milli)
    if gpus <= HOST_GPUS:
        return Request(gpu_milli=1000 * gpus)
    hosts = gpus // HOST_GPUS
    return Request(count=hosts, min_count=hosts, gpu_milli=1000 * HOST_GPUS)


def _job(
    source: random.Random,
    kind: str,
    team: str,
    user: str,
    at: float,
    request: Request,
    gpus: int,
    elements: int,
    busy: str,
) -> WorkloadJob:
    if kind == "training":
        _, mean, deviation = TRAINING[gpus]
        most = TRAINING_MOST_S
    else:
        mean, deviation, most = DURATIONS[kind]
    duration = min(max(source.lognormvariate(mean, deviation), LEAST_S), most)
    limit = _limit(source, duration)
    deadline = None
    near = team == busy and kind in ("training", "evaluation") and 0 <= DEADLINE_S - at <= CRUNCH_S
    if near and at + limit < DEADLINE_S:
        deadline = DEADLINE_S
    return WorkloadJob(
        kind,
        at,
        moment(duration),
        request,
        project=team,
        queue=team,
        user=user,
        kind=kind,
        priority=PRIORITY[kind],
        max_runtime_s=limit,
        preemptible=kind != "interactive",
        array_size=elements,
        deadline_s=deadline,
    )


def _limit(source: random.Random, duration: float) -> int:
    """What the user asks for: too much, and a round number."""
    low, high = map(math.log, LIMIT_FACTORS)
    asked = duration * math.exp(source.uniform(low, high))
    return int(math.ceil(asked / LIMIT_STEP_S) * LIMIT_STEP_S)
