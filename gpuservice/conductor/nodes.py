# SPDX-License-Identifier: Apache-2.0
"""Nodes: from requested to ready, and away again. Cloud calls are made under a lease on the node.

An intent is written before each create; after a crash the cloud is looked at before anything is
created anew, and of several servers of one node the oldest stays.
"""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from typing import Any

from gpuservice.conductor.deps import Deps
from gpuservice.conductor.node_marks import Marks
from gpuservice.conductor.placing import Placing
from gpuservice.domain.errors import CloudError
from gpuservice.domain.inventory import Node
from gpuservice.domain.pools import counted
from gpuservice.domain.ports import CloudNode, Hint, NodeRequest, TaskEnd, UnitOfWork, Where
from gpuservice.domain.states import NodeStatus

_WORK = (NodeStatus.REQUESTED, NodeStatus.BUILDING, NodeStatus.CONFIGURING, NodeStatus.CHECKING,
         NodeStatus.REPAIRING, NodeStatus.DELETING)
#: A node that failed to build is tried again after so many seconds, times its tries so far.
_REBUILD_S = 5


class Nodes:
    """The nodes' pipeline."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._marks = Marks(deps)
        self._placing = Placing(deps)

    def step(self) -> int:
        """One step for every node that wants one; how many moved."""
        wanted = self._deps.store.read(lambda uow: uow.nodes.find(
            Where("status", "in", _WORK), order=(("created_at", "asc"),), limit=500))
        moved = sum(self._one(node) for node in wanted)
        if moved:
            self._deps.hints.send(Hint("jobs"))
            self._deps.hints.send(Hint("pools"))
        return moved

    def _one(self, node: Node) -> bool:
        conf = self._deps.conf.conductor
        token = self._deps.store.write(
            lambda uow: uow.claim("node", node.id, self._deps.owner, conf.claim_s))
        if token is None:
            return False
        try:
            fresh = self._deps.store.read(lambda uow: uow.nodes.get(node.id))
            return fresh is not None and self._step(fresh)
        except CloudError as error:
            self._trouble(node, error)
            return False
        finally:
            self._deps.store.write(lambda uow: uow.unclaim("node", node.id, token))

    def _step(self, node: Node) -> bool:
        match node.status:
            case NodeStatus.REQUESTED:
                return self._placing.place(node)
            case NodeStatus.BUILDING:
                return self._build(node)
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
    def _build(self, node: Node) -> bool:
        """Make sure that there is one server, and wait until it is active."""
        servers = self._deps.cloud.find_nodes([node.id])
        for extra in servers[1:]:
            self._deps.cloud.delete_node(extra.server_id)
        if not servers:
            return self._create(node)
        server = servers[0]
        if server.state == "error":
            self._deps.cloud.delete_node(server.server_id)
            return self._failed(node, server.fault or "the cloud could not build it")
        if server.state != "active":
            return self._overdue(node)
        values = {"server_id": server.server_id, "address": server.address}
        return self._deps.store.write(
            lambda uow: self._marks.node(uow, node, "built", values))

    def _create(self, node: Node) -> bool:
        now = self._deps.clock.now()
        settle = timedelta(seconds=self._deps.conf.cloud.settle_s)
        if node.intent_at is not None and node.intent_at > now - settle:
            return False
        token = self._deps.ids.secret()
        ttl = timedelta(seconds=self._deps.conf.agent.bootstrap_ttl_s)

        def intend(uow: UnitOfWork) -> NodeRequest | None:
            kept = uow.nodes.change(node.id, {
                "intent_at": uow.now(),
                "bootstrap_hash": hashlib.sha256(token.encode()).hexdigest(),
                "bootstrap_expires_at": uow.now() + ttl, "secret_hash": None,
                "instance": None}, Where("status", "eq", NodeStatus.BUILDING))
            return self._request(uow, node, token) if kept else None

        request = self._deps.store.write(intend)
        if request is not None:
            self._deps.cloud.create_node(request)
        return request is not None

    def _request(self, uow: UnitOfWork, node: Node, token: str) -> NodeRequest | None:
        pool, flavor = uow.pools.get(node.pool_id), uow.flavors.get(node.flavor_id)
        if pool is None or flavor is None:
            return None
        host = uow.hosts.get(node.host_id) if node.host_id else None
        devices = uow.devices.find(Where("node_id", "eq", node.id), order=(("ordinal", "asc"),))
        user_data = json.dumps({
            "api_url": self._deps.conf.api.public_url, "ca_file": None, "node_id": node.id,
            "bootstrap": token, "server_id": None})
        return NodeRequest(
            node_id=node.id, name=node.name, project_id=node.project_id, flavor=flavor,
            host_name=host.name if host else None,
            device_addresses=tuple(device.address for device in devices), image=pool.image,
            networks=pool.networks, key_name=pool.key_name, user_data=user_data)

    def _overdue(self, node: Node) -> bool:
        limit = timedelta(seconds=self._deps.conf.conductor.build_timeout_s)
        if node.status_changed_at + limit > self._deps.clock.now():
            return False
        return self._failed(node, "it was not ready in time")

    def _watch_build(self, node: Node) -> bool:
        """Waiting for the agent's registration (which moves the node on)."""
        server = self._server(node)
        if server is None or server.state in ("error", "off", "gone"):
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
        """Visible is not usable: every device of the node must be healthy."""
        def work(uow: UnitOfWork) -> bool:
            devices = uow.devices.find(Where("node_id", "eq", node.id))
            sick = [device.address for device in devices if device.health != "healthy"]
            if sick:
                message = f"devices are not healthy: {', '.join(sick)}"
                return self._marks.node(uow, node, "fault", {
                    "fault": {"class": "gpu_failure", "message": message}}, "gpu_failure", message)
            return self._marks.node(uow, node, "checked", {"idle_since": uow.now(), "fault": None})

        return self._deps.store.write(work)

    def _repair(self, node: Node) -> bool:
        """Build anew on the same claim, after a pause that grows with the tries."""
        pause = timedelta(seconds=_REBUILD_S * max(node.build_attempts, 1))
        if node.build_attempts and node.status_changed_at + pause > self._deps.clock.now():
            return False
        for server in self._deps.cloud.find_nodes([node.id]):
            self._deps.cloud.delete_node(server.server_id)

        def work(uow: UnitOfWork) -> bool:
            self._lose_tasks(uow, node)
            values = {"server_id": None, "intent_at": None, "secret_hash": None,
                      "bootstrap_hash": None, "instance": None, "last_renewal_at": None}
            return self._marks.node(uow, node, "rebuild", values)

        return self._deps.store.write(work)

    def _delete(self, node: Node) -> bool:
        """Nothing is left behind: server, devices, quota go before the row says deleted."""
        for server in self._deps.cloud.find_nodes([node.id]):
            self._deps.cloud.delete_node(server.server_id)

        def work(uow: UnitOfWork) -> bool:
            flavor = uow.flavors.get(node.flavor_id)
            if not self._marks.node(uow, node, "deleted", {
                    "secret_hash": None, "bootstrap_hash": None}):
                return False
            if flavor is not None:
                uow.quotas.give_back(node.project_id, counted(flavor, 1))
            self._lose_tasks(uow, node)
            uow.devices.release_node(node.id)
            return True

        return self._deps.store.write(work)

    @staticmethod
    def _lose_tasks(uow: UnitOfWork, node: Node) -> None:
        tasks = uow.tasks.of_node(node.id)
        uow.tasks.gone([
            TaskEnd(task.id, failure_class="node_failure", failure_evidence="its node is gone")
            for task in tasks], uow.now())

    def _server(self, node: Node) -> CloudNode | None:
        servers = self._deps.cloud.find_nodes([node.id])
        return servers[0] if servers else None
