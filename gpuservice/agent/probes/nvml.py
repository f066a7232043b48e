# SPDX-License-Identifier: Apache-2.0
"""NVIDIA devices through NVML (package nvidia-ml-py, module ``pynvml``); their faults are looked
for by ``nvml_health``."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from gpuservice.agent.device_nodes import DeviceNode, Unfilterable
from gpuservice.agent.probes.nvml_health import NvmlHealth, handle_at, plain_bus_id, text_of
from gpuservice.agent.wire import Device, DeviceHealth

#: The driver's own character device: one minor a GPU, and 255 for all (devices.txt).
_MAJOR, _CONTROL = 195, DeviceNode("c", 195, 255)


class NvmlUnavailable(RuntimeError):
    """The library, its driver or any device is not there."""


class NvmlProbe:
    """Asks an NVML library object; any object with the same calls will do."""

    def __init__(self, library: Any) -> None:
        self._nvml = library
        self._health = NvmlHealth(library)
        self._found: tuple[Device, ...] | None = None
        try:
            self._nvml.nvmlInit()
        except Exception as error:
            raise NvmlUnavailable(f"NVML cannot be used here: {error}") from error

    @classmethod
    def load(cls) -> NvmlProbe:
        """The machine's library.

        :raises NvmlUnavailable: when there is none.
        """
        try:
            library = importlib.import_module("pynvml")
        except ImportError as error:
            raise NvmlUnavailable(f"NVML cannot be used here: {error}") from error
        return cls(library)

    def devices(self) -> Sequence[Device]:
        """Every device; PCI addresses as the kernel writes them (lower case, 4-digit domain)."""
        count = self._nvml.nvmlDeviceGetCount()
        self._found = tuple(self._device(index) for index in range(count))
        return self._found

    def health(self) -> Sequence[DeviceHealth]:
        """See ``nvml_health``; a device that was there and is no more is bad, not forgotten."""
        found = self._found if self._found is not None else self.devices()
        return self._health.of([device.address for device in found])

    def device_nodes(self, address: str) -> Sequence[DeviceNode]:
        """The GPU's own node, and what all users of the driver share."""
        try:
            handle = handle_at(self._nvml, address)
            minor = int(self._nvml.nvmlDeviceGetMinorNumber(handle))
            partitioned = self._partitioned(handle)
        except Exception as error:
            raise Unfilterable(f"the device at {address} cannot be asked: {error}") from error
        if partitioned:
            raise Unfilterable(f"the device at {address} is partitioned (MIG)")
        unified = [
            DeviceNode("c", major, minor)
            for major in _majors("nvidia-uvm")
            for minor in (0, 1)  # memory, and its tools
        ]
        return (DeviceNode("c", _MAJOR, minor), _CONTROL, *unified)

    def _partitioned(self, handle: Any) -> bool:
        try:
            return bool(self._nvml.nvmlDeviceGetMigMode(handle)[0])
        except Exception:
            return False  # a model that knows no partitions

    def _device(self, index: int) -> Device:
        handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
        pci = self._nvml.nvmlDeviceGetPciInfo(handle)
        address = plain_bus_id(pci.busId)
        return Device(
            address=address,
            vendor="nvidia",
            product_id=f"{pci.pciDeviceId >> 16:04x}",
            uuid=text_of(self._nvml.nvmlDeviceGetUUID(handle)),
            index=index,
            memory_mib=int(self._nvml.nvmlDeviceGetMemoryInfo(handle).total) // (1024 * 1024),
            numa_node=_numa_node(address),
            link_group=None,
        )


def _majors(name: str) -> list[int]:
    """Major numbers of a driver whose numbers the kernel chose."""
    try:
        with open("/proc/devices", encoding="ascii") as file:
            lines = [line.split() for line in file]
    except OSError:
        return []
    return [int(words[0]) for words in lines if len(words) == 2 and words[1] == name]


def _numa_node(address: str) -> int | None:
    try:
        with open(f"/sys/bus/pci/devices/{address}/numa_node", encoding="ascii") as file:
            node = int(file.read())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None
