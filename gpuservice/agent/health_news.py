# SPDX-License-Identifier: Apache-2.0
"""What syncs say of the devices' health: a change at once, otherwise all of it now and then.

Most syncs have nothing new to say of devices, and a list of them costs the service more to read
than the rest of such a sync.
"""

from __future__ import annotations

import time

from gpuservice.agent.probes import Probe
from gpuservice.agent.wire import DeviceHealth

#: What did not change is said again after so long, seconds: the service may have waited before
#: it believed it.
AGAIN_S = 5.0


class HealthNews:
    """The word on the devices of one node; for several threads, which may say it twice."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._heard: tuple[tuple[DeviceHealth, ...], float] = ((), float("-inf"))

    def due(self) -> tuple[DeviceHealth, ...]:
        """All devices where there is something to say, else none."""
        now = tuple(self._probe.health())
        known, at = self._heard
        return () if now == known and time.monotonic() < at + AGAIN_S else now

    def heard(self, said: tuple[DeviceHealth, ...], at: float) -> None:
        """The service has this, said at that moment of the monotonic clock."""
        if said and at > self._heard[1]:
            self._heard = (said, at)
