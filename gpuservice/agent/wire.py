# SPDX-License-Identifier: Apache-2.0
"""What agent and API say to each other, as types: parsing of answers, dumping of reports.

The format is the REST contract's section on the agent; a field that is not known is ignored,
so that a newer service can talk to an older agent.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

#: Longest piece of one stream that rides in a sync, in bytes; longer ones are posted as logs.
INLINE_LOG_BYTES = 16 * 1024
#: Header that carries the node's epoch on every call.
EPOCH_HEADER = "OpenStack-GPU-Node-Epoch"

TaskState = Literal["preparing", "running", "finishing", "gone"]


class WireError(ValueError):
    """The other side said something that is not the contract."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator as found on this node; ``memory_mib`` is its whole memory."""

    address: str
    vendor: str
    product_id: str
    uuid: str | None = None
    memory_mib: int
    index: int
    numa_node: int | None = None
    link_group: str | None = None

    def dump(self) -> dict[str, Any]:
        """The JSON object of the registration."""
        return {"address": self.address, "vendor": self.vendor, "product_id": self.product_id,
                "uuid": self.uuid, "memory_mib": self.memory_mib, "index": self.index,
                "numa_node": self.numa_node, "link_group": self.link_group}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHealth:
    """Whether one device can be used now, and if not, why."""

    address: str
    healthy: bool = True
    reason: str | None = None

    def dump(self) -> dict[str, Any]:
        """The JSON object of a sync."""
        return {"address": self.address, "healthy": self.healthy, "reason": self.reason}


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What this node can do to keep tasks apart; each was proved by a probe, not assumed."""

    own_uid: bool = False
    namespaces: tuple[str, ...] = ()
    device_filter: bool = False
    private_tmp: bool = False
    cgroups: bool = False

    def dump(self) -> dict[str, Any]:
        """The JSON object of the registration."""
        return {"own_uid": self.own_uid, "namespaces": list(self.namespaces),
                "device_filter": self.device_filter, "private_tmp": self.private_tmp,
                "cgroups": self.cgroups}


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The body of ``POST /v1/agent/register``; ``memory_mib`` and ``vcpus`` are the node's."""

    bootstrap: str = field(repr=False)
    secret: str = field(repr=False)
    instance: str
    agent_version: str
    devices: tuple[Device, ...]
    capabilities: Capabilities
    vcpus: int
    memory_mib: int

    def dump(self) -> dict[str, Any]:
        """The JSON body."""
        return {"bootstrap": self.bootstrap, "secret": self.secret, "instance": self.instance,
                "agent_version": self.agent_version,
                "devices": [device.dump() for device in self.devices],
                "capabilities": self.capabilities.dump(),
                "vcpus": self.vcpus, "memory_mib": self.memory_mib}


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """The answer to a registration; ``lease_s`` null: tasks outlive any outage of the API."""

    node_id: str
    epoch: int
    lease_s: int | None
    interval_s: float
    project_id: str | None

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Registered:
        """Read the JSON body.

        :raises WireError: when a field is missing or of another kind.
        """
        try:
            return cls(node_id=str(body["node_id"]), epoch=int(body["epoch"]),
                       lease_s=_optional_int(body.get("lease_s")),
                       interval_s=float(body["interval_s"]),
                       project_id=_optional_str(body.get("project_id")))
        except (KeyError, TypeError, ValueError) as error:
            raise WireError(f"registration answer: {error!r}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What the agent knows of a failure; ``kind`` is one of the contract's failure classes."""

    kind: str
    evidence: str

    def dump(self) -> dict[str, str]:
        """The JSON object of a report."""
        return {"class": self.kind, "evidence": self.evidence}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPiece:
    """Bytes of one stream from ``offset`` of the whole stream; ``end``: nothing follows."""

    offset: int
    data: bytes
    end: bool = False

    def dump(self) -> dict[str, Any]:
        """The JSON object of a report."""
        return {"offset": self.offset, "data_b64": base64.b64encode(self.data).decode("ascii"),
                "end": self.end}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """What the agent says of one task in a sync.

    ``gone``: no process of it remains and its outputs, artifacts and logs were handed over or
    given up with evidence.
    """

    task_id: str
    state: TaskState
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None
    signal: int | None = None
    oom: bool = False
    timed_out: bool = False
    failure: Failure | None = None
    log: Mapping[str, LogPiece] = field(default_factory=dict)

    def dump(self) -> dict[str, Any]:
        """The JSON object of a sync."""
        body: dict[str, Any] = {
            "task_id": self.task_id, "state": self.state,
            "started_at": _iso(self.started_at), "ended_at": _iso(self.ended_at),
            "exit_code": self.exit_code, "signal": self.signal, "oom": self.oom,
            "timed_out": self.timed_out,
            "failure": None if self.failure is None else self.failure.dump()}
        if self.log:
            body["log"] = {stream: piece.dump() for stream, piece in self.log.items()}
        return body


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """The body of ``POST /v1/agent/sync``; ``wait_s`` is how long the answer may wait for news."""

    epoch: int
    revision: int
    instance: str
    tasks: tuple[TaskReport, ...] = ()
    devices: tuple[DeviceHealth, ...] = ()
    telemetry: Mapping[str, Any] = field(default_factory=dict)
    wait_s: float = 0

    def dump(self) -> dict[str, Any]:
        """The JSON body."""
        return {"epoch": self.epoch, "revision": self.revision, "instance": self.instance,
                "tasks": [task.dump() for task in self.tasks],
                "devices": [device.dump() for device in self.devices],
                "telemetry": dict(self.telemetry), "wait_s": self.wait_s}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceShare:
    """A device, or a share of it in milli, given to one task."""

    address: str
    index: int
    uuid: str | None
    vendor: str
    milli: int = 1000
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Where a task keeps what it needs to resume; uploaded each ``interval_s``, if any."""

    path: str
    interval_s: int | None = None
    ranks: str = "first"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """What to run. ``log_max_bytes`` bounds each stream; ``time_limit_s`` null: no limit."""

    command: tuple[str, ...] | None
    script: str | None = field(repr=False)
    env: Mapping[str, str] = field(repr=False)
    workdir: str | None = None
    image: str | None = None
    inputs: tuple[Mapping[str, str], ...] = ()
    outputs: tuple[Mapping[str, str], ...] = ()
    checkpoint: Checkpoint | None = None
    restore_checkpoint: bool = False
    vcpus: float | None = None
    memory_mib: int | None = None
    time_limit_s: int | None = None
    log_max_bytes: int = 64 * 1024 * 1024

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> TaskSpec:
        """Read the JSON object.

        :raises WireError: when a field is of another kind, or neither command nor script is there.
        """
        try:
            command = body.get("command")
            spec = cls(
                command=None if command is None else tuple(str(word) for word in command),
                script=_optional_str(body.get("script")),
                env={str(key): str(value) for key, value in (body.get("env") or {}).items()},
                workdir=_optional_str(body.get("workdir")),
                image=_optional_str(body.get("image")),
                inputs=_maps(body.get("inputs")), outputs=_maps(body.get("outputs")),
                checkpoint=_checkpoint(body.get("checkpoint")),
                restore_checkpoint=bool(body.get("restore_checkpoint", False)),
                vcpus=None if body.get("vcpus") is None else float(body["vcpus"]),
                memory_mib=_optional_int(body.get("memory_mib")),
                time_limit_s=_optional_int(body.get("time_limit_s")),
                log_max_bytes=int(body.get("log_max_bytes") or 64 * 1024 * 1024))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise WireError(f"task spec: {error!r}") from error
        if not spec.command and spec.script is None:
            raise WireError("task spec: neither command nor script")
        return spec


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOrder:
    """One task as the service wants it on this node; ``spec`` may be null when it is to stop."""

    task_id: str
    job_id: str
    attempt: int
    index: int
    rank: int
    count: int
    action: Literal["run", "stop"]
    grace_s: float = 0
    signal: str = "TERM"
    stop_reason: str | None = None
    devices: tuple[DeviceShare, ...] = ()
    spec: TaskSpec | None = None
    #: Why the spec could not be read, if so; such a task is reported gone, never run.
    fault: str | None = None
    #: The object as it came, kept on disk for whoever adopts the task.
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> TaskOrder:
        """Read the JSON object; a broken spec becomes ``fault``, to spoil this task alone.

        :raises WireError: when the order itself cannot be read.
        """
        try:
            spec, fault = _spec(body.get("spec"))
            action = str(body["action"])
            if action == "run" and spec is None and fault is None:
                fault = "task spec: missing"
            return cls(
                task_id=str(body["task_id"]), job_id=str(body["job_id"]),
                attempt=int(body["attempt"]), index=int(body.get("index") or 0),
                rank=int(body.get("rank") or 0), count=int(body.get("count") or 1),
                action="run" if action == "run" else "stop",
                grace_s=float(body.get("grace_s") or 0),
                signal=str(body.get("signal") or "TERM"),
                stop_reason=_optional_str(body.get("stop_reason")),
                devices=tuple(_share(share) for share in body.get("devices") or ()),
                spec=spec, fault=fault, raw=body)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise WireError(f"task order: {error!r}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    """The answer to a sync: all that should run here, and for how long the lease holds."""

    epoch: int
    revision: int
    lease_s: int | None
    interval_s: float
    tasks: tuple[TaskOrder, ...]

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> SyncAnswer:
        """Read the JSON body.

        :raises WireError: when it is not the contract's.
        """
        try:
            return cls(epoch=int(body["epoch"]), revision=int(body["revision"]),
                       lease_s=_optional_int(body.get("lease_s")),
                       interval_s=float(body["interval_s"]),
                       tasks=tuple(TaskOrder.parse(task) for task in body["tasks"]))
        except (KeyError, TypeError, ValueError) as error:
            raise WireError(f"sync answer: {error!r}") from error


def _optional_int(value: Any) -> int | None:
    return None if value is None else int(value)


def _optional_str(value: Any) -> str | None:
    return None if value is None else str(value)


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat()


def _maps(value: Any) -> tuple[Mapping[str, str], ...]:
    return tuple({str(key): str(text) for key, text in item.items() if text is not None}
                 for item in value or ())


def _checkpoint(value: Any) -> Checkpoint | None:
    if value is None:
        return None
    return Checkpoint(path=str(value["path"]), interval_s=_optional_int(value.get("interval_s")),
                      ranks=str(value.get("ranks") or "first"))


def _share(value: Mapping[str, Any]) -> DeviceShare:
    return DeviceShare(address=str(value["address"]), index=int(value["index"]),
                       uuid=_optional_str(value.get("uuid")), vendor=str(value["vendor"]),
                       milli=int(value.get("milli") or 1000),
                       memory_mib=_optional_int(value.get("memory_mib")))


def _spec(value: Any) -> tuple[TaskSpec | None, str | None]:
    if value is None:
        return None, None
    try:
        return TaskSpec.parse(value), None
    except WireError as error:
        return None, str(error)
