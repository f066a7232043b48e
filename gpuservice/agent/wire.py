# SPDX-License-Identifier: Apache-2.0
"""What the agent says to the API, as types; what it is told is in ``orders``.

The format is the REST contract's section on the agent; a field that is not known is ignored,
so that a newer service can talk to an older agent.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

#: Longest piece of one stream that rides in a sync, in bytes; longer ones are posted as logs.
INLINE_LOG_BYTES = 16 * 1024
#: Longest evidence of a failure that the service takes; a longer one is cut: what it refuses of
#: one task, it refuses of all.
EVIDENCE_CHARACTERS = 4096
#: Header that carries the node's epoch on every call.
EPOCH_HEADER = "OpenStack-GPU-Node-Epoch"
#: Characters that the service does not take in evidence, for which the same holds.
_UNSHOWN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")

#: A report with everything in it but the evidence of a failure and the content of logs.
_REPORT_BYTES = 512

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
        return {
            "address": self.address,
            "vendor": self.vendor,
            "product_id": self.product_id,
            "uuid": self.uuid,
            "memory_mib": self.memory_mib,
            "index": self.index,
            "numa_node": self.numa_node,
            "link_group": self.link_group,
        }


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
    """What this node can do to keep tasks apart; each was proved by a probe, not assumed.

    ``device_filter``: a task can open the device nodes of its own GPUs only; if not,
    ``device_filter_reason`` says why.
    """

    own_uid: bool = False
    namespaces: tuple[str, ...] = ()
    device_filter: bool = False
    device_filter_reason: str | None = None
    private_tmp: bool = False
    cgroups: bool = False

    def dump(self) -> dict[str, Any]:
        """The JSON object of the registration."""
        return {
            "own_uid": self.own_uid,
            "namespaces": list(self.namespaces),
            "device_filter": self.device_filter,
            "device_filter_reason": self.device_filter_reason,
            "private_tmp": self.private_tmp,
            "cgroups": self.cgroups,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The body of ``POST /v1/agent/register``; ``memory_mib`` and ``vcpus`` are the node's.

    ``fault``: why no task may be started on the node, null if they may.
    ``health`` rides along so that no work comes to a bad device before the first sync.
    """

    bootstrap: str = field(repr=False)
    secret: str = field(repr=False)
    instance: str
    agent_version: str
    devices: tuple[Device, ...]
    fault: str | None = None
    health: tuple[DeviceHealth, ...] = ()
    capabilities: Capabilities
    vcpus: int
    memory_mib: int

    def dump(self) -> dict[str, Any]:
        """The JSON body."""
        return {
            "bootstrap": self.bootstrap,
            "secret": self.secret,
            "instance": self.instance,
            "fault": None if self.fault is None else " ".join(self.fault.split())[:1024],
            "agent_version": self.agent_version,
            "devices": [device.dump() for device in self.devices],
            "health": [one.dump() for one in self.health],
            "capabilities": self.capabilities.dump(),
            "vcpus": self.vcpus,
            "memory_mib": self.memory_mib,
        }


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
            return cls(
                node_id=str(body["node_id"]),
                epoch=int(body["epoch"]),
                lease_s=optional_int(body.get("lease_s")),
                interval_s=float(body["interval_s"]),
                project_id=optional_str(body.get("project_id")),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise WireError(f"registration answer: {error!r}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What the agent knows of a failure; ``kind`` is one of the contract's failure classes."""

    kind: str
    evidence: str

    def dump(self) -> dict[str, str]:
        """The JSON object of a report: evidence may name anything, the service takes text only."""
        shown = _UNSHOWN.sub(lambda found: f"\\x{ord(found[0]):02x}", self.evidence)
        return {"class": self.kind, "evidence": shown[:EVIDENCE_CHARACTERS]}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPiece:
    """Bytes of one stream from ``offset`` of the whole stream; ``end``: nothing follows."""

    offset: int
    data: bytes
    end: bool = False

    def dump(self) -> dict[str, Any]:
        """The JSON object of a report."""
        return {
            "offset": self.offset,
            "data_b64": base64.b64encode(self.data).decode("ascii"),
            "end": self.end,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """What the agent says of one task in a sync.

    ``gone``: no process of it remains and its outputs, artifacts and logs were handed over or
    given up with evidence. ``stopped``: it ended after the service had it told to.
    ``checkpoint_fault``: why the checkpoint of a running task was not kept.
    """

    task_id: str
    state: TaskState
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None
    signal: int | None = None
    oom: bool = False
    timed_out: bool = False
    stopped: bool = False
    failure: Failure | None = None
    checkpoint_fault: Failure | None = None
    log: Mapping[str, LogPiece] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of its JSON at most, without the content of logs."""
        said = [one for one in (self.failure, self.checkpoint_fault) if one is not None]
        return _REPORT_BYTES + sum(len(json.dumps(one.dump())) for one in said)

    def dump(self) -> dict[str, Any]:
        """The JSON object of a sync; what is as usual is left out."""
        facts = {
            "started_at": _iso(self.started_at),
            "ended_at": _iso(self.ended_at),
            "exit_code": self.exit_code,
            "signal": self.signal,
            "oom": self.oom or None,
            "timed_out": self.timed_out or None,
            "stopped": self.stopped or None,
            "failure": None if self.failure is None else self.failure.dump(),
        }
        body: dict[str, Any] = {"task_id": self.task_id, "state": self.state}
        body.update((name, fact) for name, fact in facts.items() if fact is not None)
        if self.checkpoint_fault is not None:
            said = self.checkpoint_fault.dump()
            body["checkpoint_fault"] = {"reason": said["class"], "evidence": said["evidence"]}
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
        return {
            "epoch": self.epoch,
            "revision": self.revision,
            "instance": self.instance,
            "tasks": [task.dump() for task in self.tasks],
            "devices": [device.dump() for device in self.devices],
            "telemetry": dict(self.telemetry),
            "wait_s": self.wait_s,
        }


def optional_int(value: Any) -> int | None:
    """An integer, or None for null."""
    return None if value is None else int(value)


def optional_str(value: Any) -> str | None:
    """A string, or None for null."""
    return None if value is None else str(value)


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat()
