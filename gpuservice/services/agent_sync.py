# SPDX-License-Identifier: Apache-2.0
"""The sync of a node: what it reports is written down, what it should run is told.

A sync with nothing to say costs one indexed read: the orders of a node are remembered by its
revision, which every change of its tasks raises.
"""

from __future__ import annotations

import base64
import binascii
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from gpuservice.domain import moments
from gpuservice.domain.errors import Invalid, LogGap, NodeFenced, StoreFull
from gpuservice.domain.inventory import Node
from gpuservice.domain.ports import Hint
from gpuservice.domain.ports_store import TaskEnd, UnitOfWork, Where
from gpuservice.domain.states import TaskStatus
from gpuservice.domain.task_environment import order
from gpuservice.domain.work import Task
from gpuservice.services.agent_data import checkpoint_faults
from gpuservice.services.agent_health import AgentHealth, blame_devices
from gpuservice.services.agent_nodes import AgentNodes, check_instance
from gpuservice.services.deps import Deps
from gpuservice.services.job_logs import log_key
from gpuservice.services.waiting_room import WaitingRoom

#: Stages in the order a task goes through them; a report never takes a task back.
_STAGES = (TaskStatus.ASSIGNED, TaskStatus.PREPARING, TaskStatus.RUNNING, TaskStatus.FINISHING)

#: Orders of so many nodes are remembered by one process.
_REMEMBERED = 5000

Orders = tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    """What a node is told."""

    epoch: int
    revision: int
    lease_s: int | None
    interval_s: float
    tasks: Orders


class AgentSync:
    """Syncs of nodes."""

    def __init__(self, deps: Deps, nodes: AgentNodes, room: WaitingRoom) -> None:
        self._deps = deps
        self._nodes = nodes
        self._room = room
        self._health = AgentHealth(deps)
        self._lock = threading.Lock()
        self._orders: dict[str, tuple[int, Orders]] = {}

    @property
    def interval_s(self) -> float:
        """The interval at which nodes sync, in seconds."""
        return float(self._deps.conf.agent.interval_s)

    def sync(self, secret: str | None, body: Mapping[str, Any]) -> SyncAnswer:
        """Take reports, answer orders; waits for news as the body allows."""
        epoch, instance, known = body["epoch"], body["instance"], body["revision"]

        def read() -> Node:
            return self._deps.store.read(lambda uow: self._nodes.recognise(uow, secret, epoch))

        node, tasks = self._deps.store.read(
            lambda uow: self._node_and_tasks(uow, secret, epoch, bool(body.get("tasks")))
        )
        check_instance(node, instance, self._deps.clock.now())
        due = self._due(node, instance)
        if self._health.take(node, body.get("devices", ())):
            node = read()
        written = self._take_reports(node, tasks, body.get("tasks", ()), instance)
        if due and not written:
            self._deps.store.write(lambda uow: self._renew(uow, node, instance))
        wait_s = self._wait_s(node, float(body.get("wait_s", 0)))
        if node.revision <= known and wait_s > 0:
            node = self._news(node, known, wait_s, read)
        elif written or due:
            node = read()
        return self._answer(node)

    def _node_and_tasks(
        self, uow: UnitOfWork, secret: str | None, epoch: int, wanted: bool
    ) -> tuple[Node, dict[str, Task]]:
        """The node and, where it reports of some, its tasks of this epoch, by id."""
        node = self._nodes.recognise(uow, secret, epoch)
        tasks = uow.tasks.of_node(node.id) if wanted else []
        return node, {task.id: task for task in tasks if task.node_epoch == node.epoch}

    def _news(self, node: Node, known: int, wait_s: float, read: Callable[[], Node]) -> Node:
        """The node once its revision is newer than ``known``, or as it is when time is up."""
        last = node

        def look() -> Node | None:
            nonlocal last
            last = read()
            return last if last.revision > known else None

        return self._room.wait_for(node.id, wait_s, look) or last

    def _wait_s(self, node: Node, wanted: float) -> float:
        """No wait may eat up a lease: it counts from the moment the sync was sent. A node
        without one is not to be silent for so long either."""
        return min(wanted, (node.lease_s or self._deps.conf.agent.lease_s) / 3)

    def _due(self, node: Node, instance: str) -> bool:
        """Whether the lease's renewal must be written: at most every fifth of the lease.

        A clock that is behind the database's must not keep a renewal back, so an age below zero
        is due too.
        """
        if node.last_renewal_at is None or node.instance != instance:
            return True
        lease = node.lease_s or self._deps.conf.agent.lease_s
        age = self._deps.clock.now() - node.last_renewal_at
        return not timedelta(0) <= age < timedelta(seconds=lease / 5)

    @staticmethod
    def _renew(uow: UnitOfWork, node: Node, instance: str) -> None:
        """Renew the lease; whoever was fenced meanwhile does not.

        :raises NodeFenced: rolls everything of the transaction back.
        """
        if not uow.nodes.renew(node.id, node.epoch, instance):
            raise NodeFenced("The node was given up meanwhile.")

    # -- orders ----------------------------------------------------------------------------
    def _answer(self, node: Node) -> SyncAnswer:
        conf = self._deps.conf.agent
        return SyncAnswer(
            node.epoch, node.revision, node.lease_s, conf.interval_s, self._orders_of(node)
        )

    def _orders_of(self, node: Node) -> Orders:
        if not node.live_tasks:
            return ()
        with self._lock:
            known = self._orders.get(node.id)
        if known is not None and known[0] == node.revision:
            return known[1]
        orders = self._deps.store.read(lambda uow: self._build(uow, node))
        with self._lock:
            if len(self._orders) >= _REMEMBERED:
                self._orders.clear()
            self._orders[node.id] = (node.revision, orders)
        return orders

    def _build(self, uow: UnitOfWork, node: Node) -> Orders:
        """The orders of all tasks of a node (a fixed number of queries)."""
        tasks = [task for task in uow.tasks.of_node(node.id) if task.node_epoch == node.epoch]
        attempts = {
            one.id: one for one in uow.attempts.get_many({task.attempt_id for task in tasks})
        }
        jobs = {one.id: one for one in uow.jobs.get_many({task.job_id for task in tasks})}
        peers: dict[str, list[Task]] = {}
        for task in uow.tasks.of_attempts(sorted(attempts)):
            peers.setdefault(task.attempt_id, []).append(task)
        shares: list[Any] = []
        if tasks:
            shares = uow.allocations.find(
                Where("task_id", "in", [task.id for task in tasks]), Where("released_at", "null")
            )
        devices = {
            one.id: one for one in uow.devices.get_many({share.device_id for share in shares})
        }
        held: dict[str, list[Any]] = {}
        for share in shares:
            held.setdefault(share.task_id, []).append((devices[share.device_id], share.milli))
        return tuple(
            order(
                jobs[task.job_id],
                attempts[task.attempt_id],
                task,
                peers[task.attempt_id],
                held.get(task.id, []),
                self._deps.conf.logs.max_bytes,
                self._deps.conf.artifacts.max_bytes,
                self._deps.conf.artifacts.checkpoint_max_bytes,
            )
            for task in tasks
            if task.job_id in jobs
        )

    # -- reports ---------------------------------------------------------------------------
    def _take_reports(
        self,
        node: Node,
        tasks: Mapping[str, Task],
        reports: Sequence[Mapping[str, Any]],
        instance: str,
    ) -> bool:
        """Keep what is new of the reports; whether anything was written of the node."""
        _check_times(reports)
        ours = [(tasks[one["task_id"]], one) for one in reports if one["task_id"] in tasks]
        told = {task.job_id for task, report in ours if self._keep_logs(task, report)}
        changed = [(task, report) for task, report in ours if _changes(task, report)]
        faults = [(task, fault) for task, one in ours if (fault := one.get("checkpoint_fault"))]
        if changed or faults:
            self._deps.store.write(lambda uow: self._write(uow, node, changed, faults, instance))
        if changed:
            jobs = tuple(sorted({task.job_id for task, _ in changed}))
            # Who waits hears of it with the end of the attempt, which gives the quota back as well.
            self._deps.hints.send(Hint("attempts", jobs))
        if told:
            self._deps.hints.send(Hint("logs", tuple(sorted(told))))
        return bool(changed or faults)

    def _write(
        self,
        uow: UnitOfWork,
        node: Node,
        changed: Sequence[tuple[Task, Mapping[str, Any]]],
        faults: Sequence[tuple[Task, Mapping[str, Any]]],
        instance: str,
    ) -> None:
        """All reports of one sync in one transaction.

        Ends go first, because they lock in the service's order (quota, devices, nodes, attempts,
        tasks); the renewal is last and takes everything back if the node was fenced meanwhile.
        """
        ends = [
            _end(task, report) for task, report in changed if report["state"] == TaskStatus.GONE
        ]
        going = [(task, report) for task, report in changed if report["state"] != TaskStatus.GONE]
        if ends:
            uow.tasks.gone(blame_devices(uow, node, ends), uow.now())
        running = sorted(
            {task.attempt_id for task, report in going if report["state"] == TaskStatus.RUNNING}
        )
        if running:
            uow.attempts.change_many(running, {"attention": True}, Where("live", "eq", 1))
        for place, stage in enumerate(_STAGES):
            uow.tasks.change_each(
                [
                    (task.id, _progress(task, report))
                    for task, report in going
                    if report["state"] == stage
                ],
                # Another sync of the node may have told more meanwhile.
                Where("status", "in", _STAGES[:place]),
                counted=False,
            )
        uow.events.add_many(checkpoint_faults(self._deps.ids, uow, faults))
        self._renew(uow, node, instance)

    def _keep_logs(self, task: Task, report: Mapping[str, Any]) -> bool:
        """Append the log pieces that ride along; whether there is news for readers. A full store
        must not cost a node its lease, nor keep the end of a task back."""
        try:
            return self._append(task, report)
        except StoreFull:
            return bool(report["state"] == TaskStatus.GONE)

    def _append(self, task: Task, report: Mapping[str, Any]) -> bool:
        """The pieces' offsets make repeats harmless. Nothing is written for a task that says
        nothing: that it is gone is known of its record, which readers look at first."""
        gone = bool(report["state"] == TaskStatus.GONE)
        told = gone
        for stream, piece in (report.get("log") or {}).items():
            if piece is None:
                continue
            key = log_key(task.job_id, task.attempt_id, task.id, stream)
            data = _bytes(piece.get("data_b64", ""))
            ends = bool(piece.get("end")) and not gone
            try:
                if data or ends:
                    self._deps.logs.append(
                        key, piece["offset"], data, self._deps.conf.logs.max_bytes
                    )
            except LogGap:
                continue  # the node ships what is missing by the log call, which says from where
            if ends:
                self._deps.logs.close(key)
            told = told or bool(data) or ends
        return told


def _changes(task: Task, report: Mapping[str, Any]) -> bool:
    state = report["state"]
    if state == "gone":
        return True
    return _STAGES.index(TaskStatus(state)) > _STAGES.index(TaskStatus(task.status))


def _progress(task: Task, report: Mapping[str, Any]) -> dict[str, Any]:
    started = _time(report.get("started_at"))
    return {"status": report["state"], "claimed_started_at": task.claimed_started_at or started}


def _end(task: Task, report: Mapping[str, Any]) -> TaskEnd:
    failure = report.get("failure") or {}
    started = _time(report.get("started_at")) or task.claimed_started_at
    return TaskEnd(
        task_id=task.id,
        exit_code=report.get("exit_code"),
        signal=report.get("signal"),
        oom=bool(report.get("oom")),
        timed_out=bool(report.get("timed_out")),
        stopped=bool(report.get("stopped")),
        failure_class=failure.get("class"),
        failure_evidence=failure.get("evidence"),
        claimed_started_at=started,
        claimed_ended_at=_time(report.get("ended_at")),
    )


def _time(text: str | None, pointer: str = "") -> datetime | None:
    if text is None:
        return None
    try:
        return moments.parsed(text, zone=True)
    except ValueError as error:
        raise Invalid(
            f"{text[:80]!r} is not an ISO 8601 time with a zone.", pointer=pointer
        ) from error


def _check_times(reports: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a wrong time before anything of the sync is kept."""
    for number, report in enumerate(reports):
        for name in ("started_at", "ended_at"):
            _time(report.get(name), f"/tasks/{number}/{name}")


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error) as error:
        raise Invalid("data_b64 is not base64.") from error
