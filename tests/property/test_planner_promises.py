# SPDX-License-Identifier: Apache-2.0
"""Promises over time: a small virtual clock plans again at every end of a job."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st
from planner_worlds import NOW, snapshots, with_running

from gpuservice.planner.plan import plan
from gpuservice.planner.plan_types import Plan
from gpuservice.planner.snapshot import PendingJob, Policy, RunningGang, Snapshot

#: More passes than any of these small worlds needs.
MANY = 200


@dataclass
class World:
    """A snapshot that goes forward. Jobs run for their whole limit (``early`` shortens some)."""

    snapshot: Snapshot
    policy: Policy
    early: dict[str, float] = field(default_factory=dict)
    real_ends: list[tuple[float, RunningGang]] = field(default_factory=list)
    started_at: dict[str, float] = field(default_factory=dict)

    def step(self) -> Plan:
        """Plan, and start what the plan says."""
        made = plan(self.snapshot, self.policy)
        jobs = {job.job_id: job for job in self.snapshot.pending}
        for start in made.starts:
            job = jobs[start.job_id]
            limit = float(job.max_runtime_s or 0)
            now = self.snapshot.now
            gang = RunningGang(job.job_id, job.project_id, start.tasks, now + limit)
            self.real_ends.append((now + limit * self.early.get(job.job_id, 1.0), gang))
            self.started_at[job.job_id] = now
        gone = {start.job_id for start in made.starts}
        self._set(tuple(job for job in self.snapshot.pending if job.job_id not in gone))
        return made

    def advance(self) -> bool:
        """Go to the next end; False when nothing runs."""
        if not self.real_ends:
            return False
        now = min(end for end, _ in self.real_ends)
        self.real_ends = [(end, gang) for end, gang in self.real_ends if end > now]
        self.snapshot = replace(self.snapshot, now=now)
        self._set(self.snapshot.pending)
        return True

    def _set(self, pending: tuple[PendingJob, ...]) -> None:
        running = [gang for _, gang in self.real_ends]
        self.snapshot = replace(with_running(self.snapshot, running), pending=pending)


def _world(snapshot: Snapshot, policy: Policy, early: dict[str, float] | None = None) -> World:
    """A world in which everything has a limit and every node of today stays as it is."""
    limited = replace(
        snapshot,
        pending=tuple(
            replace(job, elements=1, blocked=None, max_runtime_s=job.max_runtime_s or 300)
            for job in snapshot.pending
        ),
        running=tuple(
            replace(gang, promised_end=max(gang.promised_end or 0.0, NOW + 45))
            for gang in snapshot.running
        ),
    )
    ends = [(float(gang.promised_end or 0.0), gang) for gang in limited.running]
    return World(limited, policy, early or {}, ends)


@given(snapshots(quota=False), st.sampled_from([1, 2, -1]))
def test_l5_no_promised_start_of_the_head_is_ever_put_off(
    snapshot: Snapshot, promises: int
) -> None:
    """Nothing new arrives, so the first job that was promised a start never starts later."""
    world = _world(snapshot, Policy(promises=promises))
    promised: dict[str, float] = {}
    for _ in range(MANY):
        made = world.step()
        if made.promises:
            head = made.promises[0]
            promised[head.job_id] = min(head.start, promised.get(head.job_id, head.start))
        if not world.advance():
            break
    for job_id, start in promised.items():
        assert world.started_at[job_id] <= start


@given(snapshots(quota=False), st.sampled_from([0, 1, -1]))
def test_every_possible_job_starts_in_the_end(snapshot: Snapshot, promises: int) -> None:
    """Jobs end early or on time; whatever is left at last is impossible or lacks its nodes."""
    early = {job.job_id: 0.5 for job in snapshot.pending[::2]}
    world = _world(snapshot, Policy(promises=promises), early)
    made = world.step()
    for _ in range(MANY):
        if not world.advance():
            break
        made = world.step()
    assert not world.real_ends
    closed = {"impossible", "queue_closed", "node_unavailable", "held"}
    idle_but_short = {"insufficient_gpus", "fragmented", "host_resources", "topology"}
    for entry in made.waiting:
        code = entry.reasons[0].code
        if code in idle_but_short:  # broken devices or nodes, or nodes that were never built
            assert entry.estimated_start is None
        else:
            assert code in closed


@given(snapshots(), st.sampled_from([1, 2, -1]))
def test_a_promise_fits_when_it_is_due(snapshot: Snapshot, promises: int) -> None:
    """At each promised start, what ends by its limit has made room for all promises of then."""
    made = plan(snapshot, Policy(promises=promises, explain=False))
    jobs = {job.job_id: job for job in snapshot.pending}
    held = [(gang.promised_end, gang.tasks) for gang in snapshot.running]
    for start in made.starts:
        limit = jobs[start.job_id].max_runtime_s
        held.append((None if limit is None else snapshot.now + limit, start.tasks))
    for promise in made.promises:
        use: dict[str, int] = {}
        for end, tasks in held:
            if end is None or max(end, snapshot.now + 1) > promise.start:
                _add(use, tasks)
        for other in made.promises:
            if other.start <= promise.start < other.end:
                _add(use, other.tasks)
        assert promise.start > snapshot.now
        assert all(milli <= 1000 for milli in use.values())


def _add(use: dict[str, int], tasks: tuple[object, ...]) -> None:
    for task in tasks:
        for device, milli in task.devices:  # type: ignore[attr-defined]
            use[device] = use.get(device, 0) + milli
