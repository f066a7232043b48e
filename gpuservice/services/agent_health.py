# SPDX-License-Identifier: Apache-2.0
"""What agents say of their devices' health: no new work comes to a bad one, and it is told why.

The node keeps what its agent said last, so that a sync with nothing new costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuservice.domain.context import Cause
from gpuservice.domain.happenings import happening
from gpuservice.domain.health import (
    HOLD_S,
    after_node,
    faults_told,
    plain_address,
    speaks_for_host,
    word_kept,
)
from gpuservice.domain.inventory import Device, Node
from gpuservice.domain.ports import Hint
from gpuservice.domain.ports_store import TaskEnd, UnitOfWork, Where
from gpuservice.services.deps import Deps

CAUSE = Cause(actor="node")


class AgentHealth:
    """Takes agents' reports on their devices."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    def take(self, node: Node, reports: Sequence[Mapping[str, Any]]) -> bool:
        """Keep a sync's reports if they say something new; whether they did."""
        if not reports or faults_told(reports) == (node.device_faults or {}):
            return False
        if not self._deps.store.read(lambda uow: self._is_news(uow, node, reports)):
            return False
        changed = self._deps.store.write(lambda uow: self.write(uow, node, reports))
        if changed:
            self._deps.hints.send(Hint("jobs"))
            self._deps.hints.send(Hint("pools", (node.pool_id,)))
        return changed

    def _is_news(self, uow: UnitOfWork, node: Node, reports: Sequence[Mapping[str, Any]]) -> bool:
        devices = uow.devices.find(Where("node_id", "eq", node.id))
        return _kept(uow, node, reports, devices) != (node.device_faults or {})

    def write(self, uow: UnitOfWork, node: Node, reports: Sequence[Mapping[str, Any]]) -> bool:
        """The same within a transaction; devices are locked before their node."""
        devices = uow.devices.find(
            Where("node_id", "eq", node.id), lock=True, order=(("id", "asc"),)
        )
        fresh = uow.nodes.get(node.id, lock=True)
        pool = uow.pools.get(node.pool_id)
        if fresh is None or pool is None or fresh.epoch != node.epoch:
            return False
        told, before = _kept(uow, fresh, reports, devices), fresh.device_faults or {}
        if told == before:
            return False
        uow.nodes.change(node.id, {"device_faults": told, "device_faults_at": uow.now()})
        trusted = speaks_for_host(pool, fresh.capabilities)
        for device in devices:
            address = plain_address(device.address)
            fault = told.get(address)
            if fault != before.get(address):
                self._of_node(uow, fresh, device, fault)
            values = after_node(device, fault) if trusted else None
            if values is not None:
                uow.devices.change(device.id, values)
                self._event(
                    uow, f"device.{values['health']}", "device", device.id, None, fresh, fault
                )
        return True

    def _of_node(self, uow: UnitOfWork, node: Node, device: Device, fault: str | None) -> None:
        action = "node.device_recovered" if fault is None else "node.device_fault"
        about = f"{device.address}: {fault}" if fault else device.address
        self._event(uow, action, "node", node.id, node.project_id, node, about)

    def _event(
        self,
        uow: UnitOfWork,
        action: str,
        noun: str,
        ident: str,
        project_id: str | None,
        node: Node,
        message: str | None,
    ) -> None:
        detail = {"node_id": node.id}
        if message is not None:
            detail["message"] = message
        bad = action in ("device.unhealthy", "node.device_fault")
        uow.events.add(
            happening(
                self._deps.ids,
                uow.now(),
                CAUSE,
                action,
                noun,
                ident,
                project_id=project_id,
                reason="gpu_failure" if bad else None,
                detail=detail,
            )
        )


def _kept(
    uow: UnitOfWork,
    node: Node,
    reports: Sequence[Mapping[str, Any]],
    devices: Iterable[Device],
) -> dict[str, str]:
    since = node.device_faults_at
    held = since is not None and (uow.now() - since).total_seconds() < HOLD_S
    return word_kept(node.device_faults or {}, faults_told(reports), devices, held)


def blame_devices(uow: UnitOfWork, node: Node, ends: Iterable[TaskEnd]) -> list[TaskEnd]:
    """Ends with the class ``gpu_failure`` where a task failed, without another reason, on a
    device that its node calls bad."""
    ends = list(ends)
    unexplained = {
        end.task_id
        for end in ends
        if end.failure_class is None
        and not (end.oom or end.timed_out)
        and (end.exit_code != 0 or end.signal is not None)
    }
    if not (unexplained and node.device_faults):
        return ends
    held = uow.allocations.find(
        Where("task_id", "in", sorted(unexplained)), Where("released_at", "null")
    )
    devices = {one.id: one for one in uow.devices.get_many({one.device_id for one in held})}
    blamed: dict[str, str] = {}
    for share in held:
        address = plain_address(devices[share.device_id].address)
        if address in node.device_faults:
            blamed[share.task_id] = f"its GPU at {address}: {node.device_faults[address]}"
    return [
        replace(end, failure_class="gpu_failure", failure_evidence=blamed[end.task_id])
        if end.task_id in blamed
        else end
        for end in ends
    ]
