# SPDX-License-Identifier: Apache-2.0
"""Which device nodes a task may open: the harmless ones every program needs, and its own GPUs'."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol


class DeviceNode(NamedTuple):
    """Device numbers; ``minor`` null: all of that major. ``kind``: ``c`` or ``b``."""

    kind: str
    major: int
    minor: int | None


class Unfilterable(RuntimeError):
    """It cannot be told which device nodes belong to a device, so they cannot be filtered."""


class NodesOfDevices(Protocol):
    """What knows the device nodes of a vendor's devices."""

    def device_nodes(self, address: str) -> Sequence[DeviceNode]:
        """Every node that a program needs to use this device and no other.

        :raises Unfilterable: when that cannot be told.
        """


FULL = DeviceNode("c", 1, 7)
#: Linux's admin-guide/devices.txt: null, zero, full, random, urandom; tty, ptmx; the pts.
BASIC = (
    DeviceNode("c", 1, 3),
    DeviceNode("c", 1, 5),
    FULL,
    DeviceNode("c", 1, 8),
    DeviceNode("c", 1, 9),
    DeviceNode("c", 5, 0),
    DeviceNode("c", 5, 2),
    *(DeviceNode("c", major, None) for major in range(136, 144)),
)
#: What a probe may open: all but one, so that it can be seen that this one is refused.
FOR_PROBE = tuple(one for one in BASIC if one != FULL)


def can_be_proved() -> bool:
    """Whether the node that a probe must be refused exists, open to everybody."""
    try:
        found = os.stat("/dev/full")
    except OSError:
        return False
    return (
        stat.S_ISCHR(found.st_mode)
        and (os.major(found.st_rdev), os.minor(found.st_rdev)) == (1, 7)
        and bool(found.st_mode & stat.S_IROTH)
    )


class DeviceNodes:
    """The allow list of this node's tasks.

    :param extra: patterns of further device files for every task (the setting ``allowed_devices``).
    """

    def __init__(
        self, source: NodesOfDevices, addresses: Iterable[str], extra: Iterable[str]
    ) -> None:
        self._source, self._addresses, self._extra = source, tuple(addresses), tuple(extra)

    def fault(self) -> str | None:
        """Why not every device of the node can be told from the others, null if each can."""
        try:
            for address in self._addresses:
                self._source.device_nodes(address)
        except Unfilterable as error:
            return str(error)
        return None

    def allowed(self, addresses: Iterable[str]) -> tuple[DeviceNode, ...]:
        """For a task with these devices.

        :raises Unfilterable: when one of them cannot be told from others any more.
        """
        own = [one for address in addresses for one in self._source.device_nodes(address)]
        return tuple(dict.fromkeys((*BASIC, *own, *_numbers(self._extra))))


def _numbers(patterns: Iterable[str]) -> list[DeviceNode]:
    found = []
    for path in sorted({path for pattern in patterns for path in glob.glob(pattern)}):
        node = numbers_of(path)
        if node is not None:
            found.append(node)
    return found


def numbers_of(path: str) -> DeviceNode | None:
    """The numbers of a device file, null if there is none of that name."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    kind = "c" if stat.S_ISCHR(status.st_mode) else "b" if stat.S_ISBLK(status.st_mode) else ""
    if not kind:
        return None
    return DeviceNode(kind, os.major(status.st_rdev), os.minor(status.st_rdev))
