# SPDX-License-Identifier: Apache-2.0
"""A cloud without hardware: hosts and GPUs by configuration, servers as files.

It behaves like a real one where that matters: servers take time to build and may end in error,
calls may be slow, the same node may be created twice by callers that did not look, a host may
lose power with all that runs on it. See ``simulated_state`` for how to make it do so.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from oslo_config import cfg

from gpuservice.domain.errors import CloudError
from gpuservice.domain.ports import CloudDevice, CloudHost, CloudNode, NodeRequest
from gpuservice.drivers.cloud.simulated_state import SimulatedState

#: PCI vendor and product ids of the types the simulated cloud knows by name.
KNOWN_TYPES: dict[str, dict[str, Any]] = {
    "a100-80gb": {
        "vendor": "nvidia",
        "pci_ids": ["10de:20b5"],
        "architecture": "ampere",
        "interconnect": "nvlink",
    },
    "h100": {
        "vendor": "nvidia",
        "pci_ids": ["10de:2330"],
        "architecture": "hopper",
        "interconnect": "nvlink",
    },
}


class SimulatedCloud:
    """Implements ``domain.ports.Cloud`` below ``[simulated] state_dir``."""

    def __init__(self, conf: cfg.ConfigOpts, chance: random.Random | None = None) -> None:
        self._random = chance or random.Random()
        self._conf = conf.simulated
        self.state = SimulatedState(Path(conf.simulated.state_dir))

    @property
    def capabilities(self) -> frozenset[str]:
        """We choose host and devices; power-off as configured."""
        return frozenset({"places", "power_off"} if self._conf.power_off else {"places"})

    def gpu_types(self) -> list[dict[str, Any]]:
        """The one configured type."""
        name = self._conf.gpu_type
        known = KNOWN_TYPES.get(name, {"vendor": "nvidia", "pci_ids": []})
        return [{"name": name, "memory_mib": self._conf.gpu_memory_mib, **known}]

    def inventory(self) -> list[CloudHost]:
        """Every host; one without power is down."""
        control = self._call()
        return [self._host(number, control) for number in range(self._conf.hosts)]

    def create_node(self, request: NodeRequest) -> CloudNode:
        """A new server, also when the node has one already (real clouds do not look either)."""
        control = self._call()
        time.sleep(float(control["create_delay_s"]))
        number = self._number(request.host_name)
        now = datetime.now(UTC)
        with self.state.locked():
            failing = self._takes_failure()
            server = {
                "id": str(uuid.uuid4()),
                "node_id": request.node_id,
                "name": request.name,
                "host": request.host_name,
                "devices": list(request.device_addresses),
                "address": address_of(number),
                "created": now.isoformat(),
                "active_at": now.timestamp() + float(control["build_delay_s"]),
                "fault": "the simulated build failed" if failing else None,
                "bootstrap_hash": request.bootstrap_hash,
            }
            self.state.save_server(server, request.user_data)
        return as_node(server, control)

    def _takes_failure(self) -> bool:
        """Whether this build fails; one counted failure is used up (the lock is held)."""
        control = self.state.control()
        if control["fail_next_builds"] > 0:
            self.state.write_control({"fail_next_builds": control["fail_next_builds"] - 1})
            return True
        return self._random.random() < float(control["fail_rate"])

    def find_nodes(self, node_ids: Sequence[str] | None = None) -> list[CloudNode]:
        """Our servers, oldest first."""
        control = self._call()
        wanted = None if node_ids is None else set(node_ids)
        return [
            as_node(server, control)
            for server in self.state.servers()
            if wanted is None or server["node_id"] in wanted
        ]

    def delete_node(self, server_id: str) -> None:
        """Off at once, gone when nothing of its guest runs; absent is fine."""
        self._call()
        with self.state.locked():
            self.state.delete_server(server_id)

    def power_off(self, server_id: str) -> bool:
        """Power a server off for good; True once its guest has ended everything."""
        self._call()
        with self.state.locked():
            return self.state.switch_off(server_id)

    def _call(self) -> dict[str, Any]:
        control = self.state.control()
        if control["call_delay_s"]:
            time.sleep(float(control["call_delay_s"]))
        return control

    def _number(self, host_name: str | None) -> int:
        for number in range(self._conf.hosts):
            if host_name == name_of(number):
                return number
        raise CloudError(
            f"There is no host {host_name!r}.",
            meta={"failure_class": "capacity", "retriable": False},
        )

    def _host(self, number: int, control: dict[str, Any]) -> CloudHost:
        name = name_of(number)
        return CloudHost(
            name=name,
            kind="hypervisor",
            up=name not in control["lost_hosts"],
            vcpus=self._conf.vcpus,
            memory_mib=self._conf.memory_mib,
            rack=f"rack-{number // self._conf.hosts_per_rack}",
            zone="zone-0",
            link_domain=None,
            address=address_of(number),
            devices=tuple(
                self._device(name, gpu, control) for gpu in range(self._conf.gpus_per_host)
            ),
        )

    def _device(self, host: str, gpu: int, control: dict[str, Any]) -> CloudDevice:
        address = f"0000:{0x10 + gpu:02x}:00.0"
        healthy = f"{host}/{address}" not in control["unhealthy_devices"]
        known = KNOWN_TYPES.get(self._conf.gpu_type, {})
        pci = known.get("pci_ids", [])
        return CloudDevice(
            address=address,
            gpu_type=self._conf.gpu_type,
            vendor=known.get("vendor", "nvidia"),
            memory_mib=self._conf.gpu_memory_mib,
            ordinal=gpu,
            product_id=pci[0].partition(":")[2] if pci else None,
            uuid=f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'{host}/{gpu}')}",
            numa_node=gpu * 2 // max(self._conf.gpus_per_host, 1),
            link_group=f"nvlink-{gpu // self._conf.gpus_per_link_group}",
            healthy=healthy,
            health_reason=None if healthy else "said so by control.json",
        )


def as_node(server: dict[str, Any], control: dict[str, Any]) -> CloudNode:
    """A server's file as what the port says of it."""
    return CloudNode(
        node_id=server["node_id"],
        server_id=server["id"],
        state=state_of(server, control),
        address=server["address"],
        host_name=server["host"],
        created_at=datetime.fromisoformat(server["created"]),
        fault=server["fault"],
        bootstrap_hash=server.get("bootstrap_hash"),
    )


def name_of(number: int) -> str:
    """The name of host ``number``."""
    return f"gpu-{number:02d}"


def address_of(number: int) -> str:
    """The loopback address that host ``number`` has for itself."""
    return f"127.1.{number // 250}.{number % 250 + 1}"


def state_of(server: dict[str, Any], control: dict[str, Any]) -> str:
    """What a server does now: building, active, error or off."""
    if server["fault"]:
        return "error"
    if server.get("off") or server["host"] in control["lost_hosts"]:
        return "off"
    return "active" if time.time() >= server["active_at"] else "building"
