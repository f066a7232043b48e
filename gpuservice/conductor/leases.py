# SPDX-License-Identifier: Apache-2.0
"""Lost nodes: given up only when nothing of theirs can run any more.

A node's supervisors kill its tasks when its lease runs out, whatever grace a job asked for, so one
tenant's grace keeps nobody else waiting. The service waits for lease and margin after the last
renewal it has seen, counted from its own return when it was away itself, and raises the node's
epoch: whatever comes from the old one is refused from then on.

The service is away as well when conductors live but no process that nodes talk to: then silence
says nothing about the nodes. It can only make giving up later, never earlier.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from gpuservice.conductor.deps import Deps
from gpuservice.conductor.node_marks import Marks
from gpuservice.domain.errors import CloudError
from gpuservice.domain.inventory import Node
from gpuservice.domain.liveness import HEARING, deaf, heard_for, last_heard
from gpuservice.domain.ports import Hint
from gpuservice.domain.ports_store import TaskEnd, UnitOfWork, Where
from gpuservice.domain.states import NODE, NodeStatus
from gpuservice.domain.work import ServiceRecord

LOG = logging.getLogger(__name__)

_WATCHED = (
    NodeStatus.READY,
    NodeStatus.CORDONED,
    NodeStatus.DRAINING,
    NodeStatus.CHECKING,
    NodeStatus.ERROR,
)


class Leases:
    """Watches the leases of nodes."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._marks = Marks(deps)
        self._since: datetime | None = None
        self._last: datetime | None = None

    def step(self) -> int:
        """Give up every node whose time is over; how many."""
        now, hearing = self._deps.store.read(lambda uow: (uow.now(), _hearing(uow)))
        heard = last_heard(hearing)
        lease = timedelta(seconds=self._deps.conf.agent.lease_s)
        if self._last is None or now - self._last > lease / 2 or deaf(heard, now):
            self._since = now  # the service itself was away: it counts from its return
        self._last = now
        if heard is None:
            return 0
        silent = self._deps.store.read(
            lambda uow: uow.nodes.find(
                Where("status", "in", _WATCHED), Where("last_renewal_at", "lt", now - lease)
            )
        )
        given_up = sum(self._try(node, now) for node in silent if self._could_renew(node, hearing))
        if given_up:
            self._deps.hints.send(Hint("attempts"))
            self._deps.hints.send(Hint("jobs"))
            self._deps.hints.send(Hint("pools"))
        return given_up

    def _could_renew(self, node: Node, hearing: Sequence[ServiceRecord]) -> bool:
        """Whether somebody was there to hear the node for as long as its lease is: time in which
        no process lived, or the only one has just come back, is not the node's silence."""
        lease = timedelta(seconds=node.lease_s or self._deps.conf.agent.lease_s)
        renewed = node.last_renewal_at
        return renewed is not None and heard_for(hearing, renewed) >= lease

    def _try(self, node: Node, now: datetime) -> bool:
        try:
            return self._give_up(node, now)
        except CloudError as error:
            LOG.warning("Whether node %s is off cannot be told: %s", node.id, error.detail)
            return False

    def _give_up(self, node: Node, now: datetime) -> bool:
        if node.status == NodeStatus.ERROR and not self._deps.store.read(
            lambda uow: uow.tasks.of_node(node.id)
        ):
            return False
        cutoff = now - self._patience(node)
        if node.last_renewal_at is None or node.last_renewal_at >= cutoff:
            return False
        if self._since is not None and self._since >= cutoff:
            return False
        # Asked again right before the deed: powering off takes back what a renewal would say.
        fresh = self._deps.store.read(lambda uow: uow.nodes.get(node.id))
        if fresh is None or fresh.epoch != node.epoch:
            return False
        if fresh.last_renewal_at is None or fresh.last_renewal_at >= cutoff:
            return False
        if not self._off(node):
            return False
        return self._deps.store.write(lambda uow: self._fence(uow, node, cutoff))

    def _patience(self, node: Node) -> timedelta:
        """Lease and margin, in which supervisors notice its end and kill."""
        lease = node.lease_s or self._deps.conf.agent.lease_s
        return timedelta(seconds=lease + self._deps.conf.conductor.loss_margin_s)

    def _off(self, node: Node) -> bool:
        """Whether nothing can run there: confirmed by the cloud where it can do that, else by the
        lease that ran out. A node without a lease is never taken for off on silence alone."""
        if "power_off" not in self._deps.cloud.capabilities:
            if node.lease_s is None:
                LOG.warning("Node %s is silent, has no lease and cannot be powered off.", node.id)
            return node.lease_s is not None
        return all(
            self._deps.cloud.power_off(server.server_id)
            for server in self._deps.cloud.find_nodes([node.id])
        )

    def _fence(self, uow: UnitOfWork, node: Node, cutoff: datetime) -> bool:
        if "power_off" in self._deps.cloud.capabilities:
            cutoff = uow.now()  # it is off by our own hand, whatever it said in its last moment
        if not uow.nodes.fence(node.id, node.epoch, cutoff):
            return False
        uow.tasks.gone(
            [
                TaskEnd(
                    task.id,
                    failure_class="node_failure",
                    failure_evidence="nothing was heard of its node any more",
                )
                for task in uow.tasks.of_node(node.id)
            ],
            uow.now(),
        )
        fresh = uow.nodes.get(node.id)
        if fresh is not None and NODE.allows(fresh.status, "fault"):
            message = "nothing was heard of it any more"
            self._marks.node(
                uow,
                fresh,
                "fault",
                {"fault": {"class": "node_failure", "message": message}},
                "node_failure",
                message,
            )
        return True


def _hearing(uow: UnitOfWork) -> list[ServiceRecord]:
    return uow.services.find(Where("binary", "in", HEARING))
