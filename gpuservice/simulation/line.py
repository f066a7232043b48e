# SPDX-License-Identifier: Apache-2.0
"""Who waits, and what the session is told of it: dependencies, arrays, claims and limits."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence

from gpuservice.domain.dependencies import MET, NEVER, verdict
from gpuservice.domain.reasons import Reason
from gpuservice.planner.session import Session
from gpuservice.planner.snapshot import PendingJob, QueueState
from gpuservice.simulation.records import Element, Record
from gpuservice.simulation.workload import WorkloadJob


class Line:
    """The jobs that came and have not ended. ``depth``: elements that wait and are eligible;
    ``offered``: jobs that the next plan may start; ``open``: those that have not ended, those to
    come included."""

    def __init__(
        self,
        session: Session,
        queues: Mapping[str, QueueState],
        jobs: Sequence[WorkloadJob],
        oracle: bool,
        remaining_limits: bool,
    ) -> None:
        self._session = session
        self._remaining = remaining_limits
        self.records = _records(queues, jobs, oracle)
        self.by_id = {record.job_id: record for record in self.records}
        self.depth = 0
        self.open = len(self.records)
        self.offered = 0
        self._named = {record.job.name: record for record in self.records}
        self._dependents: dict[str, list[Record]] = {}
        for record in self.records:
            for name, _ in record.job.depends_on:
                self._dependents.setdefault(name, []).append(record)
        self._held_back: set[str] = set()  # arrived, but a dependency is not met
        self._stale: dict[str, Record] = {}  # claims whose victims are gone
        self._blocked: dict[str, list[Record]] = {}  # by project

    def waits(self, job_id: str) -> bool:
        """Whether any of the job waits (or cannot even wait yet)."""
        record = self.by_id[job_id]
        return bool(record.waiting) or job_id in self._held_back

    def arrive(self, job_id: str, now: float) -> None:
        """A job was submitted."""
        record = self.by_id[job_id]
        self._held_back.add(job_id)
        self._judge(record, now)

    def leave(self, record: Record) -> Element:
        """One element starts: it waits no more."""
        element = record.waiting.popleft()
        record.running += 1
        record.claims, record.promised, record.standing_s = 0, None, None
        self._stale.pop(record.job_id, None)
        self.depth -= 1
        record.offered -= 1
        if not record.offered:
            self.offered -= 1
        return element

    def resume(self, record: Record) -> None:
        """One element runs already, as the session was told."""
        record.waiting.popleft()
        record.running += 1
        self.depth -= 1
        self._offer(record)

    def started(self, record: Record, now: float) -> bool:
        """Whether somebody waited for that start, and may now start too."""
        if len(record.attempts) == 1:
            return self._tell_dependents(record, now)
        return False

    def again(self, record: Record, element: Element) -> None:
        """An element that ran has its old place in line again."""
        record.running -= 1
        record.waiting.appendleft(element)
        self.depth += 1
        self._offer(record)

    def ended(self, record: Record, outcome: str, now: float) -> None:
        """An element ran for the last time."""
        record.running -= 1
        self._close(record, outcome, now, 1)
        if record.waiting:
            self._offer(record)

    def give_up(self, job_id: str, now: float, why: str) -> None:
        """What waits of the job will never run."""
        record = self.by_id[job_id]
        record.failure = why
        if job_id in self._held_back:
            self._held_back.discard(job_id)
            self._close(record, "failed", now, record.unfinished)
            return
        count = len(record.waiting)
        self.depth -= count
        record.waiting.clear()
        self._offer(record)
        self._close(record, "failed", now, count)

    def limits(self, record: Record, element: Element) -> tuple[int | None, int | None]:
        """The limit that ends an attempt of the element, and the one that the planner knows."""
        return self._rest(record.limit, element), self._rest(record.told, element)

    # -- preemption

    def claim(self, job_id: str) -> None:
        """Something is being stopped for the job."""
        record = self.by_id[job_id]
        record.claims += 1
        self._stale.pop(job_id, None)
        if record.claims == 1 and record.offered:
            self._submit(record)

    def release_claim(self, job_id: str) -> None:
        """What was stopped for it is gone."""
        record = self.by_id[job_id]
        if record.claims:
            record.claims -= 1
            if not record.claims and record.offered:
                record.claims = 1  # until the plan of this moment is made
                self._stale[job_id] = record

    def drop_claims(self) -> bool:
        """After a plan: claims of which nothing came end. Whether there were any."""
        stale, self._stale = self._stale, {}
        for record in stale.values():
            record.claims = 0
            if record.offered:
                self._submit(record)
        return bool(stale)

    # -- quota

    def block(self, record: Record) -> None:
        """The project's quota has no room for it: not before something of the project ends."""
        record.quota_blocked = True
        self.offered -= 1
        self._blocked.setdefault(record.job.project, []).append(record)
        self._submit(record)

    def unblock(self, project: str) -> None:
        """Something of the project's quota is free again."""
        for record in self._blocked.pop(project, ()):
            record.quota_blocked = False
            if record.offered:
                self.offered += 1
                self._submit(record)

    # -- inside

    def _judge(self, record: Record, now: float) -> bool:
        """Let a job that arrived wait in line if what it depends on allows; whether it does."""
        others = {
            name: (self._named[name].status, self._named[name].started)
            for name, _ in record.job.depends_on
        }
        answer, _ = verdict(record.job.depends_on, others)
        if answer == NEVER:
            self.give_up(record.job_id, now, "dependency")
        if answer != MET:
            return False
        self._held_back.discard(record.job_id)
        record.queued_at = record.job.since_s if now <= record.job.submit_s else now
        record.waiting = deque(
            Element(index, record.job.duration_s) for index in range(record.job.array_size)
        )
        self.depth += len(record.waiting)
        self._offer(record)
        return True

    def _tell_dependents(self, record: Record, now: float) -> bool:
        any_met = False
        for other in self._dependents.get(record.job.name, ()):
            if other.job_id in self._held_back:
                any_met |= self._judge(other, now)
        return any_met

    def _close(self, record: Record, outcome: str, now: float, count: int) -> None:
        record.outcomes.add(outcome)
        record.unfinished -= count
        if record.unfinished:
            return
        record.ended_s = now
        self.open -= 1
        for status in ("failed", "timed_out", "succeeded"):
            if status in record.outcomes:
                record.status = status
                break
        if record.job.array_size > 1 and record.status == "timed_out":
            record.status = "failed"
        self._tell_dependents(record, now)

    def _offer(self, record: Record) -> None:
        """Tell the session how many elements may start."""
        may = len(record.waiting)
        if record.job.max_running is not None:
            may = min(may, record.job.max_running - record.running)
        if may == record.offered:
            return
        if not record.quota_blocked:
            self.offered += (may > 0) - (record.offered > 0)
        record.offered = may
        if may > 0:
            self._submit(record)
        else:
            self._session.withdraw(record.job_id)

    def _submit(self, record: Record) -> None:
        job, element = record.job, record.waiting[0]
        self._session.submit(
            PendingJob(
                record.job_id,
                job.project,
                job.user,
                job.queue,
                job.request,
                job.priority,
                record.queued_at,
                record.sequence,
                self._rest(record.told, element),
                record.offered,
                blocked=Reason.PROJECT_QUOTA if record.quota_blocked else None,
                kind=job.kind,
                preemptible=job.preemptible,
                deadline=job.deadline_s,
                due=record.due,
                promised=record.promised,
                claimed=record.claims > 0,
                preempted=element.preempted,
            )
        )

    def _rest(self, limit: int | None, element: Element) -> int | None:
        if limit is None or not self._remaining or not element.ran_s:
            return limit
        return max(1, math.ceil(limit - element.ran_s))


def _records(
    queues: Mapping[str, QueueState], jobs: Sequence[WorkloadJob], oracle: bool
) -> list[Record]:
    """One record a job, by submission. Names that several jobs have get a number."""
    names: dict[str, int] = {}
    for job in jobs:
        names[job.name] = names.get(job.name, 0) + 1
    ordered = sorted(jobs, key=lambda job: job.submit_s)
    records = []
    for sequence, job in enumerate(ordered):
        job_id = job.name if names[job.name] == 1 else f"{job.name}~{sequence}"
        limit = job.max_runtime_s
        if limit is None:
            limit = queues[job.queue].default_runtime_s
        runs = job.duration_s if limit is None else min(job.duration_s, limit)
        records.append(
            Record(
                job,
                job_id,
                sequence,
                limit,
                max(1, math.ceil(runs)) if oracle else limit,
                (job.queue, job.project, job.user),
                unfinished=job.array_size,
                due=job.due_s,
                promised=job.promised_s,
            )
        )
    return records
