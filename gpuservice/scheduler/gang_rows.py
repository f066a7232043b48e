# SPDX-License-Identifier: Apache-2.0
"""From one start of a plan to the rows that record it: attempt, tasks, allocations, event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from gpuservice.domain.context import Cause
from gpuservice.domain.happenings import status_change
from gpuservice.domain.inventory import Node, Pool
from gpuservice.domain.isolation import one_project_at_a_time
from gpuservice.domain.ports import Ids
from gpuservice.domain.ports_store import NodeLoad, Share
from gpuservice.domain.states import AttemptStatus, JobStatus, TaskStatus
from gpuservice.domain.work import Allocation, Attempt, Event, Job, Task
from gpuservice.planner.plan_types import Start
from gpuservice.planner.snapshot import TaskPlacement

CAUSE = Cause(actor="service:scheduler")


@dataclass(frozen=True, slots=True)
class Gang:
    """The rows of one started element, not yet written."""

    job: Job
    index: int
    attempt: Attempt
    tasks: tuple[Task, ...]
    allocations: tuple[Allocation, ...]
    event: Event
    #: Nodes of it on which no other project may be.
    alone_on: frozenset[str]

    @property
    def shares(self) -> list[Share]:
        """What it takes of devices."""
        return [Share(one.device_id, one.milli) for one in self.allocations]

    @property
    def loads(self) -> list[NodeLoad]:
        """What it takes of nodes, one entry a node."""
        sums: dict[str, list[int]] = {}
        for task in self.tasks:
            entry = sums.setdefault(task.node_id, [0, 0, 0])
            entry[0] += task.vcpus
            entry[1] += task.memory_mib
            entry[2] += 1
        return [NodeLoad(node, *entry) for node, entry in sorted(sums.items())]

    @property
    def counted(self) -> dict[str, int]:
        """The GPUs (milli) that count against the job's project, by quota name."""
        total: dict[str, int] = {}
        for task in self.tasks:
            for name, amount in task.counted_gpus.items():
                total[name] = total.get(name, 0) + amount
        return total


class GangBuilder:
    """Builds gangs for one commit.

    :param nodes: the nodes of the plan by id; ``pools`` their pools by id.
    :param start_timeout_s: within it every rank must have reported that it started.
    """

    def __init__(
        self,
        ids: Ids,
        now: datetime,
        nodes: Mapping[str, Node],
        pools: Mapping[str, Pool],
        start_timeout_s: int,
    ) -> None:
        self._ids = ids
        self._now = now
        self._nodes = nodes
        self._pools = pools
        self._start_timeout = timedelta(seconds=start_timeout_s)

    def build(self, start: Start, job: Job, index: int, number: int, status: str) -> Gang:
        """The rows of ``start`` for element ``index``, whose attempt has ``number``.

        ``status`` is what the element is before (``queued``).
        """
        pool = self._pools[self._nodes[start.tasks[0].node_id].pool_id]
        attempt = self._attempt(start, job, index, number, pool)
        tasks: list[Task] = []
        allocations: list[Allocation] = []
        for placed in start.tasks:
            task = self._task(placed, attempt, pool, job)
            tasks.append(task)
            allocations.extend(self._allocations(placed, task, job))
        detail: dict[str, Any] = {
            "attempt": number,
            "tasks": len(tasks),
            "nodes": sorted({self._nodes[task.node_id].name for task in tasks}),
        }
        if job.is_array:
            detail["index"] = index
        event = status_change(
            self._ids,
            self._now,
            CAUSE,
            "job",
            "start",
            job.id,
            status,
            JobStatus.STARTING,
            project_id=job.project_id,
            detail=detail,
        )
        return Gang(
            job,
            index,
            attempt,
            tuple(tasks),
            tuple(allocations),
            event,
            alone_on=frozenset(
                task.node_id
                for task in tasks
                if one_project_at_a_time(pool.isolation, self._nodes[task.node_id].capabilities)
            ),
        )

    def _attempt(self, start: Start, job: Job, index: int, number: int, pool: Pool) -> Attempt:
        first = self._nodes[start.tasks[0].node_id]
        end = None
        if job.max_runtime_s is not None:
            end = self._now + timedelta(seconds=job.max_runtime_s)
        return Attempt(
            id=self._ids.new(),
            job_id=job.id,
            index=index,
            number=number,
            project_id=job.project_id,
            queue_id=job.queue_id,
            pool_id=pool.id,
            status=AttemptStatus.STARTING,
            due_at=self._now + self._start_timeout,
            created_at=self._now,
            tasks_count=len(start.tasks),
            gang_secret=self._ids.secret(),
            master_address=first.address,
            promised_end_at=end,
        )

    def _task(self, placed: TaskPlacement, attempt: Attempt, pool: Pool, job: Job) -> Task:
        node = self._nodes[placed.node_id]
        milli = sum(share for _, share in placed.devices)
        counted: dict[str, int] = {}
        if milli and pool.project_id != job.project_id:
            counted = {"gpus": milli, f"gpus:{node.gpu_type}": milli}
        return Task(
            id=self._ids.new(),
            attempt_id=attempt.id,
            job_id=job.id,
            index=attempt.index,
            attempt=attempt.number,
            rank=placed.rank,
            project_id=job.project_id,
            node_id=node.id,
            node_epoch=node.epoch,
            status=TaskStatus.ASSIGNED,
            gpu_milli=milli,
            counted_gpus=counted,
            vcpus=placed.vcpus,
            memory_mib=placed.memory_mib,
            address=node.address,
            created_at=self._now,
        )

    def _allocations(self, placed: TaskPlacement, task: Task, job: Job) -> Sequence[Allocation]:
        return [
            Allocation(
                id=self._ids.new(),
                task_id=task.id,
                device_id=device_id,
                node_id=task.node_id,
                job_id=task.job_id,
                project_id=task.project_id,
                milli=milli,
                allocated_at=self._now,
                queue_id=job.queue_id,
                user_id=job.user_id,
            )
            for device_id, milli in placed.devices
        ]


def by_project(gangs: Iterable[Gang]) -> dict[str, list[Gang]]:
    """In order of project."""
    grouped: dict[str, list[Gang]] = {}
    for gang in gangs:
        grouped.setdefault(gang.job.project_id, []).append(gang)
    return dict(sorted(grouped.items()))


def takes(gangs: Iterable[Gang]) -> Iterator[tuple[str, bool, list[NodeLoad]]]:
    """What a transaction takes of nodes, in its order: (project, whether it must be alone there,
    loads). Each raises the revision of its nodes once."""
    for project, theirs in by_project(gangs).items():
        for alone in (True, False):
            loads = [
                load
                for gang in theirs
                for load in gang.loads
                if (load.node_id in gang.alone_on) is alone
            ]
            if loads:
                yield project, alone, loads
