# SPDX-License-Identifier: Apache-2.0
"""The proxy's side of what-if simulations."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from openstack import proxy

from gpuservice.clients.sdk.v1._waiting import until_ended
from gpuservice.clients.sdk.v1.simulation import Simulation


class SimulationsMixin(proxy.Proxy):
    """What-if simulations, an administrator's."""

    def simulations(self, **query: Any) -> Generator[Simulation, None, None]:
        """Generate the simulations, without their results."""
        return self._list(Simulation, **query)

    def find_simulation(self, name_or_id: str, ignore_missing: bool = True) -> Simulation | None:
        """The simulation with a name or an id, with its result, or None."""
        found = Simulation.find(self, name_or_id, ignore_missing)
        return None if found is None else self.get_simulation(found)

    def get_simulation(self, simulation: str | Simulation) -> Simulation:
        """One simulation by its id, with its result."""
        return self._get(Simulation, simulation)

    def create_simulation(self, **attrs: Any) -> Simulation:
        """Ask what a change would do to a workload."""
        return self._create(Simulation, **attrs)

    def delete_simulation(
        self,
        simulation: str | Simulation,
        ignore_missing: bool = True,
        if_match: str | None = None,
    ) -> None:
        """Delete a simulation; one that runs is cancelled."""
        more: dict[str, Any] = {} if if_match is None else {"if_match": if_match}
        self._delete(Simulation, simulation, ignore_missing, **more)

    def wait_for_simulation(
        self,
        simulation: str | Simulation,
        *,
        timeout_s: float | None = None,
        interval_s: float = 1.0,
        seen: Callable[[Simulation], None] | None = None,
    ) -> Simulation:
        """The simulation once it has ended.

        :param seen: called with the simulation after each look.
        :raises openstack.exceptions.ResourceTimeout: after ``timeout_s``.
        """
        ident = self._get_resource(Simulation, simulation).id
        return until_ended(
            lambda: self.get_simulation(ident), "simulation", timeout_s, interval_s, seen
        )
