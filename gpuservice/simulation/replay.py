# SPDX-License-Identifier: Apache-2.0
"""The virtual clock: what happens at one moment is told, then planned, then carried out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gpuservice.planner.plan_types import Plan, Preemption, Promise, Start
from gpuservice.planner.session import Session, rank
from gpuservice.planner.snapshot import Policy, QueueState, RunningGang
from gpuservice.simulation.agenda import Agenda, Kind
from gpuservice.simulation.cluster import Cluster
from gpuservice.simulation.faults import InputFault, PlanFault
from gpuservice.simulation.line import Line
from gpuservice.simulation.occupancy import Occupancy
from gpuservice.simulation.opening import EMPTY, Begun, Opening
from gpuservice.simulation.quotas import Quotas
from gpuservice.simulation.records import AGAIN, Attempt, Element, Gang, Record
from gpuservice.simulation.timeline import Timeline
from gpuservice.simulation.usage import DecayedUsage
from gpuservice.simulation.workload import WorkloadJob, check_dependencies, moment

#: A moment that is planned more often than this does not settle.
MAX_PASSES = 10_000


@dataclass(frozen=True, slots=True)
class World:
    """What the simulated cluster does beside planning.

    ``grace_s``: from the signal to the end of a preempted gang. ``lost_s``: work that a preempted
    gang has to do again, ``node_failure_lost_s`` one whose node went (None: as much).
    ``learn_limits``: the planner is told how long jobs ran against their limits. ``oracle``: it is
    told the true durations as limits. ``remaining_limits``: a job that was stopped asks for what
    is left of its limit, not for all of it again. ``replan``: plan once more after starts too, as
    a check: a plan leaves nothing that would start, so the second one is the same time again.
    """

    grace_s: float = 60.0
    lost_s: float = 600.0
    node_failure_lost_s: float | None = None
    learn_limits: bool = True
    oracle: bool = False
    remaining_limits: bool = False
    replan: bool = False


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of it. ``passes``: how often was planned."""

    records: Sequence[Record]
    occupancy: Occupancy
    timeline: Timeline | None
    passes: int
    limit_ratio: float


class Replay:
    """One workload on one cluster under one policy."""

    def __init__(
        self,
        cluster: Cluster,
        jobs: Sequence[WorkloadJob],
        policy: Policy,
        world: World = World(),
        timeline: bool = False,
        session: Callable[..., Session] = Session,
        opening: Opening = EMPTY,
    ) -> None:
        check_dependencies(jobs)
        queues = _queues(cluster, jobs)
        self._world, self._policy = world, policy
        self._session = session(
            cluster.nodes,
            cluster.pools(),
            queues.values(),
            policy,
            cluster.headroom,
            cluster.reservations,
        )
        self._protected = cluster.protected
        self._line = Line(self._session, queues, jobs, world.oracle, world.remaining_limits)
        self._occupancy = Occupancy(cluster.nodes)
        self._quotas = Quotas(cluster)
        self._opening = opening
        self._usage = DecayedUsage(policy.usage_half_life_s, opening.usage)
        self._timeline = Timeline() if timeline else None
        self._agenda = Agenda(self._line.records, cluster)
        self._running: dict[str, Gang] = {}
        self._on_node: dict[str, set[str]] = {node.id: set() for node in cluster.nodes}
        self._preempts = bool(policy.preempt & {"due_gangs", "short_jobs"}) or (
            bool(policy.preempt) and any(one.preemption != "none" for one in queues.values())
        )
        self._ran = self._asked = 0.0
        self._passes = 0
        self._now = 0.0
        self._again = False

    def run(self, watch: Callable[[float], None] | None = None) -> Replayed:
        """To the end: nothing runs and nothing that can still happen starts what waits.

        :param watch: is told now and then which share of the jobs has ended.
        """
        first, jobs = True, max(len(self._line.records), 1)
        while self._line.open and (now := self._agenda.next(self._live)) is not None:
            if first:
                self._occupancy.begin(now)
            self._occupancy.advance(now, self._line.depth > 0)
            self._now = now
            changed = self._happen(now)
            for one in self._opening.begun if first else ():
                self._resume(one)
            if watch is not None:
                watch(1.0 - self._line.open / jobs)
            first = False
            if changed:
                self._settle()
                if self._timeline is not None:
                    self._timeline.note(
                        now, self._line.depth, len(self._running), self._occupancy.free
                    )
        return Replayed(
            self._line.records, self._occupancy, self._timeline, self._passes, self._ratio()
        )

    # -- what happens

    def _live(self, kind: Kind, what: str, at: float) -> bool:
        """Whether something on the agenda can still mean anything, now or later."""
        if kind is Kind.END:
            gang = self._running.get(what)
            return gang is not None and gang.end_at == at
        if kind in (Kind.DUE, Kind.DEADLINE):
            return self._line.by_id[what].unfinished > 0
        return kind is not Kind.UNPROTECTED or what in self._running

    def _happen(self, now: float) -> bool:
        """Apply everything of this moment; whether the plan can be another for it."""
        changed = False
        for kind, what in self._agenda.of(now, self._live):
            if kind in (Kind.DUE, Kind.DEADLINE) and not self._line.waits(what):
                continue
            changed = True
            if kind is Kind.END:
                self._end(self._running[what], self._running[what].ends_as)
            elif kind is Kind.ARRIVAL:
                self._line.arrive(what, now)
            elif kind is Kind.NODE_AWAY:
                self._node_away(what)
            elif kind is Kind.NODE_BACK:
                self._occupancy.node_ready(what, True)
                self._session.node_ready(what, True)
            elif kind is Kind.DEADLINE:
                self._line.give_up(what, now, "deadline")
        return changed

    def _node_away(self, node: str) -> None:
        for gang_id in sorted(
            self._on_node[node], key=lambda one: self._running[one].attempt.start_s
        ):
            self._end(self._running[gang_id], "node_failure")
        self._occupancy.node_ready(node, False)
        self._session.node_ready(node, False)

    # -- planning

    def _settle(self) -> None:
        """Plan, carry out, and again while that makes room at this very moment."""
        for _ in range(MAX_PASSES):
            if not self._line.offered:
                return
            self._again = False
            self._passes += 1
            made = self._session.plan(
                self._now, usage=self._usage.at(self._now), limit_ratio=self._ratio()
            )
            self._carry_out(made)
            if not self._again and not self._line.drop_claims():
                return
        raise PlanFault(f"the plan of second {self._now} does not settle")

    def _carry_out(self, made: Plan) -> None:
        for job_id, due in made.due.items():
            self._fall_due(job_id, due)
        for start in made.starts:  # before the promises, which the next element of an array may get
            self._start(start)
        for number, promise in enumerate(made.promises):
            self._promise(promise, number)
        for preemption in made.preemptions:
            self._preempt(preemption)

    def _fall_due(self, job_id: str, due: float) -> None:
        record = self._line.by_id[job_id]
        if record.due is not None:
            return
        record.due = due
        if due > self._now:
            self._agenda.add(due, Kind.DUE, job_id)
        else:
            self._again = True

    def _promise(self, promise: Promise, number: int) -> None:
        record = self._line.by_id[promise.job_id]
        if record.promised is None:
            record.promised = rank(self._now, number)
        if record.promise_s is None:
            record.promise_made_s, record.promise_s = self._now, promise.start
        if record.standing_s is None:
            record.standing_s = promise.start
        record.missed(promise.start)
        record.standing_s = min(record.standing_s, promise.start)

    def _start(self, start: Start) -> None:
        record = self._line.by_id[start.job_id]
        job, now = record.job, self._now
        if not self._quotas.take(job.project, start.tasks):
            self._line.block(record)
            self._again = True
            return
        record.missed(now)
        element = self._line.leave(record)
        limit, told = self._line.limits(record, element)
        runs, ends_as = element.left_s, job.outcome
        if limit is not None and runs > limit:
            runs, ends_as = float(limit), "timed_out"
        gang = self._launch(record, element, Attempt(element.index, now, start.tasks), runs)
        gang.ends_as = ends_as
        self._session.start(self._as_running(gang, told, None if told is None else now + told))
        self._protect(gang)
        self._again |= self._line.started(record, now) or self._world.replan

    def _resume(self, begun: Begun) -> None:
        """What runs already when the clock starts."""
        record, now = self._line.by_id[begun.job], self._now
        element = Element(
            record.waiting[0].index, begun.left_s + now - begun.started_s, begun.preempted
        )
        self._quotas.hold(record.job.project, begun.tasks)
        attempt = Attempt(element.index, begun.started_s, begun.tasks)
        gang = self._launch(record, element, attempt, begun.left_s)
        gang.ends_as = "preempted" if begun.stopping else record.job.outcome
        self._session.start(self._as_running(gang, record.told, begun.ends_by_s))
        self._line.resume(record)
        if begun.stopping:
            self._session.stopping(gang.gang_id, gang.end_at)
        self._protect(gang)

    def _launch(self, record: Record, element: Element, attempt: Attempt, runs: float) -> Gang:
        """A gang holds what it was given and ends when its time is over."""
        milli = self._occupancy.take(record.job_id, attempt.tasks)
        gang_id = f"{record.job_id}#{len(record.attempts)}"
        record.attempts.append(attempt)
        end = moment(self._now + runs)
        gang = Gang(gang_id, record, element, attempt, milli, end, record.job.outcome)
        self._running[gang_id] = gang
        for task in attempt.tasks:
            self._on_node[task.node_id].add(gang_id)
        self._agenda.add(gang.end_at, Kind.END, gang_id)
        self._hold(gang, 1)
        return gang

    def _as_running(self, gang: Gang, told: int | None, ends_by: float | None) -> RunningGang:
        record = gang.record
        job = record.job
        return RunningGang(
            record.job_id,
            job.project,
            gang.attempt.tasks,
            ends_by,
            gang.gang_id,
            job.queue,
            job.user,
            job.priority,
            gang.attempt.start_s,
            job.preemptible,
            preempted=gang.element.preempted,
            protected_s=self._protected.get(job.queue, 0.0),
            request=job.request,
            max_runtime_s=told,
        )

    def _protect(self, gang: Gang) -> None:
        """Be awake when the gang may first be preempted."""
        record = gang.record
        protected = max(self._policy.protected_s, self._protected.get(record.job.queue, 0.0))
        if self._preempts and record.job.preemptible and protected > 0:
            at = moment(gang.attempt.start_s + protected)
            if self._now < at < gang.end_at:
                self._agenda.add(at, Kind.UNPROTECTED, gang.gang_id)

    def _preempt(self, preemption: Preemption) -> None:
        gang = self._running[preemption.gang_id]
        if gang.stopping_for is not None:
            return
        gang.stopping_for = preemption.for_job_id
        self._line.claim(preemption.for_job_id)
        until = moment(self._now + self._world.grace_s)
        if until <= self._now:
            self._end(gang, "preempted")
            self._again = True
            return
        self._session.stopping(gang.gang_id, until)
        if until < gang.end_at:
            gang.end_at, gang.ends_as = until, "preempted"
            self._agenda.add(until, Kind.END, gang.gang_id)

    # -- ends

    def _end(self, gang: Gang, outcome: str) -> None:
        record, now = gang.record, self._now
        gang.attempt.end_s, gang.attempt.outcome = now, outcome
        del self._running[gang.gang_id]
        for task in gang.attempt.tasks:
            self._on_node[task.node_id].discard(gang.gang_id)
        self._occupancy.give(record.job_id, gang.attempt.tasks)
        self._hold(gang, -1)
        self._session.finish(gang.gang_id)
        if self._quotas.give(record.job.project, gang.attempt.tasks):
            self._line.unblock(record.job.project)
        if outcome in AGAIN:
            self._wait_again(gang, outcome)
        else:
            self._learn(record)
            self._line.ended(record, outcome, now)
        if gang.stopping_for is not None:
            self._line.release_claim(gang.stopping_for)

    def _wait_again(self, gang: Gang, outcome: str) -> None:
        """Its work up to now is done, but for what is lost."""
        world, element = self._world, gang.element
        lost = world.lost_s
        if outcome == "node_failure" and world.node_failure_lost_s is not None:
            lost = world.node_failure_lost_s
        ran = self._now - gang.attempt.start_s
        whole = gang.record.job.duration_s
        left = moment(min(whole, element.left_s - ran + lost))
        done = element.left_s - left  # less than nothing if old work was lost
        again = Element(
            element.index,
            left,
            element.preempted + (outcome == "preempted"),
            max(0.0, element.ran_s + done),
        )
        self._line.again(gang.record, again)

    def _learn(self, record: Record) -> None:
        if record.limit is not None:
            self._ran += min(record.job.duration_s, record.limit)
            self._asked += record.limit

    def _ratio(self) -> float:
        if self._world.oracle or not self._world.learn_limits:
            return 1.0
        return self._ran / self._asked if self._asked > 0 else self._opening.limit_ratio

    def _hold(self, gang: Gang, sign: int) -> None:
        self._usage.hold(gang.record.usage_key, sign * gang.milli, self._now)
        if self._timeline is not None:
            self._timeline.hold(gang.record.job.project, sign * gang.milli)


def _queues(cluster: Cluster, jobs: Sequence[WorkloadJob]) -> dict[str, QueueState]:
    """Those of the file, and an open one of weight 1 for each name that only jobs have.

    :raises InputFault: if a job's project is not one of its queue's.
    """
    pools = tuple(dict.fromkeys(node.pool_id for node in cluster.nodes))
    queues = {
        queue.id: queue if cluster.owned else replace(queue, pool_ids=pools)
        for queue in cluster.queues
    }
    for job in jobs:
        queues.setdefault(job.queue, QueueState(job.queue, pools))
        members = cluster.members.get(job.queue)
        if members is not None and job.project not in members:
            raise InputFault(
                f"job '{job.name}': queue '{job.queue}' is for the projects "
                f"{', '.join(sorted(members))}, not for '{job.project}'"
            )
    return queues
