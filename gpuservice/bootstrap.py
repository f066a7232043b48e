# SPDX-License-Identifier: Apache-2.0
"""The composition root: the one place that knows concrete classes."""

from __future__ import annotations

import secrets
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from oslo_config import cfg

from gpuservice.api.app import create_app
from gpuservice.auth.enforcer import Enforcer
from gpuservice.auth.strategies import protected, strategy
from gpuservice.conductor.deps import Deps as ConductorDeps
from gpuservice.conductor.loop import Conductor
from gpuservice.conf import jobs as jobs_conf
from gpuservice.conf import quota as quota_conf
from gpuservice.db.engine import create_engine_from
from gpuservice.db.store import DatabaseStore
from gpuservice.domain.ports import Hint
from gpuservice.drivers import loader
from gpuservice.messaging.bus import Bus
from gpuservice.scheduler.collect import Collector, CollectSettings
from gpuservice.scheduler.commit import CommitSettings, Committer
from gpuservice.scheduler.leadership import Leadership, coordination_url
from gpuservice.scheduler.loop import SHARD, Scheduler
from gpuservice.scheduler.planning import SnapshotPlanning
from gpuservice.scheduler.policy import policy_of
from gpuservice.scheduler.preempting import Preempting
from gpuservice.services.deps import Deps as ServiceDeps
from gpuservice.services.registry import Services, build
from gpuservice.simulation.child import Bounds, ProcessSimulator, own_program
from gpuservice.simulation.gathering import Gathering


class SystemClock:
    """The machine's clocks."""

    def now(self) -> datetime:
        """Aware UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()


class RandomIds:
    """Random identifiers and secrets."""

    def new(self) -> str:
        """A fresh UUID."""
        return str(uuid.uuid4())

    def secret(self) -> str:
        """256 random bits."""
        return secrets.token_hex(32)


class BusHints:
    """The port ``Hints`` on the bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def send(self, hint: Hint) -> None:
        """Best effort."""
        self._bus.send(hint.kind, hint.ids)

    def subscribe(
        self, kinds: Iterable[str], listener: Callable[[Hint], None]
    ) -> Callable[[], None]:
        """Call the listener for each hint of these kinds."""

        def on_news(kind: str, ids: Sequence[str]) -> None:
            listener(Hint(kind, tuple(ids)))

        return self._bus.subscribe(kinds, on_news)


@dataclass(slots=True)
class Core:
    """What every program has."""

    conf: cfg.ConfigOpts
    store: DatabaseStore
    bus: Bus
    hints: BusHints
    clock: SystemClock
    ids: RandomIds
    name: str

    def start(self, forked: bool = False) -> None:
        """Begin with the bus, in the process that serves.

        :param forked: whether the parent's connections to the database may be in the pool.
        """
        if forked:
            self.store.engine.dispose(close=False)
        self.bus.start()

    def close(self) -> None:
        """Stop listening, close connections."""
        self.bus.stop()
        self.store.engine.dispose()


def core(conf: cfg.ConfigOpts, *, shared_bus: bool = True, start: bool = True) -> Core:
    """Connect to the database and the bus.

    :param shared_bus: whether other processes are to be heard (not so in the all-in-one).
    :param start: whether at once; otherwise the process that serves calls :meth:`Core.start`.
    """
    clock, ids = SystemClock(), RandomIds()
    engine = create_engine_from(conf)
    store = DatabaseStore(engine, clock, ids, quota_conf.defaults(conf))
    host = socket.gethostname()
    bus = Bus(conf, host, shared=shared_bus)
    bus.prepare()
    made = Core(conf, store, bus, BusHints(bus), clock, ids, f"{host}-{uuid.uuid4().hex[:8]}")
    if start:
        made.start()
    return made


def services(parts: Core) -> Services:
    """The use cases on their ports."""
    conf = parts.conf
    planning = SnapshotPlanning(parts.store, _collector(conf, leads=False), policy_of(conf))
    return build(
        ServiceDeps(
            parts.store,
            parts.hints,
            parts.clock,
            parts.ids,
            conf,
            loader.load("logs", conf.logs.driver, conf),
            loader.load("objects", conf.artifacts.driver, conf),
            planning,
            "power_off" in loader.load("cloud", conf.cloud.driver, conf).capabilities,
        )
    )


def application(
    parts: Core,
    use_cases: Services | None = None,
    observe: Callable[[str, str, int, float], None] | None = None,
) -> Any:
    """The WSGI application."""
    app = create_app(
        use_cases or services(parts),
        strategy(parts.conf),
        Enforcer(parts.conf),
        parts.conf,
        observe,
    )
    return protected(parts.conf, app)


def conductor(parts: Core) -> Conductor:
    """The conductor."""
    conf = parts.conf
    return Conductor(
        ConductorDeps(
            parts.store,
            parts.hints,
            parts.clock,
            parts.ids,
            conf,
            loader.load("cloud", conf.cloud.driver, conf),
            loader.load("logs", conf.logs.driver, conf),
            loader.load("objects", conf.artifacts.driver, conf),
            parts.name,
            _simulator(parts),
        )
    )


def _simulator(parts: Core) -> ProcessSimulator:
    """What-if simulations on the state of the moment, by the policy of the scheduler."""
    conf = parts.conf
    collector = _collector(conf, leads=False)
    return ProcessSimulator(
        parts.store,
        Gathering(
            lambda uow: collector.collect(uow).snapshot, policy_of(conf), conf.simulation.max_jobs
        ),
        Bounds(conf.simulation.time_limit_s, conf.simulation.memory_mib),
        own_program("gpuservice.cmd.what_if"),
        parts.clock.monotonic,
    )


def scheduler(parts: Core) -> Scheduler:
    """The scheduler."""
    conf = parts.conf
    url = coordination_url(conf.scheduler.coordination_url, conf.database.connection)
    leadership = Leadership(parts.store, SHARD, parts.name, url)
    settings = CommitSettings(conf.jobs.start_timeout_s, jobs_conf.ports(conf))
    return Scheduler(
        parts.store,
        parts.hints,
        parts.clock,
        conf,
        _collector(conf, leads=True),
        Committer(parts.store, parts.hints, parts.ids, SHARD, settings),
        Preempting(parts.store, parts.hints, parts.ids, SHARD),
        leadership,
    )


def _collector(conf: cfg.ConfigOpts, *, leads: bool) -> Collector:
    settings = CollectSettings(
        protected_s=conf.scheduler.min_runtime_s,
        half_life_s=conf.scheduler.usage_half_life_s,
        default_runtime_s=conf.jobs.default_max_runtime_s,
        leads=leads,
    )
    return Collector(quota_conf.defaults(conf), settings)
