# SPDX-License-Identifier: Apache-2.0
"""The agent's side of the lease file: see ``lease``, which supervisors use.

Apart from it, because supervisors have no threads: with ``threading`` loaded, every fork would
pay for what that module does in a child.
"""

from __future__ import annotations

import os
import threading

from gpuservice.agent.lease import LAYOUT, boot_id

#: Seconds between two signs of life of an agent.
TOUCH_S = 0.5


class LeaseWriter:
    """Writes the file. A deadline of 0 means: no lease, tasks may go on without end."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._lock = threading.Lock()
        self._count, self._deadline = 0, 0.0
        held = os.pread(self._file, LAYOUT.size, 0)
        boot = boot_id().encode("ascii")
        if len(held) == LAYOUT.size and os.pread(self._file, 64, LAYOUT.size) == boot:
            self._count, self._deadline = LAYOUT.unpack(held)
        else:  # a deadline means nothing on another start's clock, and nothing is left of its tasks
            os.ftruncate(self._file, 0)
            self._write()
            os.pwrite(self._file, boot, LAYOUT.size)

    @property
    def deadline(self) -> float:
        """The deadline last written, on the boot-time clock; 0 without a lease."""
        return float(self._deadline)

    def touch(self) -> None:
        """Say that an agent is there."""
        with self._lock:
            self._write()

    def renew(self, sent_at: float, lease_s: float | None) -> None:
        """Take what an answer granted, counted from when its request was *sent*.

        An older answer that arrives late never shortens what a newer one granted.
        """
        with self._lock:
            if lease_s is None:
                self._deadline = 0
            else:
                self._deadline = max(self._deadline, sent_at + lease_s)
            self._write()

    def close(self) -> None:
        """Close the file; its content stays."""
        os.close(self._file)

    def _write(self) -> None:
        self._count += 1
        os.pwrite(self._file, LAYOUT.pack(self._count, self._deadline), 0)
