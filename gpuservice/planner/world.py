# SPDX-License-Identifier: Apache-2.0
"""The state that passes work on, kept between passes and changed by what happens.

Built from a snapshot or step by step: the same facts give the same plans either way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuservice.planner.building import build
from gpuservice.planner.capacity import Candidates, View, Views, may_fit
from gpuservice.planner.cohorts import QueueQuotas
from gpuservice.planner.feasibility import Feasibility
from gpuservice.planner.holds import Holdings, end_of
from gpuservice.planner.ledger import NOBODY, Bools, Ints
from gpuservice.planner.levels import Levels
from gpuservice.planner.line import Line
from gpuservice.planner.quota import Headroom, milli_of_task
from gpuservice.planner.running import Gang, Running
from gpuservice.planner.shape_columns import ShapeColumns
from gpuservice.planner.snapshot import (
    NodeState,
    PendingJob,
    PoolState,
    QueueState,
    Request,
    Reservation,
    RunningGang,
    Snapshot,
    TaskPlacement,
)
from gpuservice.planner.worth import Worth


@dataclass(slots=True)
class Shape:
    """Equal requests on the same pools: they fit or fail alike, but for limits and quotas.

    ``tried``: where the pools' journals ended when ``fits`` was last worked out. ``gang``: more
    GPUs than any node has.
    """

    number: int
    request: Request
    pools: tuple[str, ...]  # of the queue, also those without nodes
    views: tuple[View, ...]
    where: tuple[Candidates, ...]
    each: tuple[int, ...]  # milli-GPUs of a task, by pool
    types: tuple[str, ...]  # GPU types, by pool
    gang: bool
    impossible: bool | None = None
    fits: bool = False
    tried: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Share:
    """Whose a job is, level by level, for fair shares."""

    queue_id: str
    project_id: str
    user_id: str


class World:
    """One cluster, its queues, what runs and what waits."""

    def __init__(
        self,
        nodes: Iterable[NodeState],
        pools: Iterable[PoolState],
        queues: Iterable[QueueState],
        headroom: Mapping[tuple[str, str], int],
        reservations: Iterable[Reservation] = (),
    ) -> None:
        self.pools = {pool.id: pool for pool in pools}
        self.queues = {queue.id: queue for queue in queues}
        self.reservations = tuple(reservations)
        self.ledger = build(nodes)
        self.layout = self.ledger.layout
        self.feasibility = Feasibility(self.layout.nodes, tuple(self.pools.values()), self.ledger)
        self.headroom = Headroom(headroom, self.pools)
        self.views = Views(self.ledger)
        self.holdings = Holdings(self.layout)
        self.quotas = QueueQuotas.of(self.queues.values())
        self.running = Running()
        self.gangs = self.running.gangs
        self.on_row: list[set[str]] = [set() for _ in self.layout.nodes]
        self.gpus = max(int(self.layout.healthy.sum()), 1)
        self.shapes: list[Shape] = []
        self.worth = Worth(self)
        self.shares: list[Share] = []
        self.levels = Levels(self.queues)
        self.columns = ShapeColumns(self.shapes)
        self._open_shares: Bools = np.zeros(0, dtype=np.bool_)
        self._shape_of: dict[tuple[object, ...], int] = {}
        self._share_of: dict[tuple[str, str, str], int] = {}
        self._same: dict[int, tuple[Request, int]] = {}
        self._requests: dict[Request, int] = {}
        self.line = Line(self._place, self.limit_of)
        self._groups = _pool_groups(self.queues.values())

    @classmethod
    def of(cls, snapshot: Snapshot) -> World:
        """The world of a snapshot (whose headroom already counts what runs)."""
        world = cls(
            snapshot.nodes, snapshot.pools, snapshot.queues, snapshot.headroom,
            snapshot.reservations,
        )  # fmt: skip
        for number, gang in enumerate(snapshot.running):
            named = gang if gang.gang_id else replace(gang, gang_id=f"{gang.job_id}/{number}")
            world.add_gang(named, counted=True)
        world.line.add_all(snapshot.pending)
        return world

    # -- what waits --------------------------------------------------------------------------
    def share(self, queue_id: str, project_id: str, user_id: str) -> int:
        """The number of (queue, project, user)."""
        key = (queue_id, project_id, user_id)
        number = self._share_of.get(key)
        if number is None:
            number = self._share_of[key] = len(self.shares)
            self.shares.append(Share(*key))
            self.levels.add_share(*key)
        return number

    def _place(self, job: PendingJob) -> tuple[int, int]:
        return (
            self.shape(job.request, job.queue_id, job.project_id),
            self.share(job.queue_id, job.project_id, job.user_id),
        )

    def limit_of(self, job: PendingJob) -> int | None:
        """The job's time limit in seconds: its own or its queue's default."""
        if job.max_runtime_s is not None:
            return job.max_runtime_s
        queue = self.queues.get(job.queue_id)
        return queue.default_runtime_s if queue else None

    @property
    def open_shares(self) -> Bools:
        """(shares,): whether the queue of each is open."""
        if len(self._open_shares) < len(self.shares):
            queues = (self.queues.get(share.queue_id) for share in self.shares)
            self._open_shares = np.array(
                [queue is not None and queue.open for queue in queues], dtype=np.bool_
            )
        return self._open_shares

    def shape(self, request: Request, queue_id: str, project_id: str) -> int:
        """The number of a request on a queue's pools, for a project."""
        known = self._same.get(id(request))
        if known is not None and known[0] is request:
            number = known[1]
        else:
            number = self._requests.setdefault(request, len(self._requests))
            self._same[id(request)] = (request, number)
        project = self.layout.projects.of(project_id)
        key = (number, queue_id, project)
        shape = self._shape_of.get(key)
        if shape is None:
            shape = self._shape_of[key] = self._new_shape(request, number, queue_id, project_id)
        return shape

    def pools_of(self, queue_id: str, project_id: str) -> tuple[str, ...]:
        """The queue's pools that have nodes, the project's own first."""
        queue = self.queues.get(queue_id)
        if queue is None:
            return ()
        return tuple(
            sorted(
                (pool for pool in queue.pool_ids if pool in self.layout.pool_rows),
                key=lambda pool: (
                    pool not in self.pools or self.pools[pool].project_id != project_id
                ),
            )
        )

    def _new_shape(self, request: Request, number: int, queue_id: str, project_id: str) -> int:
        pools = self.pools_of(queue_id, project_id)
        queue = self.queues.get(queue_id)
        declared = queue.pool_ids if queue else ()
        project = self.layout.projects.of(project_id)
        tags = tuple(self.views.tag(request, pool, project) for pool in pools)
        key = (number, declared, pools, tags)
        shape = self._shape_of.get(key)
        if shape is None:
            shape = self._shape_of[key] = len(self.shapes)
            self.worth.wanted(request)
            views = tuple(self.views.of(request, pool, project) for pool in pools)
            where = tuple(
                Candidates(pool, view.rows, project)
                for pool, view in zip(pools, views, strict=True)
            )
            self.shapes.append(
                Shape(
                    shape,
                    request,
                    declared,
                    views,
                    where,
                    tuple(milli_of_task(self.ledger, request, one) for one in where),
                    tuple(self.gpu_type(pool) for pool in pools),
                    request.whole * request.count > self.layout.most_gpus,
                )
            )
        return shape

    def pools_declared(self, job: PendingJob) -> tuple[str, ...]:
        """The pools of a job's queue, also those without nodes."""
        queue = self.queues.get(job.queue_id)
        return queue.pool_ids if queue else ()

    def pool_group(self, shape: Shape) -> int:
        """The number of the connected pools (by queues that use several) of a shape."""
        return self._groups.get(shape.pools[0], NOBODY) if shape.pools else NOBODY

    def may_fit(self, numbers: Ints) -> list[int]:
        """Of some shapes those that are not too large for what is free on any node."""
        return self.columns.may_fit(numbers, self.ledger)

    def fits(self, shape: Shape) -> bool:
        """Whether a gang of the shape might fit somewhere now (topology left out)."""
        journals = self.ledger.journals
        ends = tuple(journals[one.pool].end for one in shape.where)
        if ends != shape.tried:
            if not self._hopeless(shape, ends):
                least = shape.request.min_count
                shape.fits = False
                for view, one in zip(shape.views, shape.where, strict=True):
                    if not may_fit(shape.request, self.ledger.most_free(one.pool)):
                        continue
                    there = view.anywhere(self.ledger, one.pool)
                    if there is not None:
                        shape.fits = there
                        if there:
                            break
                        continue
                    slots = view.fresh(self.ledger, one.pool)
                    if len(slots) and (
                        int(slots.max()) >= least or (least > 1 and int(slots.sum()) >= least)
                    ):
                        shape.fits = True
                        break
            shape.tried = ends
        return shape.fits

    def _hopeless(self, shape: Shape, ends: tuple[int, ...]) -> bool:
        """Whether a single task that did not fit cannot fit by what changed since: no changed
        node has as many free GPUs as it takes."""
        request = shape.request
        if shape.fits or not shape.tried or not request.whole or request.min_count > 1:
            return False
        for one, seen, end in zip(shape.where, shape.tried, ends, strict=True):
            rows = self.ledger.journals[one.pool].since(seen)
            if rows is None or end - seen > 8:
                return False
            if any(int(self.ledger.whole[row]) >= request.whole for row in rows):
                return False
        return True

    def impossible(self, shape: Shape) -> bool:
        """Whether no state of the pools holds the shape."""
        if shape.impossible is None:
            shape.impossible = not self.feasibility.possible(shape.request, shape.pools)
        return shape.impossible

    # -- what runs ---------------------------------------------------------------------------
    def add_gang(self, gang: RunningGang, counted: bool = False) -> None:
        """A gang runs. ``counted``: the nodes and the project's quota say so already."""
        end = end_of(gang)
        if not counted:
            self.ledger.take(gang.tasks, self.layout.projects.of(gang.project_id))
        taken = self.headroom.counted(self.layout, gang.project_id, gang.tasks)
        if not counted:
            self.headroom.change(gang.project_id, taken)
        by_type = self.by_type(gang.tasks)
        self.quotas.add(gang.queue_id, by_type, gang.preemptible)
        project = self.layout.projects.of(gang.project_id)
        self.holdings.add(gang.gang_id, gang.tasks, end, project)
        rows = tuple(
            {self.layout.node_row[task.node_id]: None for task in gang.tasks
             if task.node_id in self.layout.node_row}
        )  # fmt: skip
        for row in rows:
            self.on_row[row].add(gang.gang_id)
        record = Gang(
            gang,
            self.share(gang.queue_id, gang.project_id, gang.user_id),
            sum(by_type.values()),
            by_type,
            self._by_pool(gang.tasks),
            taken,
            rows,
        )
        self.running.add(record, end)
        self.worth.running(gang, 1)

    def remove_gang(self, gang_id: str, counted: bool = False) -> Gang:
        """A gang is gone. ``counted``: the nodes and the project's quota say so already."""
        record = self.running.remove(gang_id)
        gang = record.gang
        self.worth.running(gang, -1)
        if not counted:
            self.ledger.give(gang.tasks)
            self.headroom.change(gang.project_id, record.taken, 1)
        self.quotas.add(gang.queue_id, record.by_type, gang.preemptible, -1)
        self.holdings.remove(gang_id, gang.tasks)
        for row in record.rows:
            self.on_row[row].discard(gang_id)
        return record

    def end_by(self, gang_id: str, end: float, preempting: bool) -> None:
        """A gang has to be gone by another time."""
        record = self.gangs[gang_id]
        gang = replace(record.gang, promised_end=end, preempting=preempting)
        record.gang = gang
        self.holdings.remove(gang_id, gang.tasks)
        project = self.layout.projects.of(gang.project_id)
        self.holdings.add(gang_id, gang.tasks, end, project)
        self.running.end_by(record, end)

    def by_type(self, tasks: Sequence[TaskPlacement]) -> dict[str, int]:
        """Milli-GPUs of some tasks by GPU type."""
        amounts: dict[str, int] = {}
        layout = self.layout
        for task in tasks:
            row = layout.node_row.get(task.node_id)
            if row is None or not task.devices:
                continue
            gpu_type = layout.nodes[row].devices[0].gpu_type
            amounts[gpu_type] = amounts.get(gpu_type, 0) + sum(milli for _, milli in task.devices)
        return amounts

    def _by_pool(self, tasks: Sequence[TaskPlacement]) -> dict[tuple[str, str], int]:
        """Milli-GPUs of some tasks by pool and GPU type."""
        amounts: dict[tuple[str, str], int] = {}
        layout = self.layout
        for task in tasks:
            row = layout.node_row.get(task.node_id)
            if row is None or not task.devices:
                continue
            key = (layout.pool[row], layout.nodes[row].devices[0].gpu_type)
            amounts[key] = amounts.get(key, 0) + sum(milli for _, milli in task.devices)
        return amounts

    def gpu_type(self, pool_id: str) -> str:
        """The GPU type of a pool's nodes."""
        pool = self.pools.get(pool_id)
        if pool is not None:
            return pool.template.gpu_type
        devices = self.layout.nodes[self.layout.pool_rows[pool_id].start].devices
        return devices[0].gpu_type if devices else ""


def _pool_groups(queues: Iterable[QueueState]) -> dict[str, int]:
    """Pool -> the number of its group: pools that a queue has together are in one."""
    group_of: dict[str, int] = {}
    members: dict[int, list[str]] = {}
    for number, queue in enumerate(queues):
        joined = {group_of[pool] for pool in queue.pool_ids if pool in group_of}
        pools = [pool for group in sorted(joined) for pool in members.pop(group)]
        members[number] = list(dict.fromkeys((*pools, *queue.pool_ids)))
        for pool in members[number]:
            group_of[pool] = number
    return group_of
