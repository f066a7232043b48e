# SPDX-License-Identifier: Apache-2.0
"""What every use case needs of the world."""

from __future__ import annotations

from dataclasses import dataclass

from oslo_config import cfg

from gpuservice.domain.ports import Clock, Hints, Ids, LogStore, ObjectStore, Planning
from gpuservice.domain.ports_store import Store


@dataclass(frozen=True, slots=True)
class Deps:
    """Ports, bound by bootstrap."""

    store: Store
    hints: Hints
    clock: Clock
    ids: Ids
    conf: cfg.ConfigOpts
    logs: LogStore
    objects: ObjectStore
    planning: Planning
    #: Whether the cloud can confirm a node off: then no lease ends its tasks.
    power_off: bool = False
