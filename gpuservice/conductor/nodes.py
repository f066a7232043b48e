# SPDX-License-Identifier: Apache-2.0
"""Nodes: from requested to ready, and away again. Cloud calls are made under a lease on the node.

An intent is written before each create; after a crash the cloud is looked at before anything is
created anew, and of several servers of one node the oldest stays.
"""

from __future__ import annotations

import hashlib
import json
import logging
from datetime import timedelta
from typing import Any

from gpuservice.conductor.deps import Deps
from gpuservice.conductor.hands import Hands
from gpuservice.conductor.node_marks import Marks
from gpuservice.conductor.placing import Placing
from gpuservice.domain.errors import Busy, CloudError
from gpuservice.domain.health import usable
from gpuservice.domain.inventory import Node
from gpuservice.domain.ports import CloudNode, Hint, NodeRequest
from gpuservice.domain.ports_store import TaskEnd, UnitOfWork, Where
from gpuservice.domain.quota import of_nodes
from gpuservice.domain.states import NodeStatus

LOG = logging.getLogger(__name__)

_WORK = (
    NodeStatus.REQUESTED,
    NodeStatus.BUILDING,
    NodeStatus.CONFIGURING,
    NodeStatus.CHECKING,
    NodeStatus.REPAIRING,
    NodeStatus.DELETING,
)
#: States of a server that no guest can be at work in.
_BROKEN = ("error", "off", "gone")
#: A node that failed to build is tried again after so many seconds, times its tries so far.
_REBUILD_S = 5


class Nodes:
    """The nodes' pipeline."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._marks = Marks(deps)
        self._placing = Placing(deps)
        self._hands = Hands(deps.conf.conductor.cloud_threads, "conductor-cloud")

    def step(self, patience_s: float | None = None) -> int:
        """One step for every node that wants one; how many moved. One node's trouble is its own.

        Places are given one after another (they compete for the same devices), cloud calls are
        made side by side.

        :param patience_s: how long to wait for slow calls; they go on meanwhile (None: to their
            end).
        """
        wanted = self._deps.store.read(
            lambda uow: uow.nodes.find(
                Where("status", "in", _WORK), order=(("created_at", "asc"),), limit=500
            )
        )
        moved = 0
        for node in wanted:
            if node.status == NodeStatus.REQUESTED:
                moved += self._safely(node)
        moved += self._hands.work(
            [(node.id, node) for node in wanted if node.status != NodeStatus.REQUESTED],
            self._aside,
            patience_s,
        )
        if moved:
            self._deps.hints.send(Hint("jobs"))
            self._deps.hints.send(Hint("pools"))
        return moved

    def close(self) -> None:
        """Begin nothing more."""
        self._hands.close()

    def _aside(self, node: Node) -> bool:
        """A node's step in a thread of its own; the next pass is woken when it moved."""
        moved = self._safely(node)
        if moved:
            self._deps.hints.send(Hint("pools"))
        return moved

    def _safely(self, node: Node) -> bool:
        try:
            return self._one(node)
        except Busy:
            raise
        except Exception:
            LOG.exception("Node %s could not go on; it is tried again", node.id)
            return False

    def _one(self, node: Node) -> bool:
        conf = self._deps.conf.conductor
        token = self._deps.store.write(
            lambda uow: uow.claim("node", node.id, self._deps.owner, conf.claim_s)
        )
        if token is None:
            return False
        try:
            fresh = self._deps.store.read(lambda uow: uow.nodes.get(node.id))
            return fresh is not None and self._step(fresh, token)
        except CloudError as error:
            self._trouble(node, error)
            return False
        finally:
            self._deps.store.write(lambda uow: uow.unclaim("node", node.id, token))

    def _step(self, node: Node, claim: str) -> bool:
        match node.status:
            case NodeStatus.REQUESTED:
                return self._placing.place(node)
            case NodeStatus.BUILDING:
                return self._build(node, claim)
            case NodeStatus.CONFIGURING:
                return self._watch_build(node)
            case NodeStatus.CHECKING:
                return self._check(node)
            case NodeStatus.REPAIRING:
                return self._repair(node)
            case NodeStatus.DELETING:
                return self._delete(node)
        return False

    # -- building --------------------------------------------------------------------------
    def _build(self, node: Node, claim: str) -> bool:
        """Make sure that there is one server, and wait until it is active."""
        server = self._only_server(node)
        if server is None:
            return self._overdue(node) or self._create(node, claim)
        if server.state == "error":
            self._deps.cloud.delete_node(server.server_id)
            return self._failed(node, server.fault or "the cloud could not build it")
        if server.state != "active":
            return self._overdue(node)
        values: dict[str, Any] = {"server_id": server.server_id, "address": server.address}
        if server.bootstrap_hash not in (None, node.bootstrap_hash):
            # Built for an earlier intent that was believed lost: its token is the one that counts.
            values["bootstrap_hash"] = server.bootstrap_hash
        return self._deps.store.write(lambda uow: self._marks.node(uow, node, "built", values))

    def _only_server(self, node: Node) -> CloudNode | None:
        """The server of a node: the one it is known by, else the oldest; others go."""
        servers = self._deps.cloud.find_nodes([node.id])
        known = [one for one in servers if one.server_id == node.server_id]
        kept = (known or servers)[:1]
        for extra in servers:
            if extra not in kept:
                self._deps.cloud.delete_node(extra.server_id)
        return kept[0] if kept else None

    def _create(self, node: Node, claim: str) -> bool:
        now = self._deps.clock.now()
        settle = timedelta(seconds=self._deps.conf.cloud.settle_s)
        if node.intent_at is not None and node.intent_at > now - settle:
            return False
        token = self._deps.ids.secret()
        digest = hashlib.sha256(token.encode()).hexdigest()
        ttl = timedelta(seconds=self._deps.conf.agent.bootstrap_ttl_s)
        before = (
            Where("intent_at", "null")
            if node.intent_at is None
            else Where("intent_at", "eq", node.intent_at)
        )

        def intend(uow: UnitOfWork) -> NodeRequest | None:
            if not uow.holds("node", node.id, claim):
                return None
            kept = uow.nodes.change(
                node.id,
                {
                    "intent_at": uow.now(),
                    "bootstrap_hash": digest,
                    "bootstrap_expires_at": uow.now() + ttl,
                    "secret_hash": None,
                    "instance": None,
                },
                Where("status", "eq", NodeStatus.BUILDING),
                before,
            )
            return self._request(uow, node, token, digest) if kept else None

        request = self._deps.store.write(intend)
        if request is not None:
            self._deps.cloud.create_node(request)
        return request is not None

    def _request(self, uow: UnitOfWork, node: Node, token: str, digest: str) -> NodeRequest | None:
        pool, flavor = uow.pools.get(node.pool_id), uow.flavors.get(node.flavor_id)
        if pool is None or flavor is None:
            return None
        host = uow.hosts.get(node.host_id) if node.host_id else None
        devices = uow.devices.find(Where("node_id", "eq", node.id), order=(("ordinal", "asc"),))
        user_data = json.dumps(
            {
                "api_url": self._deps.conf.api.public_url,
                "ca_file": None,
                "node_id": node.id,
                "bootstrap": token,
                "server_id": None,
            }
        )
        return NodeRequest(
            node_id=node.id,
            name=node.name,
            project_id=node.project_id,
            flavor=flavor,
            host_name=host.name if host else None,
            device_addresses=tuple(device.address for device in devices),
            image=pool.image,
            networks=pool.networks,
            key_name=pool.key_name,
            user_data=user_data,
            bootstrap_hash=digest,
        )

    def _overdue(self, node: Node) -> bool:
        limit = timedelta(seconds=self._deps.conf.conductor.build_timeout_s)
        if node.status_changed_at + limit > self._deps.clock.now():
            return False
        return self._failed(node, "it was not ready in time")

    def _watch_build(self, node: Node) -> bool:
        """Waiting for the agent's registration (which moves the node on)."""
        server = self._only_server(node)
        if server is None or server.state in _BROKEN:
            return self._failed(node, "the server went away before it registered")
        return self._overdue(node)

    def _failed(self, node: Node, message: str) -> bool:
        """A build that failed: once more while tries are left, else a fault that stays."""
        tries = node.build_attempts + 1
        again = tries < self._deps.conf.conductor.build_attempts

        def work(uow: UnitOfWork) -> bool:
            fault = {"class": "capacity", "message": message}
            values: dict[str, Any] = {"fault": fault, "build_attempts": tries, "server_id": None}
            if not self._marks.node(uow, node, "fault", values, "capacity", message):
                return False
            if again:
                fresh = uow.nodes.get(node.id)
                return fresh is not None and self._marks.node(uow, fresh, "repair")
            return True

        return self._deps.store.write(work)

    def _trouble(self, node: Node, error: CloudError) -> None:
        """The cloud refused: what may work later is left for the next pass."""
        if not error.meta.get("retriable", True) and node.status == NodeStatus.BUILDING:
            self._failed(node, error.detail)

    # -- checking, repairing, deleting -----------------------------------------------------
    def _check(self, node: Node) -> bool:
        """Visible is not usable: its server must be there and every device of it healthy.

        A guest may have registered again while its server was being replaced.
        """
        server = self._only_server(node)
        if server is None or server.state in _BROKEN:
            return self._failed(node, "its server is gone")
        known = {"server_id": server.server_id, "address": server.address}

        def work(uow: UnitOfWork) -> bool:
            devices = uow.devices.find(Where("node_id", "eq", node.id))
            sick = [device.address for device in devices if not usable(node, device)]
            if sick:
                message = f"devices are not healthy: {', '.join(sick)}"
                return self._marks.node(
                    uow,
                    node,
                    "fault",
                    {"fault": {"class": "gpu_failure", "message": message}},
                    "gpu_failure",
                    message,
                )
            return self._marks.node(
                uow,
                node,
                "checked",
                {
                    **known,
                    "idle_since": uow.now(),
                    "fault": None,
                    "status_reason": None,
                    "build_attempts": 0,
                },
            )

        return self._deps.store.write(work)

    def _repair(self, node: Node) -> bool:
        """Build anew after a pause that grows with the tries: on the same claim, or elsewhere
        when its host or devices are no longer fit."""
        pause = timedelta(seconds=_REBUILD_S * max(node.build_attempts, 1))
        if node.build_attempts and node.status_changed_at + pause > self._deps.clock.now():
            return False
        if not self._servers_gone(node):
            return False

        def work(uow: UnitOfWork) -> bool:
            fresh = uow.nodes.get(node.id, lock=True)
            if fresh is None or (fresh.status, fresh.epoch) != (node.status, node.epoch):
                return False  # its guest came back, or it is to go: it keeps its place
            place = self._placing.again(uow, node)
            if place is None:
                return False
            values = {
                **place,
                "server_id": None,
                "address": None,
                "intent_at": None,
                "secret_hash": None,
                "bootstrap_hash": None,
                "instance": None,
                "device_faults": None,
                "last_renewal_at": None,
            }
            if not self._marks.node(uow, node, "rebuild", values):
                return False
            self._lose_tasks(uow, node)
            return True

        return self._deps.store.write(work)

    def _delete(self, node: Node) -> bool:
        """Nothing is left behind: server, devices, quota go before the row says deleted."""
        if not self._servers_gone(node):
            return False

        def work(uow: UnitOfWork) -> bool:
            if not self._marks.node(
                uow, node, "deleted", {"secret_hash": None, "bootstrap_hash": None}
            ):
                return False
            uow.quotas.give_back(node.project_id, of_nodes(node.gpu_type, node.gpu_count, 1))
            self._lose_tasks(uow, node)
            uow.devices.release_node(node.id)
            return True

        return self._deps.store.write(work)

    def _servers_gone(self, node: Node) -> bool:
        """Ask for the end of a node's servers; True once the cloud has none. What ran there is
        counted as ended only then."""
        servers = self._deps.cloud.find_nodes([node.id])
        for server in servers:
            self._deps.cloud.delete_node(server.server_id)
        return not servers or not self._deps.cloud.find_nodes([node.id])

    @staticmethod
    def _lose_tasks(uow: UnitOfWork, node: Node) -> None:
        tasks = uow.tasks.of_node(node.id)
        uow.tasks.gone(
            [
                TaskEnd(task.id, failure_class="node_failure", failure_evidence="its node is gone")
                for task in tasks
            ],
            uow.now(),
        )
