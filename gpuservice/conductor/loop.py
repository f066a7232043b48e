# SPDX-License-Identifier: Apache-2.0
"""The conductor: its pipelines in threads, woken by hints, never depending on them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta

from gpuservice.conductor.attempts import Attempts
from gpuservice.conductor.deps import Deps
from gpuservice.conductor.drains import Drains
from gpuservice.conductor.inventory import Inventory
from gpuservice.conductor.leases import Leases
from gpuservice.conductor.leftovers import Leftovers
from gpuservice.conductor.line import Line
from gpuservice.conductor.nodes import Nodes
from gpuservice.conductor.pools import Pools
from gpuservice.conductor.simulations import Simulations
from gpuservice.conductor.start_trouble import StartTrouble
from gpuservice.domain.errors import Busy
from gpuservice.domain.liveness import FORGOTTEN_S
from gpuservice.domain.ports import Hint
from gpuservice.domain.ports_store import UnitOfWork, Where

LOG = logging.getLogger(__name__)

#: After a wake-up a pipeline waits at least and at most so long (seconds) for others to join it.
GATHER_S = (0.03, 0.1)


class Conductor:
    """All pipelines of one process."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._trouble = StartTrouble(deps)
        self._attempts = Attempts(deps, self._trouble)
        self._nodes = Nodes(deps)
        self._pools = Pools(deps)
        self._leases = Leases(deps)
        self._drains = Drains(deps)
        self._inventory = Inventory(deps)
        self._leftovers = Leftovers(deps)
        self._line = Line(deps)
        self._simulations = Simulations(deps)

    def step(self) -> None:
        """One full pass, in order: for tests and small tools."""
        self._survey()
        self._leases.step()
        self._pools.step()
        self._nodes.step()
        self._drains.step()
        self._trouble.step()
        while self._attempts.step():
            continue
        self._line.step()
        self._simulations.step()

    def run(self, stop: threading.Event) -> None:
        """Work until told to stop."""
        conf = self._deps.conf.conductor
        loops = (
            ("attempts", ("attempts",), conf.interval_s, self._busy_attempts),
            ("nodes", ("pools",), conf.interval_s, self._infrastructure),
            ("leases", (), conf.interval_s, self._watch),
            ("inventory", (), float(conf.inventory_interval_s), self._survey),
            ("simulations", ("simulations",), conf.interval_s, self._simulate),
        )
        threads = [
            threading.Thread(target=self._loop, args=(stop, *loop), name=f"conductor-{loop[0]}")
            for loop in loops
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._nodes.close()
        self._simulations.close()

    def _busy_attempts(self) -> None:
        """Whole batches one after another; what came meanwhile has sent its own wake-up."""
        while self._attempts.step() >= self._deps.conf.conductor.batch:
            continue

    def _infrastructure(self) -> None:
        """Pools and nodes take turns until neither has anything to do; a slow cloud does not
        keep the others waiting."""
        patience = self._deps.conf.conductor.interval_s
        for _ in range(10):
            if not self._pools.step() + self._nodes.step(patience):
                return

    def _simulate(self) -> None:
        """One after another."""
        while self._simulations.step():
            continue

    def _survey(self) -> None:
        """What the cloud has, what should not be there, and what is too old to keep."""
        self._inventory.step()
        self._leftovers.step()
        self._purge()

    def _watch(self) -> None:
        self._drains.step()
        self._trouble.step()
        self._leases.step()
        self._line.step()

    def _purge(self) -> None:
        hours = self._deps.conf.api.idempotency_hours

        def work(uow: UnitOfWork) -> None:
            uow.purge_idempotency(uow.now() - timedelta(hours=hours))
            forgotten = uow.now() - timedelta(seconds=FORGOTTEN_S)
            uow.services.remove_where(Where("seen_at", "lt", forgotten))

        self._deps.store.write(work)

    def _loop(
        self,
        stop: threading.Event,
        name: str,
        kinds: tuple[str, ...],
        interval: float,
        step: Callable[[], object],
    ) -> None:
        wake = threading.Event()

        def on_hint(hint: Hint) -> None:
            wake.set()

        unsubscribe = self._deps.hints.subscribe(kinds, on_hint)
        try:
            while not stop.is_set():
                wake.clear()
                began = self._deps.clock.monotonic()
                try:
                    step()
                except Busy as busy:
                    LOG.warning("The %s pipeline waits: %s", name, busy.detail)
                except Exception:
                    LOG.exception("The %s pipeline failed; it goes on with the next pass", name)
                took = self._deps.clock.monotonic() - began
                if _wait(stop, wake, interval):
                    # What wakes it in the next moment shares the pass; under load passes are
                    # long, and the moment with them: fewer passes that do more each.
                    stop.wait(min(max(GATHER_S[0], took / 2), GATHER_S[1]))
        finally:
            unsubscribe()


def _wait(stop: threading.Event, wake: threading.Event, seconds: float) -> bool:
    """Until woken (True), stopped, or time is up."""
    left = seconds
    while left > 0 and not stop.is_set():
        if wake.wait(min(left, 0.2)):
            return True
        left -= 0.2
    return False
