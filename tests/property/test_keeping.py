# SPDX-License-Identifier: Apache-2.0
"""What is kept between plans changes no plan."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from planner_worlds import after, jobs, policies, snapshots, with_running

from gpuservice.planner.keeping import Keeping
from gpuservice.planner.plan import plan
from gpuservice.planner.snapshot import Policy, Snapshot


@given(snapshots(), policies, st.data())
def test_a_plan_from_what_was_kept_is_the_plan_of_the_snapshot(
    snapshot: Snapshot, policy: Policy, data: st.DataObject
) -> None:
    keeping = Keeping()
    for step in range(3):
        made = keeping.plan(snapshot, policy)
        assert made == plan(snapshot, policy)
        done = {start.job_id for start in made.starts}
        left = tuple(
            replace(job, due=made.due.get(job.job_id, job.due))
            for job in snapshot.pending
            if job.job_id not in done
        )
        ends = dict.fromkeys(range(len(made.starts)), snapshot.now + 50)
        snapshot = after(snapshot, made.starts, ends)
        stays = [gang for gang in snapshot.running if data.draw(st.booleans(), label="stays")]
        more = data.draw(jobs(1000 * (step + 1), 3), label="more")
        snapshot = replace(
            with_running(snapshot, stays), pending=(*left, *more), now=snapshot.now + 7
        )
