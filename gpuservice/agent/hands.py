# SPDX-License-Identifier: Apache-2.0
"""All tasks of the node: compares what should be with what is, and takes the steps between."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpuservice.agent.hand import TaskInHand
from gpuservice.agent.journal import Journal
from gpuservice.agent.lease import boot_time
from gpuservice.agent.log_shipping import LogCursor
from gpuservice.agent.orders import SyncAnswer, TaskOrder
from gpuservice.agent.runner import Event, Runner, Started
from gpuservice.agent.settings import AgentSettings
from gpuservice.agent.task_files import Result
from gpuservice.agent.wire import INLINE_LOG_BYTES, TaskReport

LOG = logging.getLogger(__name__)
#: All short logs of one sync together, bytes: the service takes bodies of 1 MiB, and base64 and
#: the rest of the report need room.
_SYNC_LOG_BYTES = 384 * 1024
#: All reports of one sync without their logs, bytes, for the same reason.
_SYNC_REPORT_BYTES = 384 * 1024
#: Seconds between two reports of tasks without news: what the service was told it knows.
_EVERYTHING_S = 5.0
#: How long the names of forgotten tasks are kept, to see through answers that were overtaken.
_REMEMBER_S = 120


@dataclass(frozen=True, slots=True)
class Told:
    """What one sync says of a task."""

    hand: TaskInHand
    report: TaskReport


class Hands:
    """The tasks in hand, under one lock. ``closed``: answers no longer change anything."""

    def __init__(self, runner: Runner, journal: Journal, settings: AgentSettings) -> None:
        self._runner, self._journal, self._settings = runner, journal, settings
        self._lock = threading.RLock()
        self._hands: dict[str, TaskInHand] = {}
        self._forgotten: dict[str, float] = {}
        self._everything_at = float("-inf")
        self.revision = 0
        self.closed = False

    def adopt(self, order: TaskOrder) -> None:
        """Take over a task of an earlier agent; the runner will tell how it stands."""
        hand = self._new(order)
        hand.launched, hand.state = True, "running"

    def apply(self, answer: SyncAnswer, sent_at: float) -> tuple[list[TaskInHand], bool]:
        """Make the tasks what an answer says: returns those to start now, and whether any changed.

        Ids to start are in the journal, on disk, when this returns.
        """
        with self._lock:
            if self.closed or answer.revision < self.revision:
                return [], False
            changed = answer.revision > self.revision
            self.revision = answer.revision
            wanted = {order.task_id: order for order in answer.tasks}
            fresh = [
                order
                for order in answer.tasks
                if order.task_id not in self._hands
                and self._forgotten.get(order.task_id, -1.0) < sent_at
            ]
            launches = self._begin(fresh)
            for order in answer.tasks:
                if order.action == "stop":
                    self._stop(order)
                else:
                    self._limit(order)
            for task_id in [one for one in self._hands if one not in wanted]:
                self._dismiss(self._hands[task_id])
            return launches, changed or bool(fresh)

    def _begin(self, orders: Sequence[TaskOrder]) -> list[TaskInHand]:
        """Hands for new orders; those that must not run are gone from the start."""
        startable = [
            order
            for order in orders
            if order.action == "run" and order.fault is None and order.task_id not in self._journal
        ]
        known = {order.task_id for order in orders if order.task_id in self._journal}
        unwritten = None
        try:
            self._journal.record([order.task_id for order in startable], self._hands)
        except OSError as error:
            # None of them was started nor ever will be here; what runs goes on.
            unwritten, startable = f"the node's journal cannot be written: {error}", []
        launches = []
        for order in orders:
            hand = self._new(order)
            if order in startable:
                launches.append(hand)
                continue
            hand.state = "gone"
            if order.task_id in known:
                hand.fail("node_failure", "it was started here before and nothing is left of it")
            elif order.fault is not None:
                hand.fail("platform", order.fault)
            elif unwritten is not None and order.action == "run":
                hand.fail("node_failure", unwritten)
        return launches

    def _stop(self, order: TaskOrder) -> None:
        hand = self._hands.get(order.task_id)
        if hand is None or hand.result is not None or hand.state == "gone":
            return
        if hand.grace_s is None or order.grace_s < hand.grace_s:
            hand.grace_s = order.grace_s
            if hand.launched:
                self._runner.stop(order.task_id, order.grace_s, order.signal)

    def _limit(self, order: TaskOrder) -> None:
        """A time limit that is no longer the one it was started (or adopted) with."""
        hand = self._hands.get(order.task_id)
        if hand is None or hand.result is not None or order.spec is None:
            return
        if hand.time_limit_s != order.spec.time_limit_s:
            hand.time_limit_s = order.spec.time_limit_s
            if hand.launched:
                self._runner.limit(order.task_id, hand.time_limit_s)

    def _dismiss(self, hand: TaskInHand) -> None:
        """The service does not name it: it was acknowledged, or must not be."""
        if hand.state == "gone":
            self._forget(hand)
        elif not hand.discarded:
            hand.discarded = True
            if hand.launched and hand.result is None:
                self._runner.stop(hand.order.task_id, 0, "KILL")

    def wanted(self, hand: TaskInHand) -> bool:
        """Whether anybody still wants what this task does or leaves."""
        return not (hand.discarded or self.closed)

    def launch(self, hand: TaskInHand) -> None:
        """Start a prepared task, unless it was stopped meanwhile."""
        with self._lock:
            if self.closed:
                return
            if hand.discarded or hand.grace_s is not None:
                self.gone(hand)
                return
            hand.launched = True
            hand.checkpointed_at = time.monotonic()
            if hand.limit_changed:  # while it was being prepared
                self._runner.limit(hand.order.task_id, hand.time_limit_s)
        self._runner.launch(hand.order.task_id)

    def happened(self, event: Event) -> TaskInHand | None:
        """Take an event; returns the hand if there is something left to do for it."""
        with self._lock:
            hand = self._hands.get(event.task_id)
            if hand is None:
                return None
            if isinstance(event, Started):
                hand.started_at = event.at
                if hand.state == "preparing":
                    hand.state = "running"
                return hand
            hand.ended(event.result)
            if hand.discarded:
                self._forget(hand)
                return None
            hand.state = "finishing"
            return hand

    def gone(self, hand: TaskInHand) -> None:
        """Everything of it was handed over; it waits for the service's word."""
        with self._lock:
            if hand.result is None:
                hand.result = Result(ended_at=time.time(), cause="setup")
        self._runner.wipe(hand.order.task_id, hand.last_word)
        with self._lock:
            hand.state = "gone"
            if hand.discarded:
                self._forget(hand)

    def reports(self) -> tuple[tuple[Told, ...], bool]:
        """What a sync says of the tasks: of all that have news, then, every few seconds, of the
        others, as far as there is room. And whether there is news left for the next one."""
        with self._lock:
            now = time.monotonic()
            everything = now >= self._everything_at
            if everything:
                self._everything_at = now + _EVERYTHING_S
            room, log_room, postponed = _SYNC_REPORT_BYTES, _SYNC_LOG_BYTES, False
            said: list[Told] = []
            for hand in sorted(self._hands.values(), key=lambda one: not one.has_news):
                if hand.discarded:
                    continue
                for_logs = log_room > 2 * INLINE_LOG_BYTES
                report = _with_log(hand) if for_logs else _without_log(hand)
                has_output = any(piece.data for piece in report.log.values())
                if not (everything or hand.has_news or has_output):
                    continue
                if report.size > room:
                    postponed = postponed or hand.has_news
                    continue
                room -= report.size
                log_room -= sum(len(piece.data) for piece in report.log.values())
                postponed = postponed or (report.state != hand.state and not for_logs)
                said.append(Told(hand, report))
                if report.checkpoint_fault is not None:  # under way: another sync says it not
                    hand.checkpoint_faults.remove(report.checkpoint_fault)
            return tuple(said), postponed

    def heard(self, said: Sequence[Told]) -> None:
        """The service answered, so it knows these reports and has their bytes."""
        with self._lock:
            for one in said:
                one.hand.told = one.report.state
                one.hand.logs.taken(one.report.log)

    def unheard(self, said: Sequence[Told]) -> None:
        """The service did not answer: what is said once only is said again."""
        with self._lock:
            for one in said:
                if one.report.checkpoint_fault is not None:
                    one.hand.checkpoint_faults.insert(0, one.report.checkpoint_fault)

    def logs_waiting(self) -> list[TaskInHand]:
        """Running tasks with output that was not handed over yet."""
        return [hand for hand in self._running() if hand.logs.backlog() > 0]

    def due_for_checkpoint(self, now: float) -> list[TaskInHand]:
        """Running tasks whose checkpoint is to be taken again; their clock starts anew."""
        due = []
        for hand in self._running():
            checkpoint = hand.order.spec.checkpoint if hand.order.spec else None
            if (
                hand.keeps_checkpoint
                and checkpoint is not None
                and checkpoint.interval_s
                and now - hand.checkpointed_at >= checkpoint.interval_s
            ):
                hand.checkpointed_at = now
                due.append(hand)
        return due

    def discard_all(self) -> int:
        """Kill everything, forget all that ended; returns how many there were."""
        with self._lock:
            hands = list(self._hands.values())
            for hand in hands:
                hand.discarded = False
                if hand.result is not None and hand.state == "finishing":
                    hand.discarded = True
                else:
                    self._dismiss(hand)
            self.revision = 0
            return len(hands)

    def any_left(self) -> bool:
        """Whether a task that was discarded may still have a process or a file."""
        with self._lock:
            return bool(self._hands)

    def _running(self) -> list[TaskInHand]:
        with self._lock:
            return [
                hand
                for hand in self._hands.values()
                if hand.state == "running" and not hand.discarded
            ]

    def _new(self, order: TaskOrder) -> TaskInHand:
        with self._lock:
            logs = LogCursor(
                order.task_id,
                self._runner.log_directory(order.task_id),
                self._settings.log_chunk_bytes,
            )
            hand = TaskInHand(order=order, logs=logs)
            self._hands[order.task_id] = hand
            return hand

    def _forget(self, hand: TaskInHand) -> None:
        task_id = hand.order.task_id
        del self._hands[task_id]
        now = boot_time()
        self._forgotten = (
            {one: at for one, at in self._forgotten.items() if now - at < _REMEMBER_S}
            if len(self._forgotten) > 1000
            else self._forgotten
        )
        self._forgotten[task_id] = now
        self._runner.clean(task_id)


def _with_log(hand: TaskInHand) -> TaskReport:
    """The report with the log bytes that ride in it."""
    if hand.state not in ("running", "gone"):
        return hand.report({})
    try:
        return hand.report(hand.logs.inline(end=hand.state == "gone"))
    except OSError as error:
        LOG.warning("task %s: its log cannot be read now: %s", hand.order.task_id, error)
        return _without_log(hand)


def _without_log(hand: TaskInHand) -> TaskReport:
    """The report without a log; the end of a task waits for one that has its last words."""
    report = hand.report({})
    return report if report.state != "gone" else replace(report, state="finishing", failure=None)
