# SPDX-License-Identifier: Apache-2.0
"""What is kept between plans changes no plan."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from planner_worlds import policies, snapshots

from gpuservice.planner.keeping import Keeping
from gpuservice.planner.plan import plan
from gpuservice.planner.session import rank
from gpuservice.planner.snapshot import PendingJob, Policy, Snapshot
from tests.cluster_states import after, with_running


@given(snapshots(waiting=8, nodes=4), policies, st.lists(st.booleans(), min_size=8, max_size=8))
def test_a_plan_from_what_was_kept_is_the_plan_of_the_snapshot(
    whole: Snapshot, policy: Policy, stays: list[bool]
) -> None:
    """Over three passes some gangs end, some jobs start, and some come."""
    keeping = Keeping()
    waits, comes = whole.pending[:4], whole.pending[4:]
    snapshot = replace(whole, pending=waits)
    for number in range(3):
        made = keeping.plan(snapshot, policy)
        assert made == plan(snapshot, policy)
        begun = after(snapshot, made.starts, snapshot.now + 50)
        left = [gang for at, gang in enumerate(begun.running) if stays[(at + number) % len(stays)]]
        done = {start.job_id for start in made.starts}
        told = {one.job_id: (one, at) for at, one in enumerate(made.promises)}
        pending: list[PendingJob] = []
        for job in snapshot.pending:
            if job.job_id in done:
                continue
            one = replace(job, due=made.due.get(job.job_id, job.due))
            if job.job_id in told:
                promise, at = told[job.job_id]
                since = rank(snapshot.now, at) if job.promised is None else job.promised
                one = replace(one, promised=since, promise=promise)
            pending.append(one)
        snapshot = replace(
            with_running(begun, left),
            pending=(*pending, *comes[2 * number : 2 * number + 2]),
            now=snapshot.now + 7,
        )
