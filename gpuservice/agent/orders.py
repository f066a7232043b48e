# SPDX-License-Identifier: Apache-2.0
"""What the agent is told: its tasks, as types parsed from the answers of the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gpuservice.agent.wire import WireError, optional_int, optional_str


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
    """What to run. ``time_limit_s`` null: no limit.

    ``log_max_bytes`` bounds each stream, ``artifact_max_bytes`` each file that is kept,
    ``checkpoint_max_bytes`` all files of a checkpoint together (null: the node's setting alone
    does).
    """

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
    artifact_max_bytes: int = 1024 * 1024 * 1024
    checkpoint_max_bytes: int | None = None

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> TaskSpec:
        """Read the JSON object.

        :raises WireError: when a field is of another kind, or neither command nor script is there.
        """
        try:
            command = body.get("command")
            spec = cls(
                command=None if command is None else tuple(str(word) for word in command),
                script=optional_str(body.get("script")),
                env={str(key): str(value) for key, value in (body.get("env") or {}).items()},
                workdir=optional_str(body.get("workdir")),
                image=optional_str(body.get("image")),
                inputs=_maps(body.get("inputs")),
                outputs=_maps(body.get("outputs")),
                checkpoint=_checkpoint(body.get("checkpoint")),
                restore_checkpoint=bool(body.get("restore_checkpoint", False)),
                vcpus=None if body.get("vcpus") is None else float(body["vcpus"]),
                memory_mib=optional_int(body.get("memory_mib")),
                time_limit_s=optional_int(body.get("time_limit_s")),
                log_max_bytes=int(body.get("log_max_bytes") or 64 * 1024 * 1024),
                artifact_max_bytes=int(body.get("artifact_max_bytes") or 1024 * 1024 * 1024),
                checkpoint_max_bytes=optional_int(body.get("checkpoint_max_bytes")),
            )
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
                task_id=str(body["task_id"]),
                job_id=str(body["job_id"]),
                attempt=int(body["attempt"]),
                index=int(body.get("index") or 0),
                rank=int(body.get("rank") or 0),
                count=int(body.get("count") or 1),
                action="run" if action == "run" else "stop",
                grace_s=float(body.get("grace_s") or 0),
                signal=str(body.get("signal") or "TERM"),
                stop_reason=optional_str(body.get("stop_reason")),
                devices=tuple(_share(share) for share in body.get("devices") or ()),
                spec=spec,
                fault=fault,
                raw=body,
            )
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
            return cls(
                epoch=int(body["epoch"]),
                revision=int(body["revision"]),
                lease_s=optional_int(body.get("lease_s")),
                interval_s=float(body["interval_s"]),
                tasks=tuple(TaskOrder.parse(task) for task in body["tasks"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise WireError(f"sync answer: {error!r}") from error


def _maps(value: Any) -> tuple[Mapping[str, str], ...]:
    return tuple(
        {str(key): str(text) for key, text in item.items() if text is not None}
        for item in value or ()
    )


def _checkpoint(value: Any) -> Checkpoint | None:
    if value is None:
        return None
    return Checkpoint(
        path=str(value["path"]),
        interval_s=optional_int(value.get("interval_s")),
        ranks=str(value.get("ranks") or "first"),
    )


def _share(value: Mapping[str, Any]) -> DeviceShare:
    return DeviceShare(
        address=str(value["address"]),
        index=int(value["index"]),
        uuid=optional_str(value.get("uuid")),
        vendor=str(value["vendor"]),
        milli=int(value.get("milli") or 1000),
        memory_mib=optional_int(value.get("memory_mib")),
    )


def _spec(value: Any) -> tuple[TaskSpec | None, str | None]:
    if value is None:
        return None, None
    try:
        return TaskSpec.parse(value), None
    except WireError as error:
        return None, str(error)
