# SPDX-License-Identifier: Apache-2.0
"""What boots on the simulated cloud's servers: an agent for each one that is active.

Used by the all-in-one program (an embedded agent each) and by tests (a process each).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from gpuservice.drivers.cloud.simulated import state_of
from gpuservice.drivers.cloud.simulated_state import SimulatedState

LOG = logging.getLogger(__name__)

#: How often the servers are looked at, in seconds.
LOOK_S = 0.2

Boot = Callable[[str, Path], None]
Halt = Callable[[str], None]


class GuestHost:
    """Boots and halts the guests of the servers below one directory.

    :param boot: called with a server id and its user-data file when the server is active.
    :param halt: called with a server id when it is off or gone: all of it must vanish at once,
        as when a machine loses power. It may be a guest of an earlier host.
    """

    def __init__(self, state: SimulatedState, boot: Boot, halt: Halt) -> None:
        self._state = state
        self._boot = boot
        self._halt = halt
        self._running: set[str] = set()

    def run(self, stop: threading.Event) -> None:
        """Look again and again until told to stop; running guests are left as they are."""
        while not stop.wait(LOOK_S):
            try:
                self.look()
            except Exception:
                LOG.exception("Looking at the simulated servers failed")

    def look(self) -> None:
        """Boot what should run and does not, halt what runs and should not."""
        control = self._state.control()
        active = {
            server["id"]
            for server in self._state.servers()
            if state_of(server, control) == "active"
        }
        for server_id in sorted((self._running | self._state.running()) - active):
            self._halt(server_id)
            self._running.discard(server_id)
            self._state.guest_ended(server_id)
        for server_id in sorted(active - self._running):
            if self._state.guest_boots(server_id):
                self._boot(server_id, self._state.user_data_path(server_id))
                self._running.add(server_id)
