# SPDX-License-Identifier: Apache-2.0
"""Transition tables of jobs, attempts, nodes and pools: the only place where a status may change.

Each table is a tuple of ``(source, event, target)`` rows. The tables are turned into
``automaton`` machines (which check them and draw them into the documentation) and into plain
dictionaries for the hot path.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from automaton import machines

from gpuservice.domain.errors import InvalidTransition


class JobStatus(StrEnum):
    """What a job (or one array element) is doing."""

    HELD = "held"
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    PREEMPTING = "preempting"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"


class AttemptStatus(StrEnum):
    """The life of one try of a job element."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"


class AttemptOutcome(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    NODE_FAILURE = "node_failure"


class TaskStatus(StrEnum):
    """What the node last said of one rank; ``gone`` is final and frees its allocations."""

    ASSIGNED = "assigned"
    PREPARING = "preparing"
    RUNNING = "running"
    FINISHING = "finishing"
    GONE = "gone"


class NodeStatus(StrEnum):
    """The life of a pool's node."""

    REQUESTED = "requested"
    BUILDING = "building"
    CONFIGURING = "configuring"
    CHECKING = "checking"
    READY = "ready"
    CORDONED = "cordoned"
    DRAINING = "draining"
    ERROR = "error"
    REPAIRING = "repairing"
    DELETING = "deleting"
    DELETED = "deleted"


class PoolStatus(StrEnum):
    """The life of a pool."""

    CREATING = "creating"
    ACTIVE = "active"
    RESIZING = "resizing"
    ERROR = "error"
    DELETING = "deleting"
    DELETED = "deleted"


class QueueStatus(StrEnum):
    """Whether a queue takes new jobs and lets waiting ones start."""

    OPEN = "open"
    DRAINED = "drained"
    CLOSED = "closed"


JOB_ENDED: frozenset[str] = frozenset(
    {JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.TIMED_OUT}
)
JOB_LIVE: frozenset[str] = frozenset(set(JobStatus) - JOB_ENDED)
#: Node statuses in which a node exists for the quota (from ``requested`` to ``deleted``).
NODE_COUNTED: frozenset[str] = frozenset(set(NodeStatus) - {NodeStatus.DELETED})
#: Pool statuses in which a pool exists for its users and for the quota.
POOL_COUNTED: frozenset[str] = frozenset(set(PoolStatus) - {PoolStatus.DELETED})
#: Node statuses in which a node's tasks go on running.
NODE_SERVING: frozenset[str] = frozenset(
    {NodeStatus.READY, NodeStatus.CORDONED, NodeStatus.DRAINING}
)

Row = tuple[str, str, str]
_J, _A, _N, _P = JobStatus, AttemptStatus, NodeStatus, PoolStatus

JOB_TABLE: tuple[Row, ...] = (
    (_J.HELD, "release", _J.QUEUED),
    (_J.QUEUED, "hold", _J.HELD),
    (_J.QUEUED, "start", _J.STARTING),
    (_J.QUEUED, "fail", _J.FAILED),
    (_J.HELD, "fail", _J.FAILED),
    (_J.STARTING, "run", _J.RUNNING),
    (_J.STARTING, "succeed", _J.SUCCEEDED),
    (_J.STARTING, "fail", _J.FAILED),
    (_J.STARTING, "time_out", _J.TIMED_OUT),
    (_J.STARTING, "requeue", _J.QUEUED),
    (_J.STARTING, "preempt", _J.PREEMPTING),
    (_J.RUNNING, "succeed", _J.SUCCEEDED),
    (_J.RUNNING, "fail", _J.FAILED),
    (_J.RUNNING, "time_out", _J.TIMED_OUT),
    (_J.RUNNING, "requeue", _J.QUEUED),
    (_J.RUNNING, "preempt", _J.PREEMPTING),
    (_J.PREEMPTING, "requeue", _J.QUEUED),
    (_J.PREEMPTING, "suspend", _J.HELD),
    (_J.PREEMPTING, "succeed", _J.SUCCEEDED),
    (_J.PREEMPTING, "fail", _J.FAILED),
    (_J.PREEMPTING, "time_out", _J.TIMED_OUT),
    *(
        (live, "cancel", _J.CANCELLING)
        for live in (_J.HELD, _J.QUEUED, _J.STARTING, _J.RUNNING, _J.PREEMPTING)
    ),
    (_J.CANCELLING, "cancelled", _J.CANCELLED),
)

ATTEMPT_TABLE: tuple[Row, ...] = (
    (_A.STARTING, "run", _A.RUNNING),
    (_A.STARTING, "stop", _A.STOPPING),
    (_A.RUNNING, "stop", _A.STOPPING),
    (_A.STARTING, "end", _A.ENDED),
    (_A.RUNNING, "end", _A.ENDED),
    (_A.STOPPING, "end", _A.ENDED),
)

_NODE_ALIVE = (
    _N.REQUESTED,
    _N.BUILDING,
    _N.CONFIGURING,
    _N.CHECKING,
    _N.READY,
    _N.CORDONED,
    _N.DRAINING,
)
NODE_TABLE: tuple[Row, ...] = (
    (_N.REQUESTED, "build", _N.BUILDING),
    (_N.BUILDING, "built", _N.CONFIGURING),
    (_N.CONFIGURING, "registered", _N.CHECKING),
    (_N.CHECKING, "checked", _N.READY),
    (_N.READY, "cordon", _N.CORDONED),
    (_N.CORDONED, "uncordon", _N.READY),
    (_N.READY, "drain", _N.DRAINING),
    (_N.CORDONED, "drain", _N.DRAINING),
    (_N.DRAINING, "uncordon", _N.READY),
    (_N.DRAINING, "cordon", _N.CORDONED),
    *((source, "delete", _N.DELETING) for source in (*_NODE_ALIVE, _N.ERROR, _N.REPAIRING)),
    *((source, "fault", _N.ERROR) for source in (*_NODE_ALIVE, _N.REPAIRING)),
    (_N.ERROR, "repair", _N.REPAIRING),
    (_N.REPAIRING, "rebuild", _N.BUILDING),
    (_N.REPAIRING, "registered", _N.CHECKING),
    (_N.DELETING, "deleted", _N.DELETED),
)

POOL_TABLE: tuple[Row, ...] = (
    (_P.CREATING, "settle", _P.ACTIVE),
    (_P.ACTIVE, "resize", _P.RESIZING),
    (_P.RESIZING, "settle", _P.ACTIVE),
    *((source, "fault", _P.ERROR) for source in (_P.CREATING, _P.ACTIVE, _P.RESIZING)),
    (_P.ERROR, "resize", _P.RESIZING),
    (_P.ERROR, "settle", _P.ACTIVE),
    *(
        (source, "delete", _P.DELETING)
        for source in (_P.CREATING, _P.ACTIVE, _P.RESIZING, _P.ERROR)
    ),
    (_P.DELETING, "deleted", _P.DELETED),
)


class Transitions:
    """One transition table, checked by ``automaton`` when it is built."""

    def __init__(
        self, noun: str, start: str, statuses: Iterable[str], table: tuple[Row, ...]
    ) -> None:
        self.noun = noun
        self.table = table
        self.machine = _machine(start, statuses, table)
        self._next: Mapping[tuple[str, str], str] = {(s, e): t for s, e, t in table}

    def after(self, status: str, event: str) -> str:
        """The status that ``event`` leads to; raises :class:`InvalidTransition` if none."""
        target = self._next.get((status, event))
        if target is None:
            raise InvalidTransition(self.noun, status, event)
        return target

    def allows(self, status: str, event: str) -> bool:
        """Whether ``event`` may happen to something in ``status``."""
        return (status, event) in self._next

    def sources(self, event: str) -> frozenset[str]:
        """The statuses in which ``event`` may happen: the guard of a conditional update."""
        return frozenset(s for s, e in self._next if e == event)


def _machine(start: str, statuses: Iterable[str], table: tuple[Row, ...]) -> machines.FiniteMachine:
    machine = machines.FiniteMachine()
    sources = {source for source, _, _ in table}
    for status in statuses:
        machine.add_state(str(status), terminal=status not in sources)
    for source, event, target in table:
        machine.add_transition(str(source), str(target), event)
    machine.default_start_state = str(start)
    machine.freeze()
    return machine


JOB = Transitions("job", JobStatus.QUEUED, JobStatus, JOB_TABLE)
ATTEMPT = Transitions("attempt", AttemptStatus.STARTING, AttemptStatus, ATTEMPT_TABLE)
NODE = Transitions("node", NodeStatus.REQUESTED, NodeStatus, NODE_TABLE)
POOL = Transitions("pool", PoolStatus.CREATING, PoolStatus, POOL_TABLE)
