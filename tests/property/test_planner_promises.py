# SPDX-License-Identifier: Apache-2.0
"""Promises over time: a virtual clock plans again at every event."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from planner_worlds import calm, eager, law, policies, snapshots

from gpuservice.planner.snapshot import Policy, Snapshot
from tests.cluster_worlds import PREDICTABLE
from tests.job_worlds import NOW
from tests.reference_planner import eligible, idle_faults
from tests.virtual_cluster import VirtualCluster

#: More passes than any of these small worlds needs.
MANY = 300

#: Without promises of an earlier plan, which made-up worlds could not keep.
FRESH = PREDICTABLE - {"promises"}


def _single(snapshot: Snapshot) -> Snapshot:
    """One element a job: a promise is for the next one."""
    line = tuple(replace(job, elements=1) for job in snapshot.pending)
    return replace(snapshot, pending=line)


@law
@given(snapshots(FRESH, waiting=8, nodes=4), policies)
def test_l5_no_promised_start_is_ever_put_off(snapshot: Snapshot, policy: Policy) -> None:
    """Limits are true and nothing arrives: not one promise is later than it first was."""
    steady = replace(policy, preempt=calm, defragment=False, explain=False)
    world = VirtualCluster(_single(snapshot), steady)
    world.run(MANY)
    assert world.slips == []


@law
@given(snapshots(FRESH, waiting=8, nodes=4), policies, st.integers(0, 7))
def test_l5_nothing_of_lower_rank_that_arrives_puts_a_promise_off(
    snapshot: Snapshot, policy: Policy, first: int
) -> None:
    """The same while jobs of the lowest tier arrive later."""
    steady = replace(policy, preempt=calm, defragment=False, explain=False)
    line = _single(snapshot).pending
    late = [
        (NOW + 25 * (number + 1), replace(job, priority=1, queued_at=NOW + 25 * (number + 1)))
        for number, job in enumerate(line[first:])
    ]
    world = VirtualCluster(replace(snapshot, pending=line[:first]), steady, arrivals=late)
    world.run(MANY)
    assert world.slips == []


@law
@given(snapshots(FRESH, waiting=8, nodes=4), policies, st.sampled_from([0.5, 0.9]))
def test_l7_no_two_jobs_push_each_other_out_and_every_job_starts(
    snapshot: Snapshot, policy: Policy, share: float
) -> None:
    """Arrivals, early ends, preemption of every kind: all is over some day, and all ran."""
    lively = replace(policy, preempt=eager, protected_s=20.0, explain=False)
    early = {job.job_id: share for job in snapshot.pending[::2]}
    late = [
        (NOW + 40 * number, replace(job, queued_at=NOW + 40 * number))
        for number, job in enumerate(snapshot.pending[3:], 1)
    ]
    world = VirtualCluster(
        replace(snapshot, pending=snapshot.pending[:3]), lively, early, arrivals=late
    )
    made = world.run(MANY)
    assert not world.snapshot.running
    assert not [pair for pair in world.pushed if pair[::-1] in world.pushed]
    # Whatever waits to the end finds no place in the empty cluster (or is too late for itself).
    assert not list(idle_faults(world.snapshot, replace(made, promises=())))
    assert not [
        job.job_id
        for job in world.snapshot.pending
        if job.claimed and eligible(world.snapshot, job)
    ]
