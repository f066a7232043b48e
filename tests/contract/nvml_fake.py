# SPDX-License-Identifier: Apache-2.0
"""NVML's calls as the module ``pynvml`` has them, on cards that are made up."""

from __future__ import annotations

from types import SimpleNamespace


class FakeNvml:
    """Cards of one model; those in ``dead`` do not answer for their memory."""

    def __init__(self, cards: int = 4, model: str = "NVIDIA A100-SXM4-80GB") -> None:
        self.cards = cards
        self.model = model
        self.dead: set[int] = set()
        self.missing = False

    def nvmlInit(self) -> None:
        if self.missing:
            raise RuntimeError("Driver Not Loaded")

    def nvmlDeviceGetCount(self) -> int:
        return self.cards

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, handle: int) -> str:
        return self.model

    def nvmlDeviceGetUUID(self, handle: int) -> bytes:
        return f"GPU-{handle}".encode()

    def nvmlDeviceGetPciInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(
            busId=f"00000000:{0x3B + handle:02X}:00.0".encode(), pciDeviceId=0x20B210DE
        )

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        if handle in self.dead:
            raise RuntimeError("GPU is lost")
        return SimpleNamespace(total=81920 * 1024 * 1024)
