# SPDX-License-Identifier: Apache-2.0
"""What-if simulations, one at a time in the whole service, each in a process of its own.

Who runs one holds a lease. A row that says running while nobody holds the lease was left by a
process that died: it is ended with a sentence, and the next one begins. A row that is gone was
deleted: its process is ended.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuservice.conductor.deps import Deps
from gpuservice.domain.errors import Busy, Invalid
from gpuservice.domain.ports_store import UnitOfWork, Where
from gpuservice.domain.simulations import Simulation, SimulationRun, SimulationStatus

LOG = logging.getLogger(__name__)

#: The lease: there is one.
_KIND, _IDENT = "simulation", "all"

LEFT = "The process that ran it ended before it was done; ask for it again."
STOPPED = "The service could not begin with it; ask for it again."


@dataclass(frozen=True, slots=True)
class _Hand:
    """What this process runs."""

    ident: str
    token: str
    run: SimulationRun


class Simulations:
    """Runs simulations, the oldest first."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._hand: _Hand | None = None

    def step(self) -> bool:
        """One look; whether the next one follows at once."""
        if self._deps.simulator is None:
            return False
        if self._hand is None:
            return self._begin()
        return self._look(self._hand)

    def close(self) -> None:
        """The process stops: what it runs waits again."""
        hand, self._hand = self._hand, None
        if hand is None:
            return
        hand.run.stop()
        waits = {"status": SimulationStatus.QUEUED, "progress": 0, "started_at": None}
        try:
            self._deps.store.write(lambda uow: self._let_go(uow, hand.token, hand.ident, waits))
        except Busy as busy:  # whoever takes the lease after it ends the row
            LOG.info("The simulation %s is left behind: %s", hand.ident, busy.detail)

    # -- begin

    def _begin(self) -> bool:
        if not self._deps.store.read(_open):
            return False
        taken = self._deps.store.write(self._take)
        if taken is None:
            return False
        simulation, token = taken
        try:
            assert self._deps.simulator is not None
            run = self._deps.simulator.start(simulation)
        except Invalid as error:
            self._fail(token, simulation.id, error.detail)
            return True
        except Exception:
            LOG.exception("The simulation %s cannot be begun", simulation.id)
            self._fail(token, simulation.id, STOPPED)
            return True
        self._hand = _Hand(simulation.id, token, run)
        return False

    def _take(self, uow: UnitOfWork) -> tuple[Simulation, str] | None:
        """The lease, and the oldest that waits; what others left is ended."""
        token = uow.claim(_KIND, _IDENT, self._deps.owner, self._deps.conf.conductor.claim_s)
        if token is None:
            return None
        for left in uow.simulations.find(Where("status", "eq", SimulationStatus.RUNNING)):
            uow.simulations.change(left.id, self._failed(uow, LEFT))
        waiting = uow.simulations.find(
            Where("status", "eq", SimulationStatus.QUEUED),
            order=(("created_at", "asc"), ("id", "asc")),
            limit=1,
            lock=True,
        )
        if not waiting:
            uow.unclaim(_KIND, _IDENT, token)
            return None
        uow.simulations.change(
            waiting[0].id, {"status": SimulationStatus.RUNNING, "started_at": uow.now()}
        )
        return waiting[0], token

    # -- while it runs

    def _look(self, hand: _Hand) -> bool:
        end = hand.run.end()
        if end is None:
            if not self._deps.store.write(lambda uow: self._hold(uow, hand)):
                hand.run.stop()
                self._hand = None
            return False
        self._hand = None
        if end.result is None:
            self._fail(hand.token, hand.ident, end.fault or LEFT)
            return True
        result = dict(end.result)

        def done(uow: UnitOfWork) -> None:
            values = {
                "status": SimulationStatus.SUCCEEDED,
                "progress": 100,
                "result": result,
                "ended_at": uow.now(),
            }
            self._let_go(uow, hand.token, hand.ident, values)

        self._deps.store.write(done)
        return True

    def _hold(self, uow: UnitOfWork, hand: _Hand) -> bool:
        """Renew the lease and say how far it is; False when it is not wanted any more, or not
        ours."""
        if not uow.renew(_KIND, _IDENT, hand.token, self._deps.conf.conductor.claim_s):
            return False
        row = uow.simulations.get(hand.ident)
        if row is None:
            uow.unclaim(_KIND, _IDENT, hand.token)
            return False
        if row.progress != hand.run.progress:
            uow.simulations.change(hand.ident, {"progress": hand.run.progress})
        return True

    def _fail(self, token: str, ident: str, why: str) -> None:
        self._deps.store.write(lambda uow: self._let_go(uow, token, ident, self._failed(uow, why)))

    @staticmethod
    def _failed(uow: UnitOfWork, why: str) -> dict[str, Any]:
        return {"status": SimulationStatus.FAILED, "status_reason": why, "ended_at": uow.now()}

    @staticmethod
    def _let_go(uow: UnitOfWork, token: str, ident: str, values: Mapping[str, Any]) -> None:
        """Write how it stands, if it is still ours and still there, and give the lease back."""
        if uow.holds(_KIND, _IDENT, token):
            uow.simulations.change(ident, values, Where("status", "eq", SimulationStatus.RUNNING))
            uow.unclaim(_KIND, _IDENT, token)


def _open(uow: UnitOfWork) -> bool:
    """Whether there is anything that waits or runs."""
    wanted = (SimulationStatus.QUEUED, SimulationStatus.RUNNING)
    return uow.simulations.count(Where("status", "in", wanted)) > 0
