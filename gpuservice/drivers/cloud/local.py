# SPDX-License-Identifier: Apache-2.0
"""This machine's own NVIDIA cards as a cloud of one host.

Nothing is built: a "server" is a file by which the machine's embedded agent knows which cards it
has, kept as the simulated cloud keeps its own (``simulated_state``), below
``[simulated] state_dir``.
"""

from __future__ import annotations

import importlib
import os
import socket
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from oslo_config import cfg

from gpuservice.domain.errors import CloudError
from gpuservice.domain.ports import CloudDevice, CloudHost, CloudNode, NodeRequest
from gpuservice.drivers.cloud.simulated import as_node
from gpuservice.drivers.cloud.simulated_state import SimulatedState

#: Where the machine's agent is reached by its own tasks.
ADDRESS = "127.0.0.1"
_MIB = 1024 * 1024


class LocalCloud:
    """Implements ``domain.ports.Cloud`` on NVML.

    :param library: NVML's calls, as the module ``pynvml`` has them (that one by default).
    """

    def __init__(self, conf: cfg.ConfigOpts, library: Any | None = None) -> None:
        self.state = SimulatedState(Path(conf.simulated.state_dir))
        self._name = socket.gethostname()
        self._library = library
        self._ready = False

    @property
    def capabilities(self) -> frozenset[str]:
        """We choose the devices; what has the power of a "server" is the embedded agent with its
        tasks, and those can be ended."""
        return frozenset({"places", "power_off"})

    def gpu_types(self) -> list[dict[str, Any]]:
        """One type for each model of card."""
        types: dict[str, dict[str, Any]] = {}
        for device in self.inventory()[0].devices:
            if device.healthy:
                types.setdefault(
                    device.gpu_type,
                    {
                        "name": device.gpu_type,
                        "vendor": device.vendor,
                        "memory_mib": device.memory_mib,
                        "pci_ids": [f"10de:{device.product_id}"],
                    },
                )
        return list(types.values())

    def inventory(self) -> list[CloudHost]:
        """The machine with its cards."""
        return [
            CloudHost(
                name=self._name,
                kind="standalone",
                up=True,
                vcpus=os.cpu_count() or 1,
                memory_mib=_memory_mib(),
                address=ADDRESS,
                devices=tuple(
                    self._device(index, card) for index, card in enumerate(self._cards())
                ),
            )
        ]

    def create_node(self, request: NodeRequest) -> CloudNode:
        """A new file; the agent finds it."""
        if request.host_name != self._name:
            raise CloudError(
                f"This machine is {self._name!r}, not {request.host_name!r}.",
                meta={"failure_class": "capacity", "retriable": False},
            )
        ordinals = {
            device.address: device.ordinal for host in self.inventory() for device in host.devices
        }
        unknown = [one for one in request.device_addresses if one not in ordinals]
        if unknown:
            raise CloudError(
                f"The machine has no card at {', '.join(unknown)}.",
                meta={"failure_class": "capacity", "retriable": False},
            )
        now = datetime.now(UTC)
        server = {
            "id": str(uuid.uuid4()),
            "node_id": request.node_id,
            "name": request.name,
            "host": self._name,
            "devices": list(request.device_addresses),
            "indices": [ordinals[one] for one in request.device_addresses],
            "address": ADDRESS,
            "created": now.isoformat(),
            "active_at": now.timestamp(),
            "fault": None,
            "bootstrap_hash": request.bootstrap_hash,
        }
        with self.state.locked():
            self.state.save_server(server, request.user_data)
        return as_node(server, self.state.control())

    def find_nodes(self, node_ids: Sequence[str] | None = None) -> list[CloudNode]:
        """Our nodes, oldest first."""
        control = self.state.control()
        return [
            as_node(server, control)
            for server in self.state.servers()
            if node_ids is None or server["node_id"] in node_ids
        ]

    def delete_node(self, server_id: str) -> None:
        """What the agent runs goes, and with it the file."""
        with self.state.locked():
            self.state.delete_server(server_id)

    def power_off(self, server_id: str) -> bool:
        """End the agent and its tasks for good; True once they are."""
        with self.state.locked():
            return self.state.switch_off(server_id)

    # -- cards -----------------------------------------------------------------------------
    def _nvml(self) -> Any:
        if not self._ready:
            try:
                if self._library is None:
                    self._library = importlib.import_module("pynvml")
                self._library.nvmlInit()
            except Exception as error:
                raise CloudError(f"NVML cannot be used here: {error}") from error
            self._ready = True
        return self._library

    def _cards(self) -> list[Any]:
        nvml = self._nvml()
        return [nvml.nvmlDeviceGetHandleByIndex(at) for at in range(nvml.nvmlDeviceGetCount())]

    def _device(self, index: int, card: Any) -> CloudDevice:
        nvml = self._nvml()
        address = pci_address(nvml.nvmlDeviceGetPciInfo(card).busId)
        name = type_name(_text(nvml.nvmlDeviceGetName(card)))
        try:
            memory, reason = self._memory(card), None
        except Exception as error:  # NVML's errors have no common base that fakes could share
            memory, reason = 0, f"the card does not answer: {error}"
        return CloudDevice(
            address=address,
            gpu_type=name,
            vendor="nvidia",
            memory_mib=memory,
            ordinal=index,
            product_id=self._product(card),
            uuid=_text(nvml.nvmlDeviceGetUUID(card)),
            healthy=reason is None,
            health_reason=reason,
        )

    def _memory(self, card: Any) -> int:
        return int(self._nvml().nvmlDeviceGetMemoryInfo(card).total) // _MIB

    def _product(self, card: Any) -> str:
        """PCI product id: NVML has it in the upper half, above the vendor's."""
        return f"{self._nvml().nvmlDeviceGetPciInfo(card).pciDeviceId >> 16:04x}"


def type_name(model: str) -> str:
    """``NVIDIA A100-SXM4-80GB`` as the name of a GPU type: ``a100-sxm4-80gb``."""
    words = model.lower().removeprefix("nvidia ").split()
    return "-".join(words) or "gpu"


def pci_address(bus_id: Any) -> str:
    """A PCI address as the kernel writes it: lower case, a domain of four digits."""
    domain, _, rest = _text(bus_id).lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _memory_mib() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _MIB
