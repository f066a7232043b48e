# SPDX-License-Identifier: Apache-2.0
"""For whom others have to go: a higher priority, nominal that is lent out, a gang that is due, a
short job beside a long one.

Nobody goes in vain: with the victims gone the job starts, and without any one of them it would
not (each is put back and tried). Two jobs never push each other out in turn: priorities and
nominal are one-sided, a short job takes the place of one with at least twice its time left, and
how often a job may lose its place is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from gpuservice.planner.eviction import Returned, Search, spare_rows
from gpuservice.planner.holds import ALREADY, end_of
from gpuservice.planner.ledger import Bools, Ints
from gpuservice.planner.line import distinct
from gpuservice.planner.placement import Tasks
from gpuservice.planner.plan_types import Preemption
from gpuservice.planner.quota import milli_of_task
from gpuservice.planner.running import Gang
from gpuservice.planner.snapshot import PendingJob, Request
from gpuservice.planner.world import Shape

if TYPE_CHECKING:
    from gpuservice.planner.passes import Pass

#: A short job: its limit, and how long it has to have waited (seconds).
SHORT_LIMIT_S = 4 * 3600.0
SHORT_WAITED_S = 600.0

#: More victims than this are not put back one by one.
MINIMAL_UP_TO = 400


@dataclass(slots=True)
class Preempting:
    """The preemptions of one pass."""

    state: Pass
    found: list[Preemption] = field(default_factory=list)
    going: set[str] = field(default_factory=set)
    _vain: set[tuple[int, int, int, bool, str]] = field(default_factory=set)
    _lowest: dict[str, int] | None = None
    _victims: list[Gang] | None = None
    _leaving: list[Gang] = field(default_factory=list)  # as an earlier plan said
    _borrowed: dict[tuple[str, str], int] = field(default_factory=dict)  # (queue, GPU type)

    # -- who might -------------------------------------------------------------------------
    def may(self, rows: Ints) -> Bools:
        """(n,): whether others might have to go for a job, so that it is tried although nothing
        fits. Cheap questions first: most passes need no look at what runs."""
        state = self.state
        line, preempt = state.world.line, state.policy.preempt
        may = np.zeros(len(rows), dtype=np.bool_)
        if not preempt or not state.world.gangs:
            return may
        shares = line.share[rows]
        queues = {share: state.world.shares[share].queue_id for share in distinct(shares)}
        if "reclaim" in preempt:
            owed = np.zeros(len(state.world.shares))
            for share, queue_id in queues.items():
                owed[share] = self._reclaimable(queue_id)
            may = owed[shares] > 0
            if may.any():
                may[may] = self._least(line.shape[rows[may]]) <= owed[shares[may]]
        if "priority" in preempt and any(map(self._by_priority, queues.values())):
            lowest = np.full(len(state.world.shares), 1 << 30, dtype=np.int64)
            for share, queue_id in queues.items():
                lowest[share] = self._lowest_by_queue().get(queue_id, 1 << 30)
            may |= lowest[shares] < line.tier[rows]
        if "short_jobs" in preempt:
            waited = state.now - line.queued[rows] >= SHORT_WAITED_S
            may |= waited & (line.limit[rows] <= SHORT_LIMIT_S)
        return may if may.any() and self.candidates() else np.zeros_like(may)

    def _least(self, shapes: Ints) -> Ints:
        """(n,): milli-GPUs that the smallest gang of each of these shapes takes at the least."""
        found = {
            number: _least_milli(self.state.world.shapes[number].request)
            for number in distinct(shapes)
        }
        return np.array([found[number] for number in shapes.tolist()], dtype=np.int64)

    def candidates(self) -> list[Gang]:
        """Running gangs that may be preempted by anybody."""
        if self._victims is None:
            now, policy = self.state.now, self.state.policy
            running = self.state.world.gangs.values()
            self._leaving = [one for one in running if one.gang.preempting]
            self._victims = [
                one
                for one in running
                if one.gang.preemptible
                and not one.gang.preempting
                and one.gang.preempted < policy.max_preemptions
                and now - one.gang.started_at >= max(one.gang.protected_s, policy.protected_s)
            ]
        return self._victims

    def _by_priority(self, queue_id: str) -> bool:
        queue = self.state.world.queues.get(queue_id)
        return queue is not None and queue.preemption in ("lower_priority", "both")

    def _lowest_by_queue(self) -> dict[str, int]:
        """Queue with preemption by priority -> the lowest priority of a possible victim."""
        if self._lowest is None:
            self._lowest = {}
            of = {queue_id for queue_id in self.state.world.queues if self._by_priority(queue_id)}
            for one in self.candidates():
                queue_id = one.gang.queue_id
                if queue_id in of:
                    known = self._lowest.get(queue_id, 1 << 30)
                    self._lowest[queue_id] = min(known, one.gang.priority)
        return self._lowest

    def _reclaimable(self, queue_id: str) -> int:
        """Milli-GPUs that the queue may reclaim, where another of its cohort borrows."""
        world = self.state.world
        queue = world.queues.get(queue_id)
        if queue is None or not queue.cohort or queue.preemption not in ("reclaim", "both"):
            return 0
        owed = max((world.quotas.owed(queue_id, kind) for kind in queue.nominal), default=0)
        return owed if owed and self._anybody_borrows(queue.cohort) else 0

    def _anybody_borrows(self, cohort: str) -> bool:
        world = self.state.world
        return any(
            world.quotas.borrowed(other.id, kind) > 0
            for other in world.queues.values()
            if other.cohort == cohort
            for kind in other.nominal
        )

    # -- one job -----------------------------------------------------------------------------
    def for_job(self, row: int, job: PendingJob, shape: Shape, front: bool) -> bool:
        """Let others go for the job if it starts then; whether they do."""
        state = self.state
        if job.claimed or not state.policy.preempt or not self.candidates():
            return False
        share = int(state.world.line.share[row])
        # Who is only owed something, and not due, has no more right than by reclaim.
        due = front and (state.policy.due is None or bool(state.world.line.due[row] <= state.now))
        for why in self._ways(job, shape, due):
            vain = (shape.number, share, job.priority, job.preemptible, why)
            if vain in self._vain:
                continue
            eligible = self._eligible(why, job, shape)
            if not eligible:
                continue
            chosen = self.victims_for(job, shape, eligible, why)
            if chosen is None:
                self._vain.add(vain)
                continue
            victims, tasks = chosen
            if why == "short_job" and sum(one.milli for one in victims) > 2 * _gpus(tasks):
                continue  # too many would wait for one
            self.carry_out(job, shape, victims, tasks, why)
            return True
        return False

    def _ways(self, job: PendingJob, shape: Shape, due: bool) -> Iterable[str]:
        """Why others might go for the job, the most rightful reason first."""
        preempt = self.state.policy.preempt
        if "priority" in preempt and self._by_priority(job.queue_id):
            yield "priority"
        if "reclaim" in preempt:
            owed = self._reclaimable(job.queue_id)
            if owed and _least_milli(job.request) <= owed:
                yield "reclaim"
        if "due_gangs" in preempt and due and shape.gang:
            yield "due_gang"
        if "short_jobs" in preempt and self._short(job, shape):
            yield "short_job"

    def _eligible(self, why: str, job: PendingJob, shape: Shape) -> list[Gang]:
        """Who might go."""
        policy = self.state.policy
        left = [
            one
            for one in self.candidates()
            if one.gang.gang_id not in self.going and one.gang.job_id != job.job_id
        ]
        if why == "reclaim":
            self._borrowed = self._borrowed_by_others(job.queue_id)
            return [
                one
                for one in left
                if any(self._borrowed.get((one.gang.queue_id, kind)) for kind in one.by_type)
            ]
        own = [one for one in left if one.gang.queue_id == job.queue_id]
        if why == "priority":
            return [one for one in own if one.gang.priority < job.priority]
        single = [one for one in own if len(one.rows) == 1 and one.gang.priority <= job.priority]
        if why == "due_gang":
            least = self.state.now + policy.lost_s
            return [one for one in single if end_of(one.gang) >= least]
        if shape.gang:
            left_s = max(2.0 * (job.max_runtime_s or 0), policy.lost_s)
            return [
                one
                for one in own
                if one.gang.priority <= job.priority and end_of(one.gang) - self.state.now >= left_s
            ]
        return self._longest(job, shape, single)

    def _borrowed_by_others(self, queue_id: str) -> dict[tuple[str, str], int]:
        """(queue, GPU type) -> milli-GPUs that others of the cohort use beyond their nominal once
        all are gone that go anyway. What is only promised is not borrowed yet."""
        world = self.state.world
        cohort = world.queues[queue_id].cohort
        with self.state.taken.lifted(ALREADY):
            borrowed = {
                (queue.id, kind): world.quotas.borrowed(queue.id, kind)
                for queue in world.queues.values()
                if queue.cohort == cohort and queue.id != queue_id
                for kind in queue.nominal
            }
        for gang in (*self._leaving, *(world.gangs[gang_id] for gang_id in sorted(self.going))):
            for kind, milli in gang.by_type.items():
                key = (gang.gang.queue_id, kind)
                borrowed[key] = borrowed.get(key, 0) - milli
        return {key: milli for key, milli in borrowed.items() if milli > 0}

    def _short(self, job: PendingJob, shape: Shape) -> bool:
        limit = job.max_runtime_s
        waited = self.state.now - job.queued_at
        alike = shape.gang or job.request.count == 1
        in_time = limit is not None and limit <= SHORT_LIMIT_S
        return alike and in_time and waited >= SHORT_WAITED_S

    def _longest(self, job: PendingJob, shape: Shape, single: list[Gang]) -> list[Gang]:
        """The running jobs that a short one may push out, the one with the most time left
        first, and only so many."""
        limit, milli = float(job.max_runtime_s or 0), max(job.request.gpu_milli, 1)
        pools = {one.pool for one in shape.where}
        layout = self.state.world.layout
        long = [
            one
            for one in single
            if end_of(one.gang) - self.state.now >= 2 * limit
            and milli <= one.milli <= 2 * milli
            and layout.pool[one.rows[0]] in pools
        ]
        long.sort(key=lambda one: (-end_of(one.gang), one.gang.gang_id))
        return long[:1]

    # -- victims -----------------------------------------------------------------------------
    def victims_for(
        self, job: PendingJob, shape: Shape, eligible: list[Gang], why: str
    ) -> tuple[list[Gang], Tasks] | None:
        """(the smallest set of gangs that lets the job start, its places then), or None."""
        state, world = self.state, self.state.world
        end = state.end_of(job)
        for option in state.trial.unlimited(job, shape):
            where = option.where
            if why == "reclaim":
                need = milli_of_task(world.ledger, job.request, where) * job.request.min_count
                if need > world.quotas.owed(job.queue_id, world.gpu_type(where.pool)):
                    continue
            guards = state.future.guards
            kept = guards.within(
                where.pool, where.rows, option.slots, job.request, where.project, end
            )
            search = Search(
                world, job.request, where, eligible, self._cost,
                lambda gang, gone: why != "reclaim" or self._still_borrows(gang, gone), kept,
            )  # fmt: skip
            chosen = search.find()
            if chosen is None:
                continue
            done = self._smallest(job, shape, chosen, eligible, why)
            if done is not None:
                return done
        return None

    def _cost(self, gang: Gang) -> float:
        """Work that is lost (milli-GPU-seconds), the more the less its queue borrows."""
        elapsed = max(self.state.now - gang.gang.started_at, 0.0)
        lost = gang.milli * (1.0 + min(elapsed, self.state.policy.lost_s))
        quotas, queue = self.state.world.quotas, gang.gang.queue_id
        over = max((quotas.borrowed(queue, kind) for kind in gang.by_type), default=0)
        return lost * (1.0 + gang.gang.priority / 1000.0) / (1.0 + over / 1_000_000.0)

    def _still_borrows(self, gang: Gang, returned: Returned) -> bool:
        """Whether the gang's queue is above its nominal after others have given back theirs."""
        keys = [(gang.gang.queue_id, kind) for kind in gang.by_type]
        return any(self._borrowed.get(key, 0) > returned(key) for key in keys)

    def _smallest(
        self, job: PendingJob, shape: Shape, chosen: list[Gang], eligible: list[Gang], why: str
    ) -> tuple[list[Gang], Tasks] | None:
        """Without those that turn out not to be needed; the world is left as it was."""
        ledger = self.state.world.ledger
        mark = ledger.mark
        gone: list[Gang] = []
        try:
            for gang in chosen:
                self._away(gang, gone)
            tasks = self._fits(job, shape)
            if tasks is None and why == "reclaim":
                tasks = self._until_quota(job, shape, gone, eligible)
            if tasks is None:
                return None
            tasks = put_back(self, job, shape, gone, tasks)
            return gone, tasks
        finally:
            for gang in gone:
                self._count(gang, 1)
                self.state.taken.away.discard(gang.gang.gang_id)
            ledger.undo_to(mark)

    def _until_quota(
        self, job: PendingJob, shape: Shape, gone: list[Gang], eligible: list[Gang]
    ) -> Tasks | None:
        """There is room, but the cohort's nominal is lent out: more have to give it back."""

        def returned(key: tuple[str, str]) -> int:
            return sum(one.by_type.get(key[1], 0) for one in gone if one.gang.queue_id == key[0])

        for gang in sorted(eligible, key=lambda one: (self._cost(one), one.gang.gang_id)):
            if gang in gone or not self._still_borrows(gang, returned):
                continue
            self._away(gang, gone)
            tasks = self._fits(job, shape)
            if tasks is not None:
                return tasks
        return None

    def _fits(self, job: PendingJob, shape: Shape) -> Tasks | None:
        state = self.state
        return state.trial.places(job, shape, job.request, state.end_of(job)).tasks

    def _away(self, gang: Gang, gone: list[Gang]) -> None:
        self.state.world.ledger.give(gang.gang.tasks)
        self._count(gang, -1)
        self.state.taken.away.add(gang.gang.gang_id)
        gone.append(gang)

    def _back(self, gang: Gang, gone: list[Gang]) -> None:
        world = self.state.world
        world.ledger.take(gang.gang.tasks, world.layout.projects.of(gang.gang.project_id))
        self._count(gang, 1)
        self.state.taken.away.discard(gang.gang.gang_id)
        gone.remove(gang)

    def _count(self, gang: Gang, sign: int) -> None:
        world = self.state.world
        world.quotas.add(gang.gang.queue_id, gang.by_type, gang.gang.preemptible, sign)
        world.headroom.change(gang.gang.project_id, gang.taken, -sign)

    # -- carried out -------------------------------------------------------------------------
    def carry_out(
        self, job: PendingJob, shape: Shape, victims: list[Gang], tasks: Tasks, why: str
    ) -> None:
        """Note who goes, and keep the job's places and quota for it."""
        state = self.state
        for gang in victims:
            self.going.add(gang.gang.gang_id)
            state.taken.goes(gang.gang.gang_id)
            state.future.goes(gang.gang.gang_id, gang.rows)
            self.found.append(Preemption(gang.gang.gang_id, gang.gang.job_id, job.job_id, why))
        runtime = state.end_of(job) - state.now
        start = state.now + 1
        state.promising.book(job, start, runtime, tasks, told=False)


def _gpus(tasks: Tasks) -> int:
    """Milli-GPUs of some tasks."""
    return sum(milli for task in tasks for _, milli in task.devices)


def _least_milli(request: Request) -> int:
    """Milli-GPUs of the smallest gang (a share by memory: not known before its node is)."""
    return 0 if request.gpu_memory_mib is not None else request.gpu_milli * request.min_count


def put_back(
    preempting: Preempting, job: PendingJob, shape: Shape, gone: list[Gang], tasks: Tasks
) -> Tasks:
    """Put back each victim without which the job starts all the same, the dearest first.

    :returns: the job's places with only those gone that have to (``gone`` is changed).
    """
    if len(gone) > MINIMAL_UP_TO and not spare_rows(preempting.state.world, gone, tasks):
        return tasks
    for gang in sorted(gone, key=lambda one: (-preempting._cost(one), one.gang.gang_id)):
        preempting._back(gang, gone)
        again = preempting._fits(job, shape)
        if again is None:
            preempting._away(gang, gone)
        else:
            tasks = again
    return tasks
