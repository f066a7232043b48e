# SPDX-License-Identifier: Apache-2.0
"""Time, ids and hints as tests of the conductor want them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from gpuservice.domain.ports import Hint


class HandClock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.time = datetime(2026, 5, 6, 7, 8, 9, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return self.time.timestamp()

    def pass_(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


class RandomIds:
    """Random UUIDs and secrets."""

    def new(self) -> str:
        return str(uuid.uuid4())

    def secret(self) -> str:
        return uuid.uuid4().hex * 2


@dataclass
class KeptHints:
    """Keeps hints; nobody listens."""

    sent: list[Hint] = field(default_factory=list)

    def send(self, hint: Hint) -> None:
        self.sent.append(hint)

    def subscribe(
        self, kinds: Iterable[str], listener: Callable[[Hint], None]
    ) -> Callable[[], None]:
        return lambda: None
