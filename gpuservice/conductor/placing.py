# SPDX-License-Identifier: Apache-2.0
"""Where a new node goes, on clouds that let us choose: host and devices, claimed in rows."""

from __future__ import annotations

from typing import Any

from gpuservice.conductor.deps import Deps
from gpuservice.conductor.node_marks import Marks
from gpuservice.domain.errors import CommitConflict
from gpuservice.domain.health import usable
from gpuservice.domain.inventory import Device, Node
from gpuservice.domain.ports_store import UnitOfWork, Where
from gpuservice.domain.states import NODE_COUNTED, NodeStatus


class Placing:
    """Claims host and devices for requested nodes."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._marks = Marks(deps)

    def place(self, node: Node) -> bool:
        """Claim a place and go on to building; without one the node stays requested."""
        return self._deps.store.write(lambda uow: self._claim(uow, node))

    def _claim(self, uow: UnitOfWork, node: Node) -> bool:
        if "places" not in self._deps.cloud.capabilities:
            return self._marks.node(uow, node, "build")
        chosen = self._choose(uow, node)
        if chosen is None:
            if node.status_reason is None:
                uow.nodes.change(
                    node.id,
                    {"status_reason": "no host has room for it"},
                    Where("status", "eq", NodeStatus.REQUESTED),
                )
            return False
        host_id, devices = chosen
        if not self._has_room(uow, host_id, node):
            return False
        if not uow.devices.claim_for_node(node.id, [device.id for device in devices]):
            # Another node was faster: nothing may stay claimed.
            uow.devices.release_node(node.id)
            return False
        return self._marks.node(uow, node, "build", {"host_id": host_id, "status_reason": None})

    def again(self, uow: UnitOfWork, node: Node) -> dict[str, Any] | None:
        """Where a broken node is built anew, as values of its row: where it was if that is fit,
        else elsewhere; None while there is no such place."""
        if "places" not in self._deps.cloud.capabilities:
            return {}
        fit = False
        host = uow.hosts.get(node.host_id) if node.host_id else None
        own = uow.devices.find(Where("node_id", "eq", node.id))
        if (
            host is not None
            and host.state == "up"
            and host.status == "enabled"
            and len(own) == node.gpu_count
            and all(one.health == "healthy" for one in own)
        ):
            if all(usable(node, one) for one in own):
                return {}
            fit = True
        chosen = self._choose(uow, node)
        if chosen is None:
            # Where only the old agent's word is against it, it may try the same place again.
            return {} if fit else None
        host_id, devices = chosen
        if not self._has_room(uow, host_id, node):
            return None
        uow.devices.release_node(node.id)
        if not uow.devices.claim_for_node(node.id, [device.id for device in devices]):
            raise CommitConflict("Another node was placed there meanwhile.")
        return {"host_id": host_id}

    @staticmethod
    def _has_room(uow: UnitOfWork, host_id: str, node: Node) -> bool:
        """Whether the host still has CPU and memory for a node; holds its row, so that two
        conductors cannot both use the last of it."""
        host = uow.hosts.get(host_id, lock=True)
        if host is None:
            return False
        others = uow.nodes.find(
            Where("host_id", "eq", host_id),
            Where("id", "ne", node.id),
            Where("status", "in", NODE_COUNTED),
        )
        return (
            sum(one.vcpus for one in others) + node.vcpus <= host.vcpus
            and sum(one.memory_mib for one in others) + node.memory_mib <= host.memory_mib
        )

    @staticmethod
    def _choose(uow: UnitOfWork, node: Node) -> tuple[str, list[Device]] | None:
        """The host with the least room that has enough (best fit), its first free devices."""
        hosts = {
            host.id: host
            for host in uow.hosts.find(Where("state", "eq", "up"), Where("status", "eq", "enabled"))
        }
        used: dict[str, tuple[int, int]] = {}
        for other in uow.nodes.find(
            Where("host_id", "notnull"),
            Where("id", "ne", node.id),
            Where("status", "in", NODE_COUNTED),
        ):
            cpus, memory = used.get(str(other.host_id), (0, 0))
            used[str(other.host_id)] = (cpus + other.vcpus, memory + other.memory_mib)
        free: dict[str, list[Device]] = {}
        for device in uow.devices.find(
            Where("node_id", "null"),
            Where("gpu_type", "eq", node.gpu_type),
            Where("health", "eq", "healthy"),
            order=(("ordinal", "asc"),),
        ):
            free.setdefault(device.host_id, []).append(device)
        fits: list[tuple[int, str, str]] = []
        for host_id, devices in free.items():
            host = hosts.get(host_id)
            cpus, memory = used.get(host_id, (0, 0))
            if (
                host is not None
                and len(devices) >= node.gpu_count
                and host.vcpus - cpus >= node.vcpus
                and host.memory_mib - memory >= node.memory_mib
            ):
                fits.append((len(devices), host.name, host_id))
        if not fits:
            return None
        _, _, best = min(fits)
        return best, free[best][: node.gpu_count]
