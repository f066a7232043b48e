# SPDX-License-Identifier: Apache-2.0
"""Everything about one agent that an operator, or the program that embeds it, may choose."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from gpuservice.agent.wire import Device

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

#: The least that is left for the agent and the system, MiB.
_RESERVE_MIB = 512


def _inherited_environment() -> dict[str, str]:
    """The node's own environment for tasks: a search path and a language, nothing else."""
    return {"PATH": os.environ.get("PATH", DEFAULT_PATH), "LANG": os.environ.get("LANG", "C.UTF-8")}


def _all_memory_but_a_reserve() -> int:
    """The machine's memory in MiB without what the agent and the system need to go on."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (1 << 20)
    return max(total - max(_RESERVE_MIB, total // 20), total // 2)


class SettingsError(ValueError):
    """A setting that does not exist or cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Settings of one agent; times in seconds, sizes in bytes.

    ``file_roots``: directories below which ``file://`` sources and targets may lie.
    ``denied_networks``: further networks that ``http(s)://`` sources may not reach.
    ``data_ca_file``: certificates (PEM) that ``https://`` sources and targets may be signed by,
    besides those the machine trusts.
    ``allow_loopback_http``: lets them reach this machine (tests and all-in-one only).
    ``orphan_after_s``: supervisors end their task when no agent was seen for so long.
    ``own_uid``/``namespaces``/``device_filter``: null means "if this machine can", false means
    never. ``allowed_devices``: patterns of device files that every task may open where devices
    are filtered (those of its own GPUs it always may).
    ``cover``: a directory above the state directory of which tasks see nothing else either.
    ``uid_base``/``uid_count``: range of user ids for tasks; by default above every range that
    systemd, containers or people use (systemd.io, "Users, Groups, UIDs and GIDs").
    ``default_memory_mib``: the memory of a task that asks for none, where control groups bound it,
    by default what the machine has but for a reserve; ``max_processes``: processes and threads of
    a task; null: no bound.
    ``base_env``: what a task's environment starts from.
    ``register_patience_s``: how long a first registration is tried although the token is refused:
    the service may still be writing down what it built. ``rotate_secret_s``: how old the node's
    secret may become, null: it is never changed.
    """

    runner: Literal["process", "nofork"] = "process"
    probe: Literal["auto", "fake", "nvml"] = "auto"
    devices: tuple[Device, ...] = ()
    file_roots: tuple[str, ...] = ()
    denied_networks: tuple[str, ...] = ()
    data_ca_file: str | None = None
    allow_loopback_http: bool = False
    orphan_after_s: float = 300
    own_uid: bool | None = None
    namespaces: bool | None = None
    device_filter: bool | None = None
    allowed_devices: tuple[str, ...] = ("/dev/infiniband/*", "/dev/fuse")
    cover: str = ""
    uid_base: int = 1_900_000_000
    uid_count: int = 65536
    uid_directory: str = "/run/gpuservice-agent/uids"
    default_memory_mib: int | None = field(default_factory=_all_memory_but_a_reserve)
    max_processes: int | None = 16384
    base_env: Mapping[str, str] = field(default_factory=_inherited_environment)
    log_segment_bytes: int = 4 * 1024 * 1024
    log_chunk_bytes: int = 512 * 1024
    log_interval_s: float = 1.0
    input_max_bytes: int = 64 * 1024 * 1024 * 1024
    artifact_max_files: int = 10_000
    checkpoint_max_bytes: int = 64 * 1024 * 1024 * 1024
    fetch_timeout_s: float = 60
    upload_retry_s: float = 300
    connect_timeout_s: float = 5
    read_timeout_s: float = 20
    max_wait_s: float = 20
    register_patience_s: float = 120
    rotate_secret_s: float | None = 86_400
    coalesce_s: float = 0.05

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> AgentSettings:
        """Read settings from a configuration file's object.

        :raises SettingsError: on a name that is no setting, or a device that cannot be read.
        """
        known = {one.name for one in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise SettingsError(f"unknown settings: {', '.join(unknown)}")
        read = dict(values)
        for name in ("file_roots", "denied_networks", "allowed_devices"):
            if name in read:
                read[name] = tuple(read[name])
        try:
            if "devices" in read:
                read["devices"] = tuple(Device(**device) for device in read["devices"])
            return cls(**read)
        except TypeError as error:
            raise SettingsError(str(error)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class UserData:
    """What the node was given at its birth; ``bootstrap`` is the one-time token."""

    api_url: str
    node_id: str
    bootstrap: str = field(repr=False)
    ca_file: str | None = None
    server_id: str | None = None

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> UserData:
        """Read the JSON object of the user data.

        :raises SettingsError: when a field is missing.
        """
        try:
            return cls(
                api_url=str(body["api_url"]).rstrip("/"),
                node_id=str(body["node_id"]),
                bootstrap=str(body["bootstrap"]),
                ca_file=body.get("ca_file"),
                server_id=body.get("server_id"),
            )
        except KeyError as error:
            raise SettingsError(f"user data without {error}") from error
