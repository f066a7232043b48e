# SPDX-License-Identifier: Apache-2.0
"""A session driven at random against the slow reference: what is kept between passes is right.

After every pass the plan is compared with ``plan`` of the whole snapshot from scratch, and every
decision of it with the plain accounts.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from planner_worlds import examples, policies, snapshots

from gpuservice.planner.plan import plan
from gpuservice.planner.plan_types import Plan
from gpuservice.planner.session import Session, rank
from gpuservice.planner.snapshot import PendingJob, Reservation, RunningGang, Snapshot
from tests.cluster_states import gang_of, with_running
from tests.cluster_worlds import EVERYTHING
from tests.job_worlds import JOB_BYTES, NOW, REQUEST_BYTES, Dice, job, request
from tests.reference_books import INFINITE, Books, runtime_of
from tests.reference_planner import faults, idle_faults, order_faults

SHAPES = [request(Dice(bytes([count, size, 0, 0]))) for count in (0, 4) for size in (0, 4, 8, 9)]


class SessionModel(RuleBasedStateMachine):
    """The same things are told to a session and done to a plain model of it."""

    @initialize(world=snapshots(EVERYTHING, waiting=0, nodes=4), policy=policies)
    def begin(self, world: Snapshot, policy: object) -> None:
        self.policy = replace(policy, explain=False)  # type: ignore[type-var]
        self.base = with_running(replace(world, pending=()), ())
        self.now = NOW
        self.pending: dict[str, PendingJob] = {}
        self.running: dict[str, RunningGang] = {}
        self.jobs: dict[str, PendingJob] = {}
        self.claims: dict[str, str] = {}  # gang -> the job that it goes for
        self.claimed: set[str] = set()
        self.number = 0
        self.session = self._session()

    def _session(self) -> Session:
        """A session that knows what the model knows."""
        base = self.base
        session = Session(
            base.nodes, base.pools, base.queues, self.policy, base.headroom, base.reservations
        )
        for gang in self.running.values():
            session.submit(replace(self.jobs[gang.job_id], elements=1))
            session.start(gang)
            if gang.preempting:
                session.stopping(gang.gang_id, gang.promised_end or self.now)
        for one in self.pending.values():
            session.submit(one)
        return session

    def _tell(self, word: str, value: object) -> None:
        """One of the words that replace a part of the cluster, or a new session without it."""
        if hasattr(self.session, word):
            getattr(self.session, word)(value)
        else:
            self.session = self._session()

    # --- what users do

    @rule(thrown=st.binary(min_size=JOB_BYTES, max_size=JOB_BYTES))
    def submit(self, thrown: bytes) -> None:
        self.number += 1
        made = job(Dice(thrown), self.number, SHAPES, EVERYTHING - {"promises"})
        made = replace(made, queued_at=self.now, deadline=None)
        self.pending[made.job_id] = self.jobs[made.job_id] = made
        self.session.submit(made)

    @rule(shape=st.binary(min_size=REQUEST_BYTES, max_size=REQUEST_BYTES))
    def submit_another_shape(self, shape: bytes) -> None:
        self.number += 1
        made = job(Dice(b""), self.number, [request(Dice(shape))], frozenset())
        made = replace(made, queued_at=self.now, max_runtime_s=90)
        self.pending[made.job_id] = self.jobs[made.job_id] = made
        self.session.submit(made)

    @precondition(lambda self: self.pending)
    @rule(which=st.integers(0, 20))
    def withdraw(self, which: int) -> None:
        ident = sorted(self.pending)[which % len(self.pending)]
        del self.pending[ident]
        self.session.withdraw(ident)

    # --- what happens to running jobs

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 20))
    def finish_early(self, which: int) -> None:
        self._end(sorted(self.running)[which % len(self.running)])

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 20))
    def fail_and_wait_again(self, which: int) -> None:
        gang = self.running[sorted(self.running)[which % len(self.running)]]
        self._end(gang.gang_id)
        self._again(gang)

    def _again(self, gang: RunningGang) -> None:
        """One element more of the job waits, at its old place."""
        waits = self.pending.get(gang.job_id)
        again = replace(
            waits or self.jobs[gang.job_id],
            elements=waits.elements + 1 if waits else 1,
            preempted=gang.preempted + int(gang.preempting),
        )
        self.pending[again.job_id] = again
        self.session.submit(again)

    def _end(self, gang_id: str) -> None:
        del self.running[gang_id]
        self.claims.pop(gang_id, None)
        self.session.finish(gang_id)

    # --- what happens to the cluster

    @precondition(lambda self: self.base.nodes)
    @rule(which=st.integers(0, 9), ready=st.booleans(), lost=st.booleans())
    def node_drains_comes_back_or_is_lost(self, which: int, ready: bool, lost: bool) -> None:
        node = self.base.nodes[which % len(self.base.nodes)]
        nodes = tuple(
            replace(one, ready=ready) if one.id == node.id else one for one in self.base.nodes
        )
        self.base = replace(self.base, nodes=nodes)
        self.session.node_ready(node.id, ready)
        if lost and not ready:
            for gang in list(self.running.values()):
                if any(task.node_id == node.id for task in gang.tasks):
                    self._end(gang.gang_id)
                    self._again(gang)

    @rule(project=st.sampled_from(["red", "blue"]), milli=st.sampled_from([None, 0, 1000, 5000]))
    def quota_changes(self, project: str, milli: int | None) -> None:
        left = {key: amount for key, amount in self.base.headroom.items() if key[0] != project}
        if milli is not None:
            left[project, "gpus"] = milli
        self.base = replace(self.base, headroom=left)
        self._tell("set_headroom", left)

    @rule(which=st.integers(0, 2), opened=st.booleans(), nominal=st.sampled_from([None, 0, 3000]))
    def queue_changes(self, which: int, opened: bool, nominal: int | None) -> None:
        changed = replace(
            self.base.queues[which],
            open=opened,
            nominal={} if nominal is None else {"a100-80gb": nominal, "t4": nominal},
        )
        queues = tuple(changed if one.id == changed.id else one for one in self.base.queues)
        self.base = replace(self.base, queues=queues)
        self._tell("set_queues", queues)

    @precondition(lambda self: self.base.nodes)
    @rule(first=st.integers(0, 9), start=st.sampled_from([0, 50, 200]))
    def reservation_is_made(self, first: int, start: int) -> None:
        at = self.now + start
        node = self.base.nodes[first % len(self.base.nodes)]
        made = (Reservation("reservation", (node.id,), at, at + 300, "queue-1"),)
        self.base = replace(self.base, reservations=made)
        self._tell("set_reservations", made)

    @rule()
    def reservations_end(self) -> None:
        self.base = replace(self.base, reservations=())
        self._tell("set_reservations", ())

    # --- time and passes

    @rule(seconds=st.sampled_from([1, 30, 60, 100, 700]), overrun=st.booleans())
    def time_goes_by(self, seconds: int, overrun: bool) -> None:
        """Jobs end at their limits, unless they overrun them."""
        self.now += seconds
        for gang in list(self.running.values()):
            if gang.promised_end is not None and gang.promised_end <= self.now and not overrun:
                self._end(gang.gang_id)
                if gang.preempting:
                    self._again(gang)

    @rule(usage=st.sampled_from([{}, {("queue-0", "red", "ann"): 1e6}]))
    def plan_and_do(self, usage: dict[tuple[str, str, str], float]) -> None:
        snapshot = self._snapshot(usage)
        made = self.session.plan(self.now, usage=usage)
        assert made == plan(snapshot, self.policy)
        assert not faults(snapshot, made)
        assert not list(order_faults(snapshot, made))
        if not made.preemptions and not any(one.claimed for one in snapshot.pending):
            assert not list(idle_faults(snapshot, made))
        self._keep(made)
        self._do(made)

    @rule()
    def plan_twice(self) -> None:
        """A pass in which nothing is done changes no more than due times and promises."""
        snapshot = self._snapshot({})
        made = self.session.plan(self.now)
        assert made == plan(snapshot, self.policy)
        self._keep(made)
        again = self.session.plan(self.now)
        assert again == plan(self._snapshot({}), self.policy)
        self._keep(again)

    def _snapshot(self, usage: dict[tuple[str, str, str], float]) -> Snapshot:
        waiting = replace(
            self.base,
            now=self.now,
            pending=tuple(self.pending.values()),
            usage=usage,
            limit_ratio=1.0,
        )
        books = Books(waiting)  # the headroom that a session is told is of all that runs
        for gang in self.running.values():
            books.start(self.jobs[gang.job_id], gang.tasks)
        return replace(with_running(waiting, self.running.values()), headroom=books.left)

    def _keep(self, made: Plan) -> None:
        for ident, due in made.due.items():
            self.pending[ident] = replace(self.pending[ident], due=due)
        for number, promise in enumerate(made.promises):
            waits = self.pending[promise.job_id]
            since = rank(self.now, number) if waits.promised is None else waits.promised
            self.pending[promise.job_id] = replace(waits, promised=since, promise=promise)
        claimed = set(self.claims.values())
        for ident in self.claimed - claimed:
            if ident in self.pending:
                self.pending[ident] = replace(self.pending[ident], claimed=False)
        self.claimed = claimed

    def _do(self, made: Plan) -> None:
        told = {promise.job_id for promise in made.promises}
        for start in made.starts:
            waits = self.pending.pop(start.job_id)
            if waits.elements > 1:
                promised = waits.promised if waits.job_id in told else None
                rest = replace(waits, elements=waits.elements - 1, promised=promised, claimed=False)
                self.pending[waits.job_id] = rest
            queue = next(one for one in self.base.queues if one.id == waits.queue_id)
            limit = runtime_of(waits, queue)
            end = None if limit == INFINITE else self.now + limit
            self.number += 1
            gang = gang_of(waits, start.tasks, self.now, end, number=self.number)
            self.running[gang.gang_id] = gang
            self.session.start(gang)
        places = {one.job_id: one for one in made.claims}
        for one in made.preemptions:
            gang = self.running[one.gang_id]
            until = self.now + 30.0
            end = until if gang.promised_end is None else min(until, gang.promised_end)
            self.running[one.gang_id] = replace(gang, preempting=True, promised_end=end)
            self.session.stopping(one.gang_id, until)
            self.claims[one.gang_id] = one.for_job_id
            waits = self.pending[one.for_job_id]
            place = places.get(waits.job_id, waits.promise)
            self.pending[waits.job_id] = replace(waits, claimed=True, promise=place)


TestSessionModel = SessionModel.TestCase
TestSessionModel.settings = settings(
    examples(100), stateful_step_count=30, max_examples=examples(100).max_examples
)
