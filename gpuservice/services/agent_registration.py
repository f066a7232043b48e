# SPDX-License-Identifier: Apache-2.0
"""An agent's first word: token against node, devices against what the cloud driver says.

A refusal that changes the node (a second secret, other devices) is committed first and raised
then, so that it is on record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuservice.domain.context import Cause
from gpuservice.domain.errors import (
    BootstrapInvalid,
    Busy,
    Conflict,
    DevicesMismatch,
    GpuServiceError,
    SecretConflict,
)
from gpuservice.domain.happenings import happening, status_change
from gpuservice.domain.inventory import Device, Node
from gpuservice.domain.ports import Hint, UnitOfWork, Where
from gpuservice.domain.states import NODE, NodeStatus
from gpuservice.services.agent_identity import check_instance, hashed, lease_seconds
from gpuservice.services.deps import Deps

_GONE = (NodeStatus.DELETING, NodeStatus.DELETED)
_NOT_YET = (NodeStatus.REQUESTED, NodeStatus.BUILDING)


@dataclass(frozen=True, slots=True)
class Registered:
    """What a registered agent is told; ``lease_s`` null: its tasks outlive any outage."""

    node_id: str
    epoch: int
    lease_s: int | None
    interval_s: float
    project_id: str


class AgentRegistration:
    """Registers agents."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    def register(self, body: Mapping[str, Any]) -> Registered:
        """Give an agent its node; the same token and secret again succeed.

        :raises BootstrapInvalid: for a token that is unknown, too old, or of a node that goes.
        :raises SecretConflict: for a second secret; the node is in error then.
        :raises DevicesMismatch: when the devices are others; the node is in error then.
        :raises InstanceConflict: while another process of the agent is at work.
        :raises Busy: while the node is still being built.
        """
        node, refusal = self._deps.store.write(lambda uow: self._decide(uow, body))
        if refusal is not None:
            raise refusal
        self._deps.hints.send(Hint("pools", (node.pool_id,)))
        return Registered(node.id, node.epoch, node.lease_s, self._deps.conf.agent.interval_s,
                          node.project_id)

    def _decide(
        self, uow: UnitOfWork, body: Mapping[str, Any]
    ) -> tuple[Node, GpuServiceError | None]:
        node = _by_token(uow, str(body["bootstrap"]))
        if node.secret_hash is None:
            return self._first(uow, node, body)
        if node.secret_hash != hashed(str(body["secret"])):
            refusal: GpuServiceError = SecretConflict(
                "The token was used with another secret; the node is quarantined.")
            self._fault(uow, node, "secret_conflict", refusal.detail)
            return node, refusal
        now = uow.now()
        # A living process is heard of within 0.45 of a lease (renewal each fifth, longest wait a
        # quarter); waiting for the whole lease would let the supervisors end the tasks.
        check_instance(node, body["instance"], lease_seconds(node, self._deps.conf) / 2, now)
        uow.nodes.renew(node.id, node.epoch, body["instance"])
        return node, None

    def _first(
        self, uow: UnitOfWork, node: Node, body: Mapping[str, Any]
    ) -> tuple[Node, GpuServiceError | None]:
        now = uow.now()
        if node.bootstrap_expires_at is None or node.bootstrap_expires_at <= now:
            raise BootstrapInvalid("The bootstrap token is too old.")
        if node.status in _NOT_YET:
            raise Busy("The node is still being built.", meta={"retry_after_s": 1})
        if not NODE.allows(node.status, "registered"):
            raise Conflict(f"A node that is {node.status} cannot register.")
        different = difference(uow.devices.find(Where("node_id", "eq", node.id)), body["devices"])
        if different is not None:
            self._fault(uow, node, "devices_mismatch", different)
            return node, DevicesMismatch(different)
        status = NODE.after(node.status, "registered")
        uow.nodes.change(node.id, {
            "status": status, "status_changed_at": now, "secret_hash": hashed(body["secret"]),
            "instance": body["instance"], "last_renewal_at": now, "last_seen_at": now,
            "capabilities": {**body.get("capabilities", {}), "vcpus": body.get("vcpus"),
                             "memory_mib": body.get("memory_mib"),
                             "agent_version": body.get("agent_version")},
        })
        uow.events.add(status_change(
            self._deps.ids, now, _cause(node), "node", "registered", node.id, node.status, status,
            project_id=node.project_id))
        return node, None

    def _fault(self, uow: UnitOfWork, node: Node, code: str, summary: str) -> None:
        """Put the node in error, if it is not there yet, and say why."""
        now = uow.now()
        fault = {"class": code, "summary": summary}
        if NODE.allows(node.status, "fault"):
            status = NODE.after(node.status, "fault")
            uow.nodes.change(node.id, {
                "status": status, "status_changed_at": now, "status_reason": code,
                "fault": fault})
            uow.events.add(status_change(
                self._deps.ids, now, _cause(node), "node", "fault", node.id, node.status, status,
                project_id=node.project_id, reason=code, detail=fault))
            return
        uow.events.add(happening(
            self._deps.ids, now, _cause(node), "node.registration_refused", "node", node.id,
            project_id=node.project_id, outcome="failure", reason=code, detail=fault))


def _by_token(uow: UnitOfWork, token: str) -> Node:
    for known in uow.nodes.find(Where("bootstrap_hash", "eq", hashed(token))):
        node = uow.nodes.get(known.id, lock=True)
        if node is not None and node.status not in _GONE:
            return node
    raise BootstrapInvalid("The bootstrap token is not that of a node.")


def _cause(node: Node) -> Cause:
    return Cause(actor=f"node:{node.id}", project_id=node.project_id)


def difference(known: Sequence[Device], told: Sequence[Mapping[str, Any]]) -> str | None:
    """What is different between the driver's devices and those an agent found; None if nothing."""
    if len(known) != len(told):
        return f"The node has {len(known)} devices; its agent found {len(told)}."
    by_address = {plain_address(one.address): one for one in known}
    for one in told:
        device = by_address.get(plain_address(str(one["address"])))
        if device is None:
            return f"The node has no device at {one['address']}."
        product = one.get("product_id")
        if one["vendor"] != device.vendor or (
            product and device.product_id and product != device.product_id
        ):
            return (f"The device at {one['address']} is {one['vendor']} {product}, not "
                    f"{device.vendor} {device.product_id}.")
    return None


def plain_address(address: str) -> str:
    """A PCI address with a domain of four digits (some tools print eight)."""
    domain, colon, rest = address.lower().partition(":")
    if colon and rest.count(":") == 1:
        return f"{domain.lstrip('0').rjust(4, '0')}:{rest}"
    return address.lower()
