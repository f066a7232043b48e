# SPDX-License-Identifier: Apache-2.0
"""What NVML tells of a device that must not be given work.

It fell off the bus or does not answer; its memory has errors that only a reset mends; it is so hot
that it slows itself down; or the driver noted an error (Xid) that is not a program's own.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from gpuservice.agent.wire import DeviceHealth

#: Devices are asked again after so many seconds: syncs come more often, and a look costs several
#: calls of the driver a device.
LOOK_S = 5.0
#: A device that was too hot is good again when it is so many degrees below where it slows down.
COOLED_BY = 5
#: Xids that a program causes by itself, or that the device has mended (NVIDIA, "Xid errors"):
#: graphics exception, page fault, stopped processing, preemptive cleanup, row remapping, push
#: buffer, contained memory error, context switch.
HARMLESS_XIDS = frozenset({13, 31, 43, 45, 63, 68, 94, 109})

# Constants of nvml.h.
_TEMPERATURE_GPU = 0
_THRESHOLD_SLOWDOWN = 1
_UNCORRECTED, _VOLATILE = 1, 0
_EVENT_XID = 8


#: A look hears so many events at most.
_EVENTS_A_LOOK = 1000


class NvmlHealth:
    """Looks at devices; remembers Xids, and who was hot."""

    def __init__(self, library: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._nvml, self._clock = library, clock
        self._looked_at: float | None = None
        self._last: tuple[DeviceHealth, ...] = ()
        self._events: Any = None
        self._xids: dict[str, int] = {}
        self._hot: set[str] = set()
        self._lock = threading.Lock()

    def of(self, addresses: Sequence[str]) -> tuple[DeviceHealth, ...]:
        """The state of each, at most ``LOOK_S`` old."""
        with self._lock:
            now = self._clock()
            if self._looked_at is None or now >= self._looked_at + LOOK_S:
                self._looked_at = now
                self._hear_xids(addresses)
                reasons = {address: self._fault(address) for address in addresses}
                self._last = tuple(
                    DeviceHealth(address=address, healthy=reason is None, reason=reason)
                    for address, reason in reasons.items()
                )
            return self._last

    def _fault(self, address: str) -> str | None:
        try:
            handle = handle_at(self._nvml, address)
        except LookupError:
            return "it is not on the bus any more"
        except Exception as error:
            return f"the driver does not answer: {error}"
        try:
            self._nvml.nvmlDeviceGetMemoryInfo(handle)
        except Exception as error:
            return f"the device does not answer: {error}"
        if address in self._xids:
            return (
                f"the driver noted Xid {self._xids[address]}; reset the device and restart "
                "the agent"
            )
        return self._memory_fault(handle) or self._heat(address, handle)

    def _memory_fault(self, handle: Any) -> str | None:
        try:
            # (correctable, uncorrectable, pending, failed), NVML reference, "Remapped rows"
            rows = self._nvml.nvmlDeviceGetRemappedRows(handle)
        except Exception:
            return self._uncorrected(handle)
        if rows[3]:
            return "a faulty memory row could not be remapped"
        return "a faulty memory row waits for a reset of the device" if rows[2] else None

    def _uncorrected(self, handle: Any) -> str | None:
        """Models that remap no rows only count."""
        with contextlib.suppress(Exception):
            count = self._nvml.nvmlDeviceGetTotalEccErrors(handle, _UNCORRECTED, _VOLATILE)
            if count:
                return f"{count} memory errors could not be corrected since its last reset"
        return None

    def _heat(self, address: str, handle: Any) -> str | None:
        try:
            now = int(self._nvml.nvmlDeviceGetTemperature(handle, _TEMPERATURE_GPU))
            limit = int(self._nvml.nvmlDeviceGetTemperatureThreshold(handle, _THRESHOLD_SLOWDOWN))
        except Exception:
            return None  # not every model tells
        if now >= limit:
            self._hot.add(address)
        elif now <= limit - COOLED_BY:
            self._hot.discard(address)
        return f"it is too hot: it slows down at {limit} C" if address in self._hot else None

    def _hear_xids(self, addresses: Sequence[str]) -> None:
        """Take what the driver noted since the last look, without waiting for more."""
        try:
            if self._events is None:
                self._events = self._subscribe(addresses)
            for _ in range(_EVENTS_A_LOOK):
                event = self._nvml.nvmlEventSetWait_v2(self._events, 0)
                xid = int(event.eventData)
                if event.eventType == _EVENT_XID and xid not in HARMLESS_XIDS:
                    pci = self._nvml.nvmlDeviceGetPciInfo(event.device)
                    self._xids[plain_bus_id(pci.busId)] = xid
        except Exception:
            return  # nothing (more) to hear, or a driver that tells no events

    def _subscribe(self, addresses: Sequence[str]) -> Any:
        events = self._nvml.nvmlEventSetCreate()
        for address in addresses:
            with contextlib.suppress(Exception):
                handle = handle_at(self._nvml, address)
                self._nvml.nvmlDeviceRegisterEvents(handle, _EVENT_XID, events)
        return events


def handle_at(library: Any, address: str) -> Any:
    """The handle of the device at a PCI address.

    :raises LookupError: when there is none. Errors of the library pass.
    """
    wanted, trouble = plain_bus_id(address), None
    for index in range(library.nvmlDeviceGetCount()):
        try:
            handle = library.nvmlDeviceGetHandleByIndex(index)
            if plain_bus_id(library.nvmlDeviceGetPciInfo(handle).busId) == wanted:
                return handle
        except Exception as error:
            trouble = error  # another device's trouble, or that of the one wanted
    if trouble is not None:
        raise trouble
    raise LookupError(f"no device at {address}")


def plain_bus_id(bus_id: Any) -> str:
    """A PCI address as the kernel writes it: lower case, a domain of four digits."""
    domain, _, rest = text_of(bus_id).lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def text_of(value: Any) -> str:
    """Text, which some versions of the library give as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)
