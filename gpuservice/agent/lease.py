# SPDX-License-Identifier: Apache-2.0
"""The lease file: how an agent tells every supervisor of its node how long they may go on.

One small file per agent. The agent writes a counter (it is alive) and a deadline on the boot-time
clock (which goes on while a machine is suspended or a process is stopped); supervisors read both
twice a second. A file, not a socket: it outlives the agent, and a restarted agent writes on in it.
"""

from __future__ import annotations

import functools
import os
import struct
import time

from gpuservice.agent import plain_files

#: What the file holds first: the counter and the deadline. The boot id follows.
LAYOUT = struct.Struct("<Qd")
#: Longest time between two looks of a supervisor, seconds.
LOOK_S = 0.5


def boot_time() -> float:
    """Seconds since the machine started, counting the time it was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@functools.cache
def boot_id() -> str:
    """The kernel's name of this start of the machine: pids and deadlines are only good in it."""
    return plain_files.read("/proc/sys/kernel/random/boot_id").decode().strip()


def endless_lease(directory: str) -> str:
    """Make a lease file that never runs out; returns its path."""
    path = f"{directory}/lease"
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    return path


class LeaseReader:
    """A supervisor's side: whether the lease has run out, and how long no agent was seen.

    Only time in which this process could look counts as "not seen": a machine that slept, or a
    node that was stopped as a whole, did not lose its agent.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._count = -1
        self._looked_at = time.monotonic()
        self.unattended_s = 0.0

    def look(self) -> float:
        """Read the file, count the time without an agent; returns the deadline (0: none)."""
        held = os.pread(self._file, LAYOUT.size, 0)
        count, deadline = LAYOUT.unpack(held) if len(held) == LAYOUT.size else (0, 0.0)
        now = time.monotonic()
        if count != self._count:
            self._count, self.unattended_s = count, 0.0
        else:
            self.unattended_s += min(now - self._looked_at, 2 * LOOK_S)
        self._looked_at = now
        return float(deadline)
