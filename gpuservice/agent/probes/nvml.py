# SPDX-License-Identifier: Apache-2.0
"""NVIDIA devices through NVML (package nvidia-ml-py, module ``pynvml``)."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from gpuservice.agent.wire import Device, DeviceHealth


class NvmlUnavailable(RuntimeError):
    """The library, its driver or any device is not there."""


class NvmlProbe:
    """Asks an NVML library object; any object with the same calls will do."""

    def __init__(self, library: Any) -> None:
        self._nvml = library
        try:
            self._nvml.nvmlInit()
        except Exception as error:
            raise NvmlUnavailable(str(error)) from error

    @classmethod
    def load(cls) -> NvmlProbe:
        """The machine's library.

        :raises NvmlUnavailable: when there is none.
        """
        try:
            library = importlib.import_module("pynvml")
        except ImportError as error:
            raise NvmlUnavailable(str(error)) from error
        return cls(library)

    def devices(self) -> Sequence[Device]:
        """Every device; PCI addresses as the kernel writes them (lower case, 4-digit domain)."""
        return tuple(self._device(index) for index in range(self._nvml.nvmlDeviceGetCount()))

    def health(self) -> Sequence[DeviceHealth]:
        """Unhealthy: does not answer, or has memory errors that need a reset."""
        found = []
        for index in range(self._nvml.nvmlDeviceGetCount()):
            try:
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                address = _address(self._nvml.nvmlDeviceGetPciInfo(handle).busId)
            except Exception:
                continue  # a device without an address cannot be named
            reason = self._fault(handle)
            found.append(DeviceHealth(address=address, healthy=reason is None, reason=reason))
        return tuple(found)

    def _device(self, index: int) -> Device:
        handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
        pci = self._nvml.nvmlDeviceGetPciInfo(handle)
        address = _address(pci.busId)
        return Device(
            address=address,
            vendor="nvidia",
            product_id=f"{pci.pciDeviceId >> 16:04x}",
            uuid=_text(self._nvml.nvmlDeviceGetUUID(handle)),
            index=index,
            memory_mib=int(self._nvml.nvmlDeviceGetMemoryInfo(handle).total) // (1024 * 1024),
            numa_node=_numa_node(address),
            link_group=None,
        )

    def _fault(self, handle: Any) -> str | None:
        try:
            self._nvml.nvmlDeviceGetMemoryInfo(handle)
        except Exception as error:
            return f"the device does not answer: {error}"
        try:
            rows = self._nvml.nvmlDeviceGetRemappedRows(handle)
        except Exception:
            return None  # older devices keep no such count
        # (correctable, uncorrectable, pending, failed), NVML reference, "Remapped rows"
        if rows[3]:
            return "a faulty memory row could not be remapped"
        return "a faulty memory row waits for a reset of the device" if rows[2] else None


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _address(bus_id: Any) -> str:
    domain, _, rest = _text(bus_id).lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _numa_node(address: str) -> int | None:
    try:
        with open(f"/sys/bus/pci/devices/{address}/numa_node", encoding="ascii") as file:
            node = int(file.read())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None
