# SPDX-License-Identifier: Apache-2.0
"""What must be there before a task's program starts: environment, inputs, an older checkpoint."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from gpuservice.agent.client import AgentClient
from gpuservice.agent.data import beneath
from gpuservice.agent.errors import (
    ApiAway,
    Fenced,
    InstanceConflict,
    NotInTouch,
    Refused,
    Revoked,
)
from gpuservice.agent.orders import TaskOrder
from gpuservice.agent.runner import Runner
from gpuservice.agent.wire import Device

#: The variable that says which devices a program sees, by vendor.
VISIBLE_DEVICES = {
    "nvidia": "CUDA_VISIBLE_DEVICES",
    "amd": "ROCR_VISIBLE_DEVICES",
    "ascend": "ASCEND_RT_VISIBLE_DEVICES",
    "huawei": "ASCEND_RT_VISIBLE_DEVICES",
}

_T = TypeVar("_T")


class PreparationFailed(Exception):
    """A task cannot start; carries a failure class of the contract."""

    def __init__(self, kind: str, evidence: str) -> None:
        super().__init__(evidence)
        self.kind = kind


class NoLongerWanted(Exception):
    """The work in hand lost its purpose."""


def patiently(call: Callable[[], _T], within_s: float, wanted: Callable[[], bool]) -> _T:
    """Repeat a call that the service does not answer, up to a time.

    Time in which the agent was not in touch with the service at all does not count: nothing is
    given up because of an outage. What a node is refused as a whole (fenced, revoked) is for the
    agent to hear and to act upon, which ends what is ``wanted``.

    :raises ApiAway, Fenced, Revoked, InstanceConflict: when it stayed so.
    :raises NoLongerWanted: when ``wanted`` says no.
    """
    until, pause = time.monotonic() + within_s, 0.2
    while True:
        if not wanted():
            raise NoLongerWanted
        try:
            return call()
        except NotInTouch:  # raised after a while only
            until, pause = time.monotonic() + within_s, 0.2
            continue
        except (ApiAway, Fenced, Revoked, InstanceConflict):
            if time.monotonic() + pause > until:
                raise
        time.sleep(pause * random.uniform(0.5, 1.5))
        pause = min(pause * 2, 10)


def visible_devices(order: TaskOrder, node: Sequence[Device]) -> dict[str, str]:
    """The visible-devices variable; empty without a GPU. A MIG device is named by its uuid."""
    vendors = {share.vendor for share in order.devices} or {device.vendor for device in node}
    names = {VISIBLE_DEVICES[one] for one in vendors if one in VISIBLE_DEVICES}
    env = dict.fromkeys(names or set(VISIBLE_DEVICES.values()), "")
    for share in sorted(order.devices, key=lambda one: one.index):
        name = VISIBLE_DEVICES.get(share.vendor)
        if name is not None:
            mig = share.uuid is not None and share.uuid.startswith("MIG-")
            mark = str(share.uuid) if mig else str(share.index)
            env[name] = f"{env[name]},{mark}".lstrip(",")
    return env


def needs_time(order: TaskOrder) -> bool:
    """Whether preparing may wait for somebody, so must not hold up other tasks."""
    spec = order.spec
    return spec is not None and bool(spec.inputs or spec.restore_checkpoint)


class Preparation:
    """Makes one task ready to launch."""

    def __init__(
        self,
        order: TaskOrder,
        runner: Runner,
        devices: Sequence[Device],
        wanted: Callable[[], bool],
        patience_s: float,
    ) -> None:
        self._order, self._runner, self._devices = order, runner, devices
        self._wanted, self._patience_s = wanted, patience_s

    def make(self, client: AgentClient) -> None:
        """Everything up to the launch.

        :raises PreparationFailed: it cannot be. :raises LaunchError: the node cannot.
        :raises NoLongerWanted: stopped meanwhile. Client errors other than ``ApiAway`` pass.
        """
        spec = self._order.spec
        assert spec is not None  # orders without one never come here
        checkpoint = self._older_checkpoint(client) if spec.restore_checkpoint else None
        env = {**spec.env, **visible_devices(self._order, self._devices)}
        env["GPUSERVICE_RESUMED"] = "0" if checkpoint is None else "1"
        work = self._runner.prepare(self._order, env)
        if spec.inputs:
            self._fetch()
        if checkpoint is not None:
            self._restore(client, work, checkpoint)

    def _older_checkpoint(self, client: AgentClient) -> Mapping[str, Any] | None:
        task_id = self._order.task_id
        try:
            return patiently(
                lambda: client.newest_checkpoint(task_id), self._patience_s, self._wanted
            )
        except (ApiAway, Refused) as error:
            raise PreparationFailed("platform", f"checkpoint: {error}") from error

    def _fetch(self) -> None:
        with self._runner.helper(self._order.task_id, "fetch") as messages:
            for message in messages:
                if not self._wanted():
                    raise NoLongerWanted
                failure = message.content.get("failure")
                if failure is not None:
                    raise PreparationFailed(failure["class"], failure["evidence"])

    def _restore(self, client: AgentClient, work: str, checkpoint: Mapping[str, Any]) -> None:
        """Write an earlier attempt's checkpoint into the fresh working directory."""
        root = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            owner = os.fstat(root)
            for entry in checkpoint["files"]:
                names = beneath.parts(str(entry["path"]))
                patiently(
                    lambda: self._download(client, root, names),  # noqa: B023
                    self._patience_s,
                    self._wanted,
                )
                for depth in range(len(names)):
                    parent = beneath.open_directory(root, names[:depth])
                    os.chown(
                        names[depth],
                        owner.st_uid,
                        owner.st_gid,
                        dir_fd=parent,
                        follow_symlinks=False,
                    )
                    os.close(parent)
        except (ApiAway, Refused, OSError, beneath.UnsafePath) as error:
            raise PreparationFailed("platform", f"checkpoint: {error}") from error
        finally:
            os.close(root)

    def _download(self, client: AgentClient, root: int, names: list[str]) -> None:
        with open(beneath.create(root, names), "wb") as file:
            for piece in client.checkpoint_file(self._order.task_id, "/".join(names)):
                file.write(piece)
