# SPDX-License-Identifier: Apache-2.0
"""Devices that settings list, for simulated nodes; always healthy."""

from __future__ import annotations

from collections.abc import Sequence

from gpuservice.agent.device_nodes import DeviceNode
from gpuservice.agent.wire import Device, DeviceHealth


class FakeProbe:
    """Finds what it was told."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self._devices = tuple(devices)
        self._health = tuple(DeviceHealth(address=device.address) for device in self._devices)

    def devices(self) -> Sequence[Device]:
        """The listed devices."""
        return self._devices

    def health(self) -> Sequence[DeviceHealth]:
        """All healthy."""
        return self._health

    def device_nodes(self, address: str) -> Sequence[DeviceNode]:
        """There is nothing behind them that could be opened."""
        return ()
