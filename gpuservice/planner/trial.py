# SPDX-License-Identifier: Apache-2.0
"""Trying a request: places that exceed no quota and delay no promise, or in one word why not."""

from __future__ import annotations

from dataclasses import dataclass

from gpuservice.domain.reasons import Reason
from gpuservice.planner.capacity import Candidates
from gpuservice.planner.guards import Reserved
from gpuservice.planner.holds import ALREADY, FOREVER
from gpuservice.planner.ledger import Ints
from gpuservice.planner.placement import Option, Tasks, alone, place_first, place_in
from gpuservice.planner.promises import Future
from gpuservice.planner.quota_bookings import QuotaBookings
from gpuservice.planner.snapshot import PendingJob, Request
from gpuservice.planner.wish import Ends, Wish
from gpuservice.planner.world import Shape, World
from gpuservice.planner.worth import Place


@dataclass(slots=True)
class Tried:
    """What came of trying a request: places, or in one word why not. ``limited``: quotas had a
    part in it."""

    tasks: Tasks | None
    word: str = ""
    limited: bool = False


@dataclass(slots=True)
class Trial:
    """The rules by which requests are tried in one pass. ``preempts``: some may have to go for
    others, so that limits do not say how long nodes are taken."""

    world: World
    future: Future
    reserved: Reserved
    taken: QuotaBookings
    preempts: bool

    def places(self, job: PendingJob, shape: Shape, request: Request, end: float) -> Tried:
        """Places for a request that delay no promise and exceed no quota."""
        if not self.may_run(job, end):
            return Tried(None, self.or_promise(job), True)
        wish = self._wish(job, end)
        if alone(request):
            tasks = self._first_pool(job, shape, request, end, wish)
            if tasks is not None:
                return Tried(tasks)
        options, word = self._options(job, shape, request, end)
        kept = self._kept(job, request, options, end)
        tasks = place_in(self.world.ledger, request, kept, wish)
        if tasks is None and self.future.booked.of:
            tasks = self._beside(job, request, kept, options, end)
        if tasks is not None:
            return Tried(tasks)
        something = any(a is not b for a, b in zip(options, kept, strict=True))
        if something and place_in(self.world.ledger, request, options) is not None:
            return Tried(None, self._kept_by(job, options, end), bool(word))
        if self.world.impossible(shape):
            return Tried(None, Reason.IMPOSSIBLE)
        certain = not options and word != Reason.BEHIND_PROMISE  # a promise keeps what would fit
        if word and (certain or self._only_quota(job, shape, request)):
            return Tried(None, word, True)
        return Tried(None, Reason.INSUFFICIENT_GPUS, bool(word))

    def _wish(self, job: PendingJob, end: float) -> Wish:
        spread = self.world.queues[job.queue_id].spread
        if self.preempts:
            return Wish(spread)
        return Wish(spread, Ends(self.world.layout.healthy, self.future.free_at_all, end))

    def _first_pool(
        self, job: PendingJob, shape: Shape, request: Request, end: float, wish: Wish
    ) -> Tasks | None:
        """Places for a single task: the pools behind the first that has room need no look."""
        if not wish.spread and self.world.worth.counts:
            return self._worth_most(job, shape, request, end)
        unlimited = self.unlimited_by_quota(job)
        project = self.world.layout.projects.of(job.project_id)
        for number, (view, where) in enumerate(zip(shape.views, shape.where, strict=True)):
            if not view.possible:
                continue
            if unlimited or self.most_tasks(job, shape, number, end)[0] >= 1:
                here = Candidates(where.pool, where.rows, project)
                if self.reserved or self.future.guards.binds(where.pool, end):
                    slots = view.fresh(self.world.ledger, where.pool)
                    kept = self._kept(job, request, [Option(here, slots)], end)
                    tasks = place_in(self.world.ledger, request, kept, wish)
                else:
                    tasks = place_first(self.world.ledger, request, view, here, wish)
                if tasks is not None:
                    return tasks
        return None

    def _worth_most(
        self, job: PendingJob, shape: Shape, request: Request, end: float
    ) -> Tasks | None:
        """The place that leaves the most useful rest: in the project's own pools, else anywhere."""
        world, unlimited = self.world, self.unlimited_by_quota(job)
        project = world.layout.projects.of(job.project_id)
        own: list[Place] = []
        others: list[Place] = []
        for number, (view, where) in enumerate(zip(shape.views, shape.where, strict=True)):
            if unlimited or self.most_tasks(job, shape, number, end)[0] >= 1:
                slots = view.fresh(world.ledger, where.pool)
                option = Option(Candidates(where.pool, where.rows, project), slots)
                kept = self._kept(job, request, [option], end)[0]
                pool = world.pools.get(where.pool)
                mine = pool is not None and pool.project_id == job.project_id
                (own if mine else others).append(Place(number, kept, kept is not option))
        return world.worth.place(request, shape, own) or world.worth.place(request, shape, others)

    def _beside(
        self,
        job: PendingJob,
        request: Request,
        counted: list[Option],
        options: list[Option],
        end: float,
    ) -> Tasks | None:
        """Places that counting GPUs does not find, beside what is booked on the same nodes."""
        guards = self.future.guards
        kept: list[Option] = []
        anything = False
        for option, known in zip(options, counted, strict=True):
            looked = guards.by_device(option.where, option.slots, request, end)
            if looked is None:
                kept.append(known)
                continue
            anything = True
            slots, devices = self._unreserved(job, option.where, looked[0], end), looked[1]
            kept.append(Option(option.where, slots, devices))
        if not anything:
            return None
        tasks = place_in(self.world.ledger, request, kept, self._wish(job, end))
        project = self.world.layout.projects.of(job.project_id)
        return tasks if tasks and guards.allows(tasks, project, end) else None

    def _unreserved(self, job: PendingJob, where: Candidates, slots: Ints, end: float) -> Ints:
        if not self.reserved:
            return slots
        return self.reserved.within(where.rows, slots, job.queue_id, job.project_id, end)

    def may_run(self, job: PendingJob, end: float, start: float | None = None) -> bool:
        """Whether the project may have one more attempt, from ``start`` (None: now) to ``end``."""
        headroom = self.world.headroom
        if not headroom.limits(job.project_id):
            return True

        def ask() -> tuple[int, str]:
            return int(headroom.may_run(job.project_id)), ""

        return self.taken.least(ask, 1, start, end)[0] > 0

    def or_promise(self, job: PendingJob) -> str:
        """Whether a promised job's part of the quota is what is missing."""
        with self.taken.lifted(ALREADY):
            kept = self.world.headroom.may_run(job.project_id)
        return Reason.BEHIND_PROMISE if kept else Reason.PROJECT_QUOTA

    def _options(
        self, job: PendingJob, shape: Shape, request: Request, end: float
    ) -> tuple[list[Option], str]:
        """The pools where quota lets it start, with their slots; why others are missing."""
        world = self.world
        project = world.layout.projects.of(job.project_id)
        pools, word = self._pools(job, shape, request, end)
        options: list[Option] = []
        for number, most in pools:
            where = shape.where[number]
            slots = shape.views[number].fresh(world.ledger, where.pool)
            options.append(Option(Candidates(where.pool, where.rows, project, most), slots))
        return options, word

    def _pools(
        self, job: PendingJob, shape: Shape, request: Request, end: float
    ) -> tuple[list[tuple[int, int]], str]:
        """(number of a pool where quota lets it start, tasks that it lets it have there), and why
        others are missing."""
        if self.unlimited_by_quota(job):
            return [(number, where.most) for number, where in enumerate(shape.where)], ""
        pools: list[tuple[int, int]] = []
        word = ""
        for number in range(len(shape.where)):
            most, limit = self.most_tasks(job, shape, number, end)
            if most < request.count:
                word = limit
            if most >= request.min_count:
                pools.append((number, most))
        return pools, word

    def unlimited_by_quota(self, job: PendingJob) -> bool:
        """Whether no quota is in the job's way at all."""
        world = self.world
        return not world.quotas.limited and not world.headroom.limits(job.project_id)

    def most_tasks(
        self, job: PendingJob, shape: Shape, number: int, end: float, start: float | None = None
    ) -> tuple[int, str]:
        """How many tasks quotas leave room for in a shape's pool from ``start`` (None: now) to
        ``end``, and what bounds them: the tighter quota, or what of it is kept for a promise."""
        where, each = shape.where[number], shape.each[number]
        if not each or self.unlimited_by_quota(job):
            return where.most, ""

        room = self._room(job, shape, number)
        if room[0] >= job.request.count:  # even if all that is booked is taken at once
            return room

        def ask() -> tuple[int, str]:
            return self._room(job, shape, number)

        most, word = self.taken.least(ask, job.request.count, start, end)
        if most < job.request.min_count and self.taken:
            with self.taken.lifted(ALREADY):
                if self._room(job, shape, number)[0] >= job.request.min_count:
                    word = Reason.BEHIND_PROMISE
        return most, word

    def _room(self, job: PendingJob, shape: Shape, number: int) -> tuple[int, str]:
        where, each = shape.where[number], shape.each[number]
        project = self.world.headroom.room(job.project_id, where.pool)
        queue = self.world.quotas.room(job.queue_id, shape.types[number], job.preemptible)
        word = Reason.PROJECT_QUOTA if project <= queue else Reason.QUEUE_QUOTA
        return min(where.most, project // each, queue // each), word

    def _kept(
        self, job: PendingJob, request: Request, options: list[Option], end: float
    ) -> list[Option]:
        """The options without what promises and reservations keep; the same objects where
        nothing is kept."""
        kept: list[Option] = []
        for option in options:
            where, slots = option.where, option.slots
            left = self.future.guards.within(
                where.pool, where.rows, slots, request, where.project, end
            )
            left = self._unreserved(job, where, left, end)
            kept.append(option if left is slots else Option(where, left))
        return kept

    def _kept_by(self, job: PendingJob, options: list[Option], end: float) -> str:
        for option in options if self.reserved else ():
            where, slots = option.where, option.slots
            left = self.reserved.within(where.rows, slots, job.queue_id, job.project_id, end)
            if left is not slots:
                return Reason.BEHIND_RESERVATION
        return Reason.BACKFILL_WOULD_DELAY

    def _only_quota(self, job: PendingJob, shape: Shape, request: Request) -> bool:
        """Whether without quotas it would fit now. Such a job gets no promise: it would keep
        places from others until its own project's or queue's jobs end."""
        anywhere = self.unlimited(job, shape)
        return place_in(self.world.ledger, request, anywhere) is not None

    def why_not_tried(self, job: PendingJob, shape: Shape) -> str:
        """In one word why a job waits of whose shape nothing fits."""
        if not self.may_run(job, FOREVER):
            return self.or_promise(job)
        if self.world.impossible(shape):
            return Reason.IMPOSSIBLE
        pools, word = self._pools(job, shape, job.request, FOREVER)
        certain = not pools and word != Reason.BEHIND_PROMISE
        return word if word and certain else Reason.INSUFFICIENT_GPUS

    def within_quota(
        self, job: PendingJob, shape: Shape, start: float | None = None, end: float = FOREVER
    ) -> list[Candidates]:
        """The pools where quota has room for the job's least gang from ``start`` (None: now) on."""
        if not self.may_run(job, end, start):
            return []
        project = self.world.layout.projects.of(job.project_id)
        found: list[Candidates] = []
        for number, where in enumerate(shape.where):
            most, _ = self.most_tasks(job, shape, number, end, start)
            if most >= job.request.min_count:
                found.append(Candidates(where.pool, where.rows, project, most))
        return found

    def unlimited(self, job: PendingJob, shape: Shape) -> list[Option]:
        """The shape's pools with their slots, whatever quota says."""
        ledger, project = self.world.ledger, self.world.layout.projects.of(job.project_id)
        return [
            Option(Candidates(where.pool, where.rows, project), view.fresh(ledger, where.pool))
            for view, where in zip(shape.views, shape.where, strict=True)
        ]
