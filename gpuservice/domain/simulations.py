# SPDX-License-Identifier: Apache-2.0
"""What-if simulations: what is asked, what is answered, and who runs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from gpuservice.domain.inventory import Row


class SimulationStatus(StrEnum):
    """Where a simulation stands."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation(Row):
    """A workload and a change of the cloud, and what that change would do to it.

    ``request``: the body as it was asked, without its inline ``workload``; ``resolved``: the ids
    of what it names (``queues``, ``pools``, ``workload``: of each row its queue). ``progress`` is
    a percentage.
    """

    name: str
    user_id: str
    status: str = SimulationStatus.QUEUED
    status_reason: str | None = None
    progress: int = 0
    request: dict[str, Any]
    workload: tuple[dict[str, Any], ...] = ()
    resolved: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class SimulationEnd:
    """How a run ended: with a result, or with a sentence that says why there is none."""

    result: Mapping[str, Any] | None
    fault: str | None = None


class SimulationRun(Protocol):
    """A simulation on its way, in a process of its own."""

    @property
    def progress(self) -> int:
        """Percent."""

    def end(self) -> SimulationEnd | None:
        """How it ended; None while it goes on."""

    def stop(self) -> None:
        """End it now, whatever it has come to."""


class Simulator(Protocol):
    """What runs simulations, bound by bootstrap."""

    def start(self, simulation: Simulation) -> SimulationRun:
        """Begin; raises ``Invalid`` with a sentence when there is nothing to be simulated."""
