# SPDX-License-Identifier: Apache-2.0
"""The week that is drawn: the same for a seed, with the load, parts and rhythm that it says."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from gpuservice.simulation.proving_week import (
    DEADLINE_S,
    GPU_TYPE,
    HOST_GPUS,
    HOSTS,
    LIMIT_FACTORS,
    LIMIT_STEP_S,
    OUTAGE,
    PARTS,
    SEEDS,
    STANDARD_GPUS,
    TEAMS,
    WEEK_S,
    Week,
    cluster,
    is_standard,
    jobs,
    work_of,
)

CAPACITY = HOSTS * HOST_GPUS * WEEK_S


def test_a_seed_gives_the_same_week_and_another_one_another() -> None:
    assert jobs(Week(1)) == jobs(Week(1))
    assert jobs(Week(1)) != jobs(Week(2))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("load", [0.5, 0.8])
def test_the_load_and_the_parts_of_the_kinds_are_what_was_asked_for(seed: int, load: float) -> None:
    week = jobs(Week(seed, load))
    for kind, part in PARTS.items():
        work = sum(work_of(job) for job in week if job.kind == kind)
        assert work == pytest.approx(part * load * CAPACITY, rel=1e-3)


def test_jobs_come_in_the_week_in_order_and_have_names_of_their_own() -> None:
    week = jobs(Week(3))
    times = [job.submit_s for job in week]
    assert times == sorted(times)
    assert 0 <= times[0] < WEEK_S
    assert max(times) < WEEK_S + 3600 * 24
    assert len({job.name for job in week}) == len(week)


def test_limits_are_too_long_by_two_to_thirteen_times() -> None:
    low, high = LIMIT_FACTORS
    week = jobs(Week(1))
    assert all(job.max_runtime_s is not None for job in week)
    factors = [(job.max_runtime_s or 0) / job.duration_s for job in week if job.duration_s > 7200]
    most = high + LIMIT_STEP_S / 7200
    # The last job of a kind is cut to fit the load, its limit is not.
    assert sum(not low <= factor <= most for factor in factors) <= len(PARTS)
    assert 4 < math.exp(sum(map(math.log, factors)) / len(factors)) < 6.5


def test_teams_send_by_their_size_and_more_on_weekdays() -> None:
    week = [job for seed in SEEDS for job in jobs(Week(seed)) if job.kind == "interactive"]
    teams = Counter(job.queue for job in week)
    for team, gpus in TEAMS.items():
        assert teams[team] / len(week) == pytest.approx(gpus / 64, abs=0.05)
    days = Counter(int(job.submit_s // 86400) for job in week)
    assert days[4] > 1.5 * days[5]


def test_standard_jobs_fit_nominal_and_sixteen_gpus() -> None:
    for job in jobs(Week(2)):
        most = min(TEAMS[job.queue], STANDARD_GPUS)
        assert is_standard(job) == (job.milli <= 1000 * most)
    assert any(not is_standard(job) for seed in SEEDS for job in jobs(Week(seed)))
    assert any(is_standard(job) and job.milli == 16_000 for job in jobs(Week(2)))


def test_a_team_has_a_deadline_that_its_jobs_can_reach() -> None:
    near = [job for seed in SEEDS for job in jobs(Week(seed)) if job.deadline_s is not None]
    assert near
    assert all(job.submit_s + (job.max_runtime_s or 0) < DEADLINE_S for job in near)


def test_only_people_are_not_preempted() -> None:
    for job in jobs(Week(1)):
        assert job.preemptible == (job.kind != "interactive")


def test_the_cluster_is_shared_out_in_one_cohort_and_loses_a_host_for_a_while() -> None:
    made = cluster()
    assert sum(queue.nominal[GPU_TYPE] for queue in made.queues) == 1000 * HOSTS * HOST_GPUS
    assert {queue.cohort for queue in made.queues} == {"lab"}
    assert made.outages == (OUTAGE,)
    assert OUTAGE.node in {node.id for node in made.nodes}
