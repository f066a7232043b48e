# SPDX-License-Identifier: Apache-2.0
"""What the reconcilers need of the world."""

from __future__ import annotations

from dataclasses import dataclass

from oslo_config import cfg

from gpuservice.domain.context import Cause
from gpuservice.domain.ports import Clock, Cloud, Hints, Ids, ObjectStore
from gpuservice.domain.ports import LogStore as Logs
from gpuservice.domain.ports_store import Store
from gpuservice.domain.simulations import Simulator

CAUSE = Cause(actor="service:conductor")


@dataclass(frozen=True, slots=True)
class Deps:
    """Ports, bound by bootstrap. ``owner`` names this process in leases on work; without a
    ``simulator`` it leaves what-if simulations to others."""

    store: Store
    hints: Hints
    clock: Clock
    ids: Ids
    conf: cfg.ConfigOpts
    cloud: Cloud
    logs: Logs
    objects: ObjectStore
    owner: str
    simulator: Simulator | None = None
