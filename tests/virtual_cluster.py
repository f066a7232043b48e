# SPDX-License-Identifier: Apache-2.0
"""A cluster on a virtual clock: plans again at every event and does what the plan says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from gpuservice.planner.plan import plan
from gpuservice.planner.plan_types import Plan, Preemption, Start
from gpuservice.planner.session import rank
from gpuservice.planner.snapshot import PendingJob, Policy, RunningGang, Snapshot
from tests.cluster_states import gang_of, with_running
from tests.reference_books import INFINITE, Books, runtime_of


class VirtualCluster:
    """A snapshot that goes forward. Jobs run for their whole limit (``share`` shortens some).

    ``started``: the moments at which each job began; ``pushed``: (preemptor, victim) pairs;
    ``promised``: the earliest start each job was ever promised.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        share: Mapping[str, float] | None = None,
        arrivals: Iterable[tuple[float, PendingJob]] = (),
        grace_s: float = 10.0,
    ) -> None:
        self.policy, self.grace_s = policy, grace_s
        self._share = share or {}
        self._jobs = {job.job_id: job for job in snapshot.pending}
        self._arrivals = sorted(arrivals, key=lambda pair: (pair[0], pair[1].sequence))
        self._ends: dict[str, float] = {}
        self._quota = dict(snapshot.headroom)
        self._number = 0
        self.started: dict[str, list[float]] = {}
        self.promised: dict[str, float] = {}
        self.pushed: set[tuple[str, str]] = set()
        self.slips: list[str] = []
        for gang in snapshot.running:
            self._ends[gang.gang_id] = INFINITE if gang.promised_end is None else gang.promised_end
            self._jobs[gang.job_id] = _again(gang, snapshot.now)
            for key, amount in self._takes(snapshot, gang).items():
                self._quota[key] += amount
        self.snapshot = snapshot

    def step(self) -> Plan:
        """Plan, and do what the plan says."""
        made = plan(self.snapshot, self.policy)
        pending = {job.job_id: job for job in self.snapshot.pending}
        running = {gang.gang_id: gang for gang in self.snapshot.running}
        self._keep(made, pending)
        for start in made.starts:
            gang = self._start(start, pending)
            running[gang.gang_id] = gang
        places = {one.job_id: one for one in made.claims}
        for one in made.preemptions:
            self._preempt(one, pending, running)
            waits = pending[one.for_job_id]
            pending[waits.job_id] = replace(waits, promise=places.get(waits.job_id, waits.promise))
        self._set(self.snapshot.now, pending, running)
        return made

    def advance(self) -> bool:
        """Go to the next event; False when nothing more will happen."""
        now = self.snapshot.now
        moments = [*self._ends.values(), *(moment for moment, _ in self._arrivals)]
        if self.snapshot.pending:
            moments.extend(one.starts_at for one in self.snapshot.reservations)
            moments.extend(one.ends_at for one in self.snapshot.reservations)
            moments.extend(job.due for job in self.snapshot.pending if job.due is not None)
            moments.extend(self.promised.get(job.job_id, now) for job in self.snapshot.pending)
        ahead = [moment for moment in moments if now < moment < INFINITE]
        if not ahead:
            return False
        now = min(ahead)
        pending = {job.job_id: job for job in self.snapshot.pending}
        running = {gang.gang_id: gang for gang in self.snapshot.running}
        for ident in [one for one, end in self._ends.items() if end <= now]:
            del self._ends[ident]
            gang = running.pop(ident)
            if gang.preempting:
                self._again(gang, pending)
        while self._arrivals and self._arrivals[0][0] <= now:
            _, job = self._arrivals.pop(0)
            pending[job.job_id] = self._jobs[job.job_id] = job
        self._set(now, pending, running)
        return True

    def run(self, passes: int) -> Plan:
        """Until nothing happens any more; the last plan."""
        made = self.step()
        for _ in range(passes):
            if not self.advance():
                return made
            made = self.step()
        raise AssertionError(f"still something to do after {passes} passes")

    def _keep(self, made: Plan, pending: dict[str, PendingJob]) -> None:
        """Keep due times and promises, and note a promise that is later than it was."""
        now = self.snapshot.now
        for job_id, due in made.due.items():
            pending[job_id] = replace(pending[job_id], due=due)
        for number, promise in enumerate(made.promises):
            job = pending[promise.job_id]
            since = rank(now, number) if job.promised is None else job.promised
            pending[job.job_id] = replace(job, promised=since, promise=promise)
            first = self.promised.setdefault(job.job_id, promise.start)
            if promise.start > first:
                self.slips.append(f"{now}: {job.job_id} from {first} to {promise.start}")
            self.promised[job.job_id] = min(first, promise.start)
        gone = {start.job_id for start in made.starts}
        for job_id, start in self.promised.items():
            if job_id in pending and job_id not in gone and now >= start:
                self.slips.append(f"{now}: {job_id} was promised {start} and waits")

    def _start(self, start: Start, pending: dict[str, PendingJob]) -> RunningGang:
        now, job = self.snapshot.now, pending.pop(start.job_id)
        if job.elements > 1:
            pending[job.job_id] = replace(job, elements=job.elements - 1)
        queue = next(one for one in self.snapshot.queues if one.id == job.queue_id)
        limit = runtime_of(job, queue)
        self._number += 1
        end = None if limit == INFINITE else now + limit
        gang = gang_of(job, start.tasks, now, end, number=self._number)
        self._ends[gang.gang_id] = now + limit * self._share.get(job.job_id, 1.0)
        self.started.setdefault(job.job_id, []).append(now)
        if now > self.promised.pop(job.job_id, now):
            self.slips.append(f"{now}: {job.job_id} started later than promised")
        return gang

    def _preempt(
        self, one: Preemption, pending: dict[str, PendingJob], running: dict[str, RunningGang]
    ) -> None:
        gang = running[one.gang_id]
        until = min(self.snapshot.now + self.grace_s, self._ends[one.gang_id])
        self._ends[one.gang_id] = until
        running[one.gang_id] = replace(gang, preempting=True, promised_end=until)
        pending[one.for_job_id] = replace(pending[one.for_job_id], claimed=True)
        self.pushed.add((one.for_job_id, gang.job_id))

    def _again(self, gang: RunningGang, pending: dict[str, PendingJob]) -> None:
        """A victim waits again, at its place in line."""
        waits = pending.get(gang.job_id)
        if waits is not None:
            again = replace(waits, elements=waits.elements + 1)
        else:
            again = replace(self._jobs[gang.job_id], elements=1)
        pending[gang.job_id] = replace(again, preempted=gang.preempted + 1)

    def _set(
        self, now: float, pending: dict[str, PendingJob], running: dict[str, RunningGang]
    ) -> None:
        busy = with_running(replace(self.snapshot, now=now), running.values())
        left = dict(self._quota)
        for gang in busy.running:
            for key, amount in self._takes(busy, gang).items():
                left[key] -= amount
        self.snapshot = replace(busy, pending=tuple(pending.values()), headroom=left)

    def _takes(self, snapshot: Snapshot, gang: RunningGang) -> dict[tuple[str, str], int]:
        """What a gang takes of the limited quotas."""
        books = Books(replace(snapshot, running=(), headroom=self._quota))
        books.start(_again(gang, snapshot.now), gang.tasks)
        return {key: self._quota[key] - left for key, left in books.left.items()}


def _again(gang: RunningGang, now: float) -> PendingJob:
    """A running gang's job, as it waited before it began."""
    assert gang.request is not None
    return PendingJob(
        gang.job_id,
        gang.project_id,
        gang.user_id,
        gang.queue_id,
        gang.request,
        gang.priority,
        min(gang.started_at, now) - 1,
        -1,
        gang.max_runtime_s,
        preemptible=gang.preemptible,
        preempted=gang.preempted,
    )
