# SPDX-License-Identifier: Apache-2.0
"""Nodes report for duty: bootstrap token once, their own secret from then on."""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from gpuservice.domain.context import Cause
from gpuservice.domain.errors import (
    BootstrapInvalid,
    Busy,
    DevicesMismatch,
    GpuServiceError,
    InstanceConflict,
    Invalid,
    NodeFenced,
    SecretConflict,
    Unauthenticated,
)
from gpuservice.domain.happenings import happening, status_change
from gpuservice.domain.health import plain_address
from gpuservice.domain.inventory import Device, Node
from gpuservice.domain.ports import Hint
from gpuservice.domain.ports_store import UnitOfWork, Where
from gpuservice.domain.states import NODE, NodeStatus
from gpuservice.services.agent_health import AgentHealth
from gpuservice.services.deps import Deps

CAUSE = Cause(actor="node")

#: A node without a lease is not taken for silent before so many seconds: longer than its syncs
#: wait.
SILENCE_S = 60

#: Statuses from which a node may register (again).
_REGISTERS = frozenset(
    {
        NodeStatus.CONFIGURING,
        NodeStatus.CHECKING,
        NodeStatus.READY,
        NodeStatus.CORDONED,
        NodeStatus.DRAINING,
        NodeStatus.REPAIRING,
    }
)


def _may_register(node: Node) -> bool:
    """A node in error only if it was registered before: it may have been given up wrongly, and
    its agent must learn the new epoch."""
    if node.status == NodeStatus.ERROR:
        return node.secret_hash is not None
    return node.status in _REGISTERS


def digest(secret: str) -> str:
    """What is stored of a token or secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


class AgentNodes:
    """Registration and recognition of nodes."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._health = AgentHealth(deps)

    def register(self, body: Mapping[str, Any]) -> Node:
        """Take a node on; the same pair of token and secret again succeeds.

        :raises InstanceConflict: while another agent process of the node is heard of.
        :raises BootstrapInvalid, SecretConflict, DevicesMismatch: and what follows from them
            (quarantine, error) is kept.
        :raises Busy: when it is faster than the record of its own building.
        """

        def work(uow: UnitOfWork) -> Node | GpuServiceError:
            found = uow.nodes.find(
                Where("bootstrap_hash", "eq", digest(body["bootstrap"])), lock=True
            )
            if found and found[0].status == NodeStatus.BUILDING:
                # Its server and address are not on record yet, and other nodes will need them.
                raise Busy("The node is still being built.", meta={"retry_after_s": 1})
            if not found or not _may_register(found[0]):
                raise BootstrapInvalid("The bootstrap token is not known.")
            return self._admit(uow, found[0], body)

        outcome = self._deps.store.write(work)
        if isinstance(outcome, GpuServiceError):
            raise outcome
        self._deps.hints.send(Hint("pools", (outcome.pool_id,)))
        return outcome

    def _admit(
        self, uow: UnitOfWork, node: Node, body: Mapping[str, Any]
    ) -> Node | GpuServiceError:
        secret = digest(body["secret"])
        if node.secret_hash is not None and not hmac.compare_digest(node.secret_hash, secret):
            self._fault(uow, node, "platform", "a second secret was sent for its token")
            return SecretConflict("The node has registered with another secret.")
        expires = node.bootstrap_expires_at
        if node.secret_hash is None and expires is not None and expires < uow.now():
            raise BootstrapInvalid("The bootstrap token is too old.")
        if node.secret_hash is not None:
            check_instance(node, body["instance"], uow.now())
        wrong = wrong_devices(uow.devices.find(Where("node_id", "eq", node.id)), body["devices"])
        if wrong is not None:
            self._fault(uow, node, "capacity", wrong)
            return DevicesMismatch(f"The node's devices are not those of the cloud: {wrong}.")
        values: dict[str, Any] = {
            "secret_hash": secret,
            "instance": body["instance"],
            "capabilities": body.get("capabilities", {}),
            "last_seen_at": uow.now(),
            "last_renewal_at": uow.now(),
            "lease_s": self._lease(),
        }
        if body.get("fault"):
            # What runs there goes on and is reported; nothing more is sent there.
            self._fault(uow, node, "platform", body["fault"])
        elif NODE.allows(node.status, "registered"):
            values.update(status=NodeStatus.CHECKING, status_changed_at=uow.now())
            uow.events.add(
                status_change(
                    self._deps.ids,
                    uow.now(),
                    CAUSE,
                    "node",
                    "registered",
                    node.id,
                    node.status,
                    NodeStatus.CHECKING,
                    project_id=node.project_id,
                )
            )
        uow.nodes.change(node.id, values)
        if "health" in body:
            self._health.write(uow, node, body["health"])
        return uow.nodes.get(node.id) or node

    def change_secret(self, secret: str | None, new: str) -> Node:
        """Know a node by a new secret from now on; the same again, with the new one, succeeds.

        :raises Unauthenticated: for a secret that is not (any more) known.
        :raises SecretConflict: when another node is known by the new one.
        """

        def work(uow: UnitOfWork) -> Node:
            # In whatever epoch: nothing of its tasks is touched.
            node = _known_by(uow, secret)
            if node.secret_hash == digest(new):
                return node
            if uow.nodes.by_secret(digest(new)) is not None:
                raise SecretConflict("The secret is another node's.")
            if not uow.nodes.change(
                node.id, {"secret_hash": digest(new)}, Where("secret_hash", "eq", node.secret_hash)
            ):
                raise Unauthenticated("The node's secret is not known.")
            uow.events.add(
                happening(
                    self._deps.ids,
                    uow.now(),
                    CAUSE,
                    "node.change_secret",
                    "node",
                    node.id,
                    project_id=node.project_id,
                )
            )
            return node

        return self._deps.store.write(work)

    def _lease(self) -> int | None:
        """None where the cloud can power nodes off: tasks outlive any outage there, and a node is
        given up only when it is off."""
        return None if self._deps.power_off else int(self._deps.conf.agent.lease_s)

    def _fault(self, uow: UnitOfWork, node: Node, failure_class: str, what: str) -> None:
        if not NODE.allows(node.status, "fault"):
            return
        uow.nodes.change(
            node.id,
            {
                "status": NodeStatus.ERROR,
                "status_changed_at": uow.now(),
                "fault": {"class": failure_class, "message": what},
            },
        )
        uow.events.add(
            status_change(
                self._deps.ids,
                uow.now(),
                CAUSE,
                "node",
                "fault",
                node.id,
                node.status,
                NodeStatus.ERROR,
                project_id=node.project_id,
                reason=failure_class,
                detail={"message": what},
            )
        )

    def recognise(self, uow: UnitOfWork, secret: str | None, epoch: int | None) -> Node:
        """The node of a bearer secret, in its present epoch.

        :raises Unauthenticated: for an unknown secret. :raises NodeFenced: for an old epoch.
        :raises Invalid: without an epoch: nothing may get around the fence.
        """
        node = _known_by(uow, secret)
        if epoch is None:
            raise Invalid("The header OpenStack-GPU-Node-Epoch is missing.")
        if epoch != node.epoch:
            raise NodeFenced(
                f"The node's epoch is {node.epoch}, not {epoch}.", meta={"epoch": node.epoch}
            )
        return node


def _known_by(uow: UnitOfWork, secret: str | None) -> Node:
    node = uow.nodes.by_secret(digest(secret)) if secret else None
    if node is None or node.status in (NodeStatus.DELETED, NodeStatus.DELETING):
        raise Unauthenticated("The node's secret is not known.")
    return node


def check_instance(node: Node, instance: str, now: datetime) -> None:
    """One agent process at a time, while its lease lasts.

    An agent that was restarted in its place (see :func:`place_of`) takes over at once: it holds
    the node-local lock that the first one lost with its life. From another place, a cloned disk
    or a restored copy, none gets in while the first is heard of.

    :raises InstanceConflict: saying when to try again.
    """
    if node.instance in (None, instance) or node.last_renewal_at is None:
        return
    place = place_of(instance)
    if place is not None and place == place_of(node.instance):
        return
    left = (node.last_renewal_at - now).total_seconds() + (node.lease_s or SILENCE_S)
    if left > 0:
        raise InstanceConflict(
            "Another agent process of this node is at work.",
            meta={"retry_after_s": math.ceil(left)},
        )


def place_of(instance: str) -> str | None:
    """Where an agent process works: ``<place>.<process>`` names boot and state directory."""
    place, dot, _ = instance.partition(".")
    return place if place and dot else None


def wrong_devices(known: Sequence[Device], told: Sequence[Mapping[str, Any]]) -> str | None:
    """What is wrong with the devices a node reports (count, address, type), or None."""
    if len(told) != len(known):
        return f"it reports {len(told)} devices, the cloud gave it {len(known)}"
    by_address = {plain_address(device.address): device for device in known}
    for one in told:
        # Each device is met once: the same address twice is as wrong as a foreign one.
        device = by_address.pop(plain_address(str(one["address"])), None)
        if device is None:
            return f"it reports {one['address']}, which the cloud did not give it"
        for fact in ("vendor", "product_id"):
            said, ours = one.get(fact), getattr(device, fact)
            if said and ours and said != ours:
                return f"the {fact} at {one['address']} is {said}, not {ours}"
    return None
