# SPDX-License-Identifier: Apache-2.0
"""The place of one task in the state directory, made before its supervisor is there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpuservice.agent import device_nodes, process_tree, task_files
from gpuservice.agent.data import beneath
from gpuservice.agent.lease import endless_lease
from gpuservice.agent.orders import TaskOrder
from gpuservice.agent.sandbox import Sandbox
from gpuservice.agent.settings import AgentSettings
from gpuservice.agent.task_files import Launch
from gpuservice.agent.uids import UidPool


class TaskPlaces:
    """Makes places: folders, user id, script and ``order.json``."""

    def __init__(
        self,
        settings: AgentSettings,
        lease_file: str,
        uids: UidPool | None,
        nodes: device_nodes.DeviceNodes,
    ) -> None:
        self._settings, self._lease_file = settings, lease_file
        self._uids, self._nodes = uids, nodes

    def make(
        self, directory: str, order: TaskOrder, env: Mapping[str, str], sandbox: Sandbox
    ) -> Launch:
        """The place of a task.

        :raises OSError, ValueError, UidsExhausted, Unfilterable: when it cannot be made.
        """
        devices = None
        if sandbox.filters_devices:
            devices = self._nodes.allowed([share.address for share in order.devices])
        return self._make(directory, order, env, sandbox, devices, order.raw)

    def make_probe(self, directory: str, sandbox: Sandbox, script: str) -> Launch:
        """The place of a probe of a sandbox; raises as ``make``."""
        order = TaskOrder.parse(
            {
                "task_id": os.path.basename(directory),
                "job_id": "",
                "attempt": 0,
                "action": "run",
                "spec": {
                    "script": script,
                    "memory_mib": sandbox.probe_memory_mib,
                    "time_limit_s": 10,
                    "log_max_bytes": 4096,
                },
            }
        )
        devices = device_nodes.FOR_PROBE if sandbox.filters_devices else None
        env = {"PATH": self._settings.base_env["PATH"]}
        return self._make(directory, order, env, sandbox, devices, None)

    def _make(
        self,
        directory: str,
        order: TaskOrder,
        env: Mapping[str, str],
        sandbox: Sandbox,
        devices: tuple[device_nodes.DeviceNode, ...] | None,
        raw: Mapping[str, Any] | None,
    ) -> Launch:
        for path in (directory, f"{directory}/box"):
            os.makedirs(path, exist_ok=True)
            os.chmod(path, 0o711)  # a task may pass but not read, whatever our umask is
        launch = self._launch(directory, order, env, sandbox, devices)
        if raw is None:
            # A probe is under no lease: the last one may have run out before this agent came.
            launch = replace(launch, lease_file=endless_lease(directory), orphan_after_s=60)
        _make_box(launch, None if order.spec is None else order.spec.script)
        self._write_order(launch, raw or {})
        return launch

    def _launch(
        self,
        directory: str,
        order: TaskOrder,
        env: Mapping[str, str],
        sandbox: Sandbox,
        devices: tuple[device_nodes.DeviceNode, ...] | None,
    ) -> Launch:
        spec, settings = order.spec, self._settings
        assert spec is not None  # orders without one are never launched
        name = os.path.basename(directory)
        kept = {}
        if spec.checkpoint is not None:
            parts = beneath.parts(spec.checkpoint.path)
            kept["GPUSERVICE_CHECKPOINT_DIR"] = os.path.join(directory, "box/work", *parts)
        return Launch(
            task_id=name,
            directory=directory,
            argv=list(spec.command) if spec.command else None,
            env={
                "HOME": f"{directory}/box/work",
                **settings.base_env,
                **env,
                **kept,
                "GPUSERVICE_TASK_ID": name,
                process_tree.MARKER: directory,
            },
            workdir=spec.workdir or "",
            uid=self._uids.claim(directory) if sandbox.own_uid and self._uids else None,
            namespaces=list(sandbox.namespaces),
            cover=sandbox.cover,
            groups=dict(sandbox.groups),
            devices=None if devices is None else [(k, major, minor) for k, major, minor in devices],
            memory_mib=spec.memory_mib or settings.default_memory_mib,
            vcpus=spec.vcpus,
            time_limit_s=spec.time_limit_s,
            grace_s=order.grace_s,
            signal=order.signal,
            log_max_bytes=spec.log_max_bytes,
            log_segment_bytes=settings.log_segment_bytes,
            lease_file=self._lease_file,
            orphan_after_s=settings.orphan_after_s,
            max_processes=settings.max_processes,
        )

    def _write_order(self, launch: Launch, task: Mapping[str, Any]) -> None:
        settings = self._settings
        task_files.write_json(
            f"{launch.directory}/{task_files.ORDER}",
            {
                "launch": task_files.plain(launch),
                "task": task,
                "data": {
                    "file_roots": settings.file_roots,
                    "max_bytes": settings.input_max_bytes,
                    "denied_networks": settings.denied_networks,
                    "allow_loopback_http": settings.allow_loopback_http,
                    "timeout_s": settings.fetch_timeout_s,
                    "ca_file": settings.data_ca_file,
                },
            },
        )


def _make_box(launch: Launch, script: str | None) -> None:
    """What the task will see: its working directory and its script."""
    os.makedirs(launch.work, mode=0o700, exist_ok=True)
    if script is not None:
        path = f"{launch.box}/script"
        with open(
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o700),
            "w",
            encoding="utf-8",
            newline="",
        ) as file:
            file.write(script)
        os.chmod(path, 0o700)
        if launch.uid is not None:
            os.chown(path, launch.uid, launch.uid)
    kept = launch.env.get("GPUSERVICE_CHECKPOINT_DIR", launch.work)
    os.makedirs(kept, exist_ok=True)
    while launch.uid is not None:
        os.chown(kept, launch.uid, launch.uid)
        if kept == launch.work:
            break
        kept = os.path.dirname(kept)
