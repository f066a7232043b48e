# SPDX-License-Identifier: Apache-2.0
"""What holds for every workload under every policy. That nothing is given twice is checked by the
replay itself, which counts what is held apart from the planner."""

from __future__ import annotations

import io
from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from replays import attempts, replay

from gpuservice.planner.snapshot import Request
from gpuservice.simulation import report
from gpuservice.simulation.cluster import Cluster, Outage, from_spec
from gpuservice.simulation.policies import POLICIES
from gpuservice.simulation.replay import Replayed
from gpuservice.simulation.workload import WorkloadJob

SPEC = "2x4:a100-80gb+1x2:h100"

requests = st.one_of(
    st.builds(lambda gpus: Request(gpu_milli=1000 * gpus), st.integers(0, 4)),
    st.builds(lambda milli: Request(gpu_milli=milli), st.sampled_from((250, 500, 810))),
    st.builds(
        lambda count, gpus, less: Request(count, max(1, count - less), 1000 * gpus),
        st.integers(1, 2),
        st.integers(1, 4),
        st.integers(0, 1),
    ),
)


@st.composite
def jobs(draw: st.DrawFn, arrays: bool = True) -> list[WorkloadJob]:
    made = []
    for number in range(draw(st.integers(1, 12))):
        runs = draw(st.integers(0, 20))
        made.append(
            WorkloadJob(
                f"j{number}",
                draw(st.integers(0, 15)),
                runs,
                draw(requests),
                project=draw(st.sampled_from("pq")),
                user=draw(st.sampled_from("uv")),
                priority=draw(st.sampled_from((100, 500))),
                max_runtime_s=draw(st.sampled_from((None, max(1, runs), runs + 7, 5))),
                array_size=draw(st.sampled_from((1, 1, 3) if arrays else (1,))),
                max_running=draw(st.sampled_from((None, 1))),
            )
        )
    return made


FEW = settings(max_examples=max(20, settings.default.max_examples // 3))

outages = st.lists(
    st.builds(
        Outage, st.sampled_from(("n0000", "n0001", "n0002")), st.integers(0, 30), st.integers(1, 9)
    ),
    max_size=2,
)


def _cluster(away: list[Outage]) -> Cluster:
    return replace(from_spec(SPEC), outages=tuple(away))


def _bytes(replayed: Replayed) -> str:
    text = io.StringIO()
    report.write(report.result(replayed, from_spec(SPEC).nodes), text)
    return text.getvalue()


@FEW
@given(jobs(), outages, st.sampled_from(sorted(POLICIES)))
def test_every_job_that_fits_the_idle_cluster_ends(
    work: list[WorkloadJob], away: list[Outage], policy: str
) -> None:
    made = replay(work, _cluster(away), policy, lost_s=3)
    for record in made.records:
        assert record.status != "queued", record.job
        for index in range(record.job.array_size):
            ran = [one for one in record.attempts if one.index == index]
            assert [one.outcome for one in ran[:-1]] == ["node_failure"] * (len(ran) - 1)
            assert ran[0].start_s >= record.job.submit_s
            assert all(one.end_s <= after.start_s for one, after in pairwise(ran))
            needs = min(record.job.duration_s, record.limit or record.job.duration_s)
            assert away or ran[-1].end_s - ran[-1].start_s == needs


@FEW
@given(jobs(), outages, st.sampled_from(sorted(POLICIES)))
def test_the_same_input_gives_the_same_bytes(
    work: list[WorkloadJob], away: list[Outage], policy: str
) -> None:
    first, second = (_bytes(replay(work, _cluster(away), policy)) for _ in range(2))
    assert first == second


@FEW
@given(jobs(arrays=False), outages, st.sampled_from(sorted(POLICIES)))
def test_a_plan_leaves_nothing_that_would_start(
    work: list[WorkloadJob], away: list[Outage], policy: str
) -> None:
    """Planning again at the same moment starts nothing that the first plan did not."""
    once = replay(work, _cluster(away), policy)
    again = replay(work, _cluster(away), policy, replan=True)
    assert attempts(once) == attempts(again)


@FEW
@given(jobs(arrays=False), st.sampled_from(("easy", "conservative", "default")))
def test_no_promise_slips_while_limits_are_true(work: list[WorkloadJob], policy: str) -> None:
    true = [
        replace(one, duration_s=runs, max_runtime_s=runs, priority=500)
        for one in work
        for runs in (max(1, int(one.duration_s)),)
    ]
    # One tier: who is of a higher one may come late and still go first.
    for record in replay(true, _cluster([]), policy).records:
        assert record.slip_s == 0, record.job
