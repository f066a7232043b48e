# SPDX-License-Identifier: Apache-2.0
"""Finding the accelerators of this node, one file per way to ask."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from gpuservice.agent.device_nodes import DeviceNode
from gpuservice.agent.probes.fake import FakeProbe
from gpuservice.agent.probes.nvml import NvmlProbe, NvmlUnavailable
from gpuservice.agent.settings import AgentSettings
from gpuservice.agent.wire import Device, DeviceHealth

LOG = logging.getLogger(__name__)


class Probe(Protocol):
    """Asks a vendor's library."""

    def devices(self) -> Sequence[Device]:
        """Every accelerator of the node, in the order of their indices."""

    def health(self) -> Sequence[DeviceHealth]:
        """The state of each that ``devices`` found, now or a few seconds ago; never raises."""

    def device_nodes(self, address: str) -> Sequence[DeviceNode]:
        """See ``device_nodes.NodesOfDevices``."""


def probe_for(settings: AgentSettings) -> Probe:
    """The probe the settings ask for; ``auto``: listed devices, else NVML, else none.

    :raises NvmlUnavailable: when NVML is asked for by name and not there.
    """
    if settings.probe == "fake" or (settings.probe == "auto" and settings.devices):
        return FakeProbe(settings.devices)
    try:
        return NvmlProbe.load()
    except NvmlUnavailable as error:
        if settings.probe == "nvml":
            raise
        LOG.info("no NVIDIA device: %s", error)
        return FakeProbe(())
