# SPDX-License-Identifier: Apache-2.0
"""A cluster that changes and is planned again and again: what the simulator and tests drive.

The caller tells what happened; :meth:`Session.plan` is ``plan`` of the snapshot of that moment,
without building that snapshot. Nothing is started by planning: the caller says what really began.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from gpuservice.planner.plan import begin, outcome
from gpuservice.planner.plan_types import Plan
from gpuservice.planner.snapshot import (
    NodeState,
    PendingJob,
    Policy,
    PoolState,
    Promise,
    QueueState,
    Reservation,
    RunningGang,
    UsageKey,
)
from gpuservice.planner.world import World


class Session:
    """The state of one cluster between passes. ``nodes`` are free at first; ``headroom`` is what
    projects may have in all."""

    def __init__(
        self,
        nodes: Iterable[NodeState],
        pools: Iterable[PoolState],
        queues: Iterable[QueueState],
        policy: Policy,
        headroom: Mapping[tuple[str, str], int] | None = None,
        reservations: Iterable[Reservation] = (),
    ) -> None:
        self._nodes, self._queues = tuple(nodes), tuple(queues)
        self._headroom = dict(headroom or {})
        self._world = World(self._nodes, pools, self._queues, self._headroom, reservations)
        self._policy = policy
        self._claims: dict[str, str] = {}  # gang -> the job that it goes for
        self._planned: dict[str, str] = {}
        self._places: dict[str, Promise] = {}  # of those for whom others were to go
        self._claimed: set[str] = set()
        self._told: set[str] = set()  # jobs with a promise of the last plan

    def submit(self, job: PendingJob) -> None:
        """A job waits (or waits again)."""
        self._world.line.add(job)

    def withdraw(self, job_id: str) -> None:
        """A job waits no more, without having started."""
        self._world.line.remove(job_id)

    def start(self, gang: RunningGang) -> None:
        """A planned start was carried out: its job has one waiting element less."""
        line = self._world.line
        job = line.get(gang.job_id)
        if job is not None:
            if job.elements > 1:
                # The next element keeps its rank if the plan has promised it a start as well.
                told = job.job_id in self._told
                line.change(
                    replace(
                        job,
                        elements=job.elements - 1,
                        promised=job.promised if told else None,
                        promise=job.promise if told else None,
                        claimed=False,
                    )
                )
            else:
                line.remove(job.job_id)
        self._world.add_gang(gang)

    def stopping(self, gang_id: str, until: float) -> None:
        """A gang was told to go; it ends at ``until`` at the latest."""
        gang = self._world.gangs[gang_id].gang
        end = until if gang.promised_end is None else min(until, gang.promised_end)
        self._world.end_by(gang_id, end, preempting=True)
        waiting = self._planned.pop(gang_id, None)
        job = None if waiting is None else self._world.line.get(waiting)
        if job is not None:
            self._claims[gang_id] = job.job_id
            place = self._places.get(waiting or "", job.promise)
            self._world.line.change(replace(job, claimed=True, promise=place))

    def finish(self, gang_id: str) -> None:
        """A gang is gone: what it held is free."""
        self._world.remove_gang(gang_id)
        self._claims.pop(gang_id, None)

    def node_ready(self, node_id: str, ready: bool) -> None:
        """A node went away or came back."""
        self._world.ledger.set_ready(self._world.layout.node_row[node_id], ready)

    def set_headroom(self, headroom: Mapping[tuple[str, str], int]) -> None:
        """Projects may have other amounts in all."""
        self._headroom = dict(headroom)
        self._build(self._queues)

    def set_queues(self, queues: Iterable[QueueState]) -> None:
        """The queues are others, or say something else."""
        self._build(tuple(queues))

    def set_reservations(self, reservations: Iterable[Reservation]) -> None:
        """Other reservations hold."""
        self._world.reservations = tuple(reservations)

    def _build(self, queues: tuple[QueueState, ...]) -> None:
        """Make the world anew, with all that runs and waits."""
        old = self._world
        self._queues = queues
        self._world = World(
            self._nodes, old.pools.values(), queues, self._headroom, old.reservations
        )
        for row, ready in enumerate(old.ledger.ready.tolist()):
            self._world.ledger.set_ready(row, ready)
        for record in old.gangs.values():
            self._world.add_gang(record.gang)
        for job in old.line.with_due_times():
            self._world.line.add(job)

    def plan(
        self,
        now: float,
        *,
        usage: Mapping[UsageKey, float] | None = None,
        limit_ratio: float = 1.0,
        explain: bool = False,
        reasons: int = 0,
    ) -> Plan:
        """The plan of this moment. Due times and promises that it gives are kept.

        :param explain: why everything waits; ``reasons``: only why the first so many do.
        """
        policy = replace(self._policy, explain=explain or reasons > 0)
        state = begin(self._world, now, policy, usage or {}, limit_ratio)
        made = outcome(state)
        if policy.explain:
            made = replace(made, waiting=tuple(made.waiting if explain else made.waiting[:reasons]))
        state.undo()
        self._keep(made, now)
        return made

    def _keep(self, made: Plan, now: float) -> None:
        """Remember with the jobs what the plan promised (the line keeps due times itself)."""
        line = self._world.line
        for number, promise in enumerate(made.promises):
            job = line.get(promise.job_id)
            if job is not None and (job.promised is None or job.promise != promise):
                first = rank(now, number) if job.promised is None else job.promised
                line.change(replace(job, promised=first, promise=promise))
        self._told = {promise.job_id for promise in made.promises}
        self._planned = {one.gang_id: one.for_job_id for one in made.preemptions}
        self._places = {one.job_id: one for one in made.claims}
        claimed = set(self._claims.values())
        for job_id in self._claimed - claimed:
            job = line.get(job_id)
            if job is not None and job.claimed:
                line.change(replace(job, claimed=False))
        self._claimed = claimed


def rank(now: float, number: int) -> float:
    """``PendingJob.promised`` of the job that a plan gave its promise ``number`` to: promises of
    one moment keep the order in which they were given."""
    return now + number * 1e-6
