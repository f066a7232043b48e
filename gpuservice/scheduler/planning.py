# SPDX-License-Identifier: Apache-2.0
"""The port ``Planning``: a dry run on the state of the moment, one at a time in a process."""

from __future__ import annotations

import threading
from dataclasses import replace

from gpuservice.domain import moments
from gpuservice.domain.errors import Busy
from gpuservice.domain.jobspec import JobSpec
from gpuservice.domain.ports import DryRun
from gpuservice.domain.ports_store import Store
from gpuservice.domain.work import Job
from gpuservice.planner.plan import plan
from gpuservice.planner.snapshot import PendingJob, Policy
from gpuservice.scheduler.collect import Collected, Collector
from gpuservice.scheduler.explaining import body_of
from gpuservice.scheduler.running_state import request_of

#: A dry run waits this long (seconds) for the one before it.
_PATIENCE_S = 2.0
_NEW = "dry-run"


class SnapshotPlanning:
    """Plans one hypothetical job behind everything that waits now."""

    def __init__(self, store: Store, collector: Collector, policy: Policy) -> None:
        self._store = store
        self._collector = collector
        self._policy = policy
        self._lock = threading.Lock()

    def dry_run(self, job: Job) -> DryRun:
        """What would happen to the job; raises ``Busy`` when too many ask at once."""
        if not self._lock.acquire(timeout=_PATIENCE_S):
            raise Busy("Too many dry runs at once; try again.", meta={"retry_after_s": 2})
        try:
            return self._run(job, self._store.read(self._collector.collect))
        finally:
            self._lock.release()

    def _run(self, job: Job, collected: Collected) -> DryRun:
        snapshot = collected.snapshot
        pending = PendingJob(
            job_id=_NEW,
            project_id=job.project_id,
            user_id=job.user_id,
            queue_id=job.queue_id,
            request=request_of(JobSpec.from_dict(job.spec)),
            priority=job.priority,
            queued_at=snapshot.now,
            sequence=int(snapshot.now * 1e6),
            max_runtime_s=job.max_runtime_s,
            kind=job.kind,
            preemptible=job.preemptible,
            deadline=None if job.deadline_at is None else job.deadline_at.timestamp(),
        )
        policy = replace(self._policy, explain=True, focus=_NEW)
        made = plan(replace(snapshot, pending=(*snapshot.pending, pending)), policy)
        for start in made.starts:
            if start.job_id == _NEW:
                return DryRun(
                    "starts_now",
                    tuple(
                        {
                            "rank": task.rank,
                            "node": collected.nodes[task.node_id].name,
                            "devices": [device for device, _ in task.devices],
                        }
                        for task in start.tasks
                    ),
                )
        entry = next(one for one in made.waiting if one.job_id == _NEW)
        status = "impossible" if entry.reasons[0].code == "impossible" else "waits"
        body = body_of(entry)
        body["holders"] = [one for one in body["holders"] if one["project_id"] == job.project_id]
        return DryRun(status, (), body, moments.reckoned(entry.estimated_start))
