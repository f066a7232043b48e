# SPDX-License-Identifier: Apache-2.0
"""Nodes report for duty: bootstrap token once, their own secret from then on."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from gpuservice.domain.context import Cause
from gpuservice.domain.errors import (
    BootstrapInvalid,
    DevicesMismatch,
    GpuServiceError,
    InstanceConflict,
    NodeFenced,
    SecretConflict,
    Unauthenticated,
)
from gpuservice.domain.happenings import status_change
from gpuservice.domain.inventory import Node
from gpuservice.domain.ports import Hint, UnitOfWork, Where
from gpuservice.domain.states import NODE, NodeStatus
from gpuservice.services.deps import Deps

CAUSE = Cause(actor="node")

#: Statuses from which a node may register (again).
_REGISTERS = frozenset({
    NodeStatus.BUILDING, NodeStatus.CONFIGURING, NodeStatus.CHECKING, NodeStatus.READY,
    NodeStatus.CORDONED, NodeStatus.DRAINING, NodeStatus.REPAIRING,
})


def digest(secret: str) -> str:
    """What is stored of a token or secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


class AgentNodes:
    """Registration and recognition of nodes."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    def register(self, body: Mapping[str, Any]) -> Node:
        """Take a node on; the same pair of token and secret again succeeds.

        :raises BootstrapInvalid, SecretConflict, DevicesMismatch: and what follows from them
            (quarantine, error) is kept.
        """
        def work(uow: UnitOfWork) -> Node | GpuServiceError:
            found = uow.nodes.find(Where("bootstrap_hash", "eq", digest(body["bootstrap"])),
                                   lock=True)
            if not found or found[0].status not in _REGISTERS:
                raise BootstrapInvalid("The bootstrap token is not known.")
            return self._admit(uow, found[0], body)

        outcome = self._deps.store.write(work)
        if isinstance(outcome, GpuServiceError):
            raise outcome
        self._deps.hints.send(Hint("pools", (outcome.pool_id,)))
        return outcome

    def _admit(self, uow: UnitOfWork, node: Node, body: Mapping[str, Any]
               ) -> Node | GpuServiceError:
        secret = digest(body["secret"])
        if node.secret_hash is not None and not hmac.compare_digest(node.secret_hash, secret):
            self._fault(uow, node, "platform", "a second secret was sent for its token")
            return SecretConflict("The node has registered with another secret.")
        expires = node.bootstrap_expires_at
        if node.secret_hash is None and expires is not None and expires < uow.now():
            raise BootstrapInvalid("The bootstrap token is too old.")
        wrong = _wrong_devices(
            body["devices"], [(one.address, one.gpu_type) for one in uow.devices.find(
                Where("node_id", "eq", node.id))])
        if wrong is not None:
            self._fault(uow, node, "capacity", wrong)
            return DevicesMismatch(f"The node's devices are not those of the cloud: {wrong}.")
        check_instance(node, body["instance"], uow.now())
        values: dict[str, Any] = {
            "secret_hash": secret, "instance": body["instance"],
            "capabilities": body.get("capabilities", {}), "last_seen_at": uow.now(),
            "last_renewal_at": uow.now(), "lease_s": self._lease(node)}
        if node.status in (NodeStatus.BUILDING, NodeStatus.CONFIGURING, NodeStatus.REPAIRING):
            values.update(status=NodeStatus.CHECKING, status_changed_at=uow.now())
            uow.events.add(status_change(
                self._deps.ids, uow.now(), CAUSE, "node", "registered", node.id, node.status,
                NodeStatus.CHECKING, project_id=node.project_id))
        uow.nodes.change(node.id, values)
        return uow.nodes.get(node.id) or node

    def _lease(self, node: Node) -> int | None:
        return int(self._deps.conf.agent.lease_s)

    def _fault(self, uow: UnitOfWork, node: Node, failure_class: str, what: str) -> None:
        if not NODE.allows(node.status, "fault"):
            return
        uow.nodes.change(node.id, {
            "status": NodeStatus.ERROR, "status_changed_at": uow.now(),
            "fault": {"class": failure_class, "message": what}})
        uow.events.add(status_change(
            self._deps.ids, uow.now(), CAUSE, "node", "fault", node.id, node.status,
            NodeStatus.ERROR, project_id=node.project_id, reason=failure_class,
            detail={"message": what}))

    def recognise(self, uow: UnitOfWork, secret: str | None, epoch: int | None) -> Node:
        """The node of a bearer secret, in its present epoch.

        :raises Unauthenticated: for an unknown secret. :raises NodeFenced: for an old epoch.
        """
        node = uow.nodes.by_secret(digest(secret)) if secret else None
        if node is None or node.status in (NodeStatus.DELETED, NodeStatus.DELETING):
            raise Unauthenticated("The node's secret is not known.")
        if epoch is not None and epoch != node.epoch:
            raise NodeFenced(f"The node's epoch is {node.epoch}, not {epoch}.",
                             meta={"epoch": node.epoch})
        return node

    @staticmethod
    def recheck(uow: UnitOfWork, node: Node) -> None:
        """Inside a transaction that writes for a node: its epoch is still the same.

        :raises NodeFenced: when the node was given up meanwhile.
        """
        now = uow.nodes.get(node.id, lock=True)
        if now is None or now.epoch != node.epoch:
            raise NodeFenced("The node was given up meanwhile.",
                             meta={"epoch": now.epoch if now else None})


def check_instance(node: Node, instance: str, now: datetime) -> None:
    """One agent process at a time, while its lease lasts.

    An agent that was restarted on its node takes over at once: it holds the node's secret and
    the node-local lock that the first one lost with its life.
    """
    if node.instance in (None, instance) or node.last_renewal_at is None:
        return
    seconds = (node.lease_s or 60) / 5 + 1
    if node.last_renewal_at > now - timedelta(seconds=seconds):
        raise InstanceConflict("Another agent process of this node is at work.",
                               meta={"retry_after_s": round(seconds)})


def _wrong_devices(
    reported: Sequence[Mapping[str, Any]], known: Sequence[tuple[str, str]]
) -> str | None:
    """What is wrong with a node's devices, or None."""
    said = sorted(str(one["address"]) for one in reported)
    ours = sorted(address for address, _ in known)
    if len(said) != len(ours):
        return f"it reports {len(said)} devices, the cloud gave it {len(ours)}"
    for one, other in zip(said, ours, strict=True):
        if one != other:
            return f"it reports {one}, the cloud gave it {other}"
    return None
