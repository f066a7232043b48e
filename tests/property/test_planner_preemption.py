# SPDX-License-Identifier: Apache-2.0
"""L6: who may be preempted for whom, that it helps, and that nothing less would do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from planner_worlds import calm, crowded, eager, law, policies

from gpuservice.planner.plan import plan
from gpuservice.planner.plan_types import Plan, Preemption
from gpuservice.planner.session import rank
from gpuservice.planner.snapshot import PendingJob, Policy, RunningGang, Snapshot
from tests.cluster_states import after, with_running
from tests.reference_books import Books, runtime_of

preempting = st.builds(
    lambda policy, kinds, protected: replace(
        policy, preempt=kinds, protected_s=protected, defragment=False, explain=False
    ),
    policies,
    st.sampled_from([eager, eager, *(frozenset({one}) for one in sorted(eager))]),
    st.sampled_from([0.0, 0.0, 1800.0]),
)


@law
@given(crowded, preempting)
def test_l6_only_whom_the_rules_allow_is_preempted(snapshot: Snapshot, policy: Policy) -> None:
    made = plan(snapshot, policy)
    wrong: list[str] = []
    books = Books(after(snapshot, made.starts))
    for one in made.preemptions:
        gang = _gangs(snapshot)[one.gang_id]
        job = _jobs(snapshot)[one.for_job_id]
        wrong.extend(_unfit(snapshot, policy, gang))
        due = made.due.get(job.job_id, job.due)
        wrong.extend(_unruly(books, policy, one, gang, replace(job, due=due)))
        books.sharing.take(gang.queue_id, books.amounts(gang.tasks), gang.preemptible, -1)
    assert wrong == []


def _unfit(snapshot: Snapshot, policy: Policy, gang: RunningGang) -> Iterable[str]:
    """Why a gang may be nobody's victim."""
    ran = snapshot.now - gang.started_at
    if not gang.preemptible:
        yield f"{gang.gang_id} is not preemptible"
    if ran < max(policy.protected_s, gang.protected_s):
        yield f"{gang.gang_id} ran {ran} s only"
    if gang.preempted >= policy.max_preemptions:
        yield f"{gang.gang_id} lost its place often enough"
    if gang.preempting:
        yield f"{gang.gang_id} goes already"


def _unruly(
    books: Books, policy: Policy, one: Preemption, gang: RunningGang, job: PendingJob
) -> Iterable[str]:
    """Why this gang may not be this job's victim."""
    queue = books.queues[job.queue_id]
    single = len({task.node_id for task in gang.tasks}) == 1
    same = gang.queue_id == job.queue_id
    kind = {"due_gang": "due_gangs", "short_job": "short_jobs"}.get(one.why, one.why)
    if kind not in policy.preempt or gang.job_id != one.job_id:
        yield f"{one} is not asked for"
    if one.why == "priority":
        if not same or job.priority <= gang.priority:
            yield f"{one}: not of a lower tier of the same queue"
        if queue.preemption not in ("lower_priority", "both"):
            yield f"{one}: the queue does not preempt"
    elif one.why == "reclaim":
        victims = books.queues.get(gang.queue_id)
        cohort = victims.cohort if victims else None
        if same or queue.cohort is None or cohort != queue.cohort:
            yield f"{one}: not another queue of the cohort"
        if queue.preemption not in ("reclaim", "both"):
            yield f"{one}: the queue does not reclaim"
        if all(books.sharing.over(gang.queue_id, kind) <= 0 for kind in books.amounts(gang.tasks)):
            yield f"{one}: its queue borrows nothing of that type"
    elif one.why == "due_gang":
        largest = max(len(node.devices) for node in books.nodes.values())
        gang_gpus = job.request.count * job.request.gpu_milli / 1000
        late = job.due is not None and job.due <= books.now
        if not same or not single or gang_gpus <= largest or not (late or policy.due is None):
            yield f"{one}: not a due gang of the same queue, or its victim is a gang itself"
    elif one.why == "short_job":
        yield from _not_short(books, one, gang, job)
    else:
        yield f"{one}: what for?"


def _not_short(books: Books, one: Preemption, gang: RunningGang, job: PendingJob) -> Iterable[str]:
    runtime = runtime_of(job, books.queues[job.queue_id])
    left = float("inf") if gang.promised_end is None else gang.promised_end - books.now
    size = sum(milli for task in gang.tasks for _, milli in task.devices)
    largest = max(len(node.devices) for node in books.nodes.values())
    wide = job.request.count * job.request.whole > largest
    if gang.queue_id != job.queue_id:
        yield f"{one}: another queue"
    if not wide and len({task.node_id for task in gang.tasks}) != 1:
        yield f"{one}: a gang goes for what is none"
    if runtime > 4 * 3600 or books.now - job.queued_at < 600 or left < 2 * runtime:
        yield f"{one}: not short, not long waiting, or its victim is nearly done"
    if job.request.gpu_memory_mib is None:
        most = job.request.count * job.request.gpu_milli
        if size > 2 * most:
            yield f"{one}: its victim is more than twice as large"


@law
@given(crowded, preempting)
def test_l6_once_the_victims_are_gone_the_preemptor_starts(
    snapshot: Snapshot, policy: Policy
) -> None:
    """With all that waited still waiting, victims included: nobody else takes the place."""
    made = plan(snapshot, policy)
    if not made.preemptions:
        return
    gone = {one.gang_id for one in made.preemptions}
    then = _then(snapshot, made, gone)
    started = {start.job_id for start in plan(then, replace(policy, preempt=calm)).starts}
    assert {one.for_job_id for one in made.preemptions} <= started


@law
@given(crowded, preempting)
def test_l6_with_one_victim_less_the_preemptor_does_not_start(
    snapshot: Snapshot, policy: Policy
) -> None:
    made = plan(snapshot, policy)
    for job_id in {one.for_job_id for one in made.preemptions}:
        mine = {one.gang_id for one in made.preemptions if one.for_job_id == job_id}
        for spared in sorted(mine):
            then = _then(snapshot, made, mine - {spared}, requeue=False)
            again = plan(then, replace(policy, preempt=calm))
            assert job_id not in {start.job_id for start in again.starts}, spared


@law
@given(crowded, preempting)
def test_l6_nobody_who_could_start_anyway_preempts(snapshot: Snapshot, policy: Policy) -> None:
    made = plan(snapshot, policy)
    started = Counter(start.job_id for start in made.starts)
    victims = [one.gang_id for one in made.preemptions]
    assert len(victims) == len(set(victims))
    for one in made.preemptions:
        job = _jobs(snapshot)[one.for_job_id]
        assert started[job.job_id] < job.elements
        assert job.blocked is None


def _gangs(snapshot: Snapshot) -> dict[str, RunningGang]:
    return {gang.gang_id: gang for gang in snapshot.running}


def _jobs(snapshot: Snapshot) -> dict[str, PendingJob]:
    return {job.job_id: job for job in snapshot.pending}


def _then(snapshot: Snapshot, made: Plan, gone: set[str], requeue: bool = True) -> Snapshot:
    """The moment after: starts made, ``gone`` gone (and waiting again), other victims going."""
    claimed = {one.for_job_id for one in made.preemptions}
    places = {one.job_id: one for one in (*made.promises, *made.claims)}
    going = {one.gang_id for one in made.preemptions} - gone
    started = Counter(start.job_id for start in made.starts)
    begun = after(snapshot, made.starts)
    pending = [
        replace(
            job,
            elements=job.elements - started[job.job_id],
            claimed=job.claimed or job.job_id in claimed,
            due=made.due.get(job.job_id, job.due),
            promised=_promised(snapshot, made, job),
            promise=places.get(job.job_id, job.promise),
        )
        for job in snapshot.pending
        if started[job.job_id] < job.elements
    ]
    victims = [gang for gang in begun.running if gang.gang_id in gone]
    if requeue:
        pending.extend(_waits_again(gang, number) for number, gang in enumerate(victims))
    left = [
        replace(gang, preempting=True, promised_end=snapshot.now + 1)  # as the plan reckons
        if gang.gang_id in going
        else gang
        for gang in begun.running
        if gang.gang_id not in gone
    ]
    given_back = dict(begun.headroom)
    for gang in victims:
        for key, amount in Books(replace(begun, running=())).taken_by(gang).items():
            given_back[key] += amount
    return replace(with_running(begun, left), pending=tuple(pending), headroom=given_back)


def _promised(snapshot: Snapshot, made: Plan, job: PendingJob) -> float | None:
    if job.promised is not None:
        return job.promised
    numbers = [at for at, one in enumerate(made.promises) if one.job_id == job.job_id]
    return rank(snapshot.now, numbers[0]) if numbers else None


def _waits_again(gang: RunningGang, number: int) -> PendingJob:
    assert gang.request is not None
    return PendingJob(
        f"{gang.job_id}-again-{number}",
        gang.project_id,
        gang.user_id,
        gang.queue_id,
        gang.request,
        gang.priority,
        gang.started_at - 1,
        -1 - number,
        gang.max_runtime_s,
        preemptible=True,
        preempted=gang.preempted + 1,
    )
