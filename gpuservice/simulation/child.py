# SPDX-License-Identifier: Apache-2.0
"""A what-if in a process of its own: bounded in time and memory, and ended when it is not wanted.

The material goes to the process as a file that has no name; what it says comes back line by line
(``{"progress": 42}``, at last ``{"result": {...}}`` or ``{"fault": "..."}``). A process whose
parent is gone ends with the next line that it writes.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

from gpuservice.domain.errors import Invalid
from gpuservice.domain.ports_store import Store
from gpuservice.domain.simulations import Simulation, SimulationEnd
from gpuservice.simulation.faults import InputFault
from gpuservice.simulation.gathering import Gathering

#: A result is no longer than this (characters).
_LONGEST = 8 << 20


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one simulation: seconds and MiB."""

    time_limit_s: int
    memory_mib: int


class ProcessSimulator:
    """The port ``Simulator``.

    :param program: the arguments of a program that reads the material and answers in lines; the
        bounds are added.
    """

    def __init__(
        self,
        store: Store,
        gathering: Gathering,
        bounds: Bounds,
        program: tuple[str, ...],
        monotonic: Callable[[], float],
    ) -> None:
        self._store, self._gathering, self._bounds = store, gathering, bounds
        self._program, self._monotonic = program, monotonic

    def start(self, simulation: Simulation) -> ChildRun:
        """Read what it works on, and begin.

        :raises Invalid: with a sentence when that cannot be simulated.
        """
        try:
            material = self._store.read(lambda uow: self._gathering.material(uow, simulation))
        except InputFault as fault:
            raise Invalid(_sentence(fault)) from fault
        with tempfile.TemporaryFile() as file:
            pickle.dump(material, file, protocol=pickle.HIGHEST_PROTOCOL)
            file.seek(0)
            process = subprocess.Popen(
                [*self._program, str(self._bounds.time_limit_s), str(self._bounds.memory_mib)],
                stdin=file,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )
        return ChildRun(process, self._bounds, self._monotonic)


class ChildRun:
    """The port ``SimulationRun``: one process and what it has said."""

    def __init__(
        self, process: subprocess.Popen[bytes], bounds: Bounds, monotonic: Callable[[], float]
    ) -> None:
        self._process, self._bounds, self._monotonic = process, bounds, monotonic
        self._until = monotonic() + bounds.time_limit_s
        self._progress = 0
        self._said: SimulationEnd | None = None
        assert process.stdout is not None
        self._reader = threading.Thread(
            target=self._read, args=(process.stdout,), name="simulation", daemon=True
        )
        self._reader.start()

    @property
    def progress(self) -> int:
        """Percent."""
        return self._progress

    def end(self) -> SimulationEnd | None:
        """How it ended; None while it goes on. What runs too long is ended."""
        if self._process.poll() is None:
            if self._monotonic() < self._until:
                return None
            self.stop()
            return SimulationEnd(
                None,
                f"It was not done after {self._bounds.time_limit_s} s; simulate less "
                "([simulation] time_limit_s).",
            )
        self._reader.join(10)
        if self._said is not None:
            return self._said
        return SimulationEnd(
            None,
            f"Its process ended without a result (status {self._process.returncode}); "
            f"it may have needed more than {self._bounds.memory_mib} MiB of memory.",
        )

    def stop(self) -> None:
        """End it now."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join(10)

    def _read(self, lines: IO[bytes]) -> None:
        with lines:
            while line := lines.readline(_LONGEST):
                try:
                    self._hear(json.loads(line))
                except (ValueError, TypeError, ArithmeticError):
                    return  # no line of ours

    def _hear(self, said: dict[str, Any]) -> None:
        if "progress" in said:
            self._progress = max(0, min(100, int(said["progress"])))
        elif "result" in said:
            self._said = SimulationEnd(said["result"])
        elif "fault" in said:
            self._said = SimulationEnd(None, str(said["fault"])[:1000])


def _sentence(fault: InputFault) -> str:
    text = str(fault)
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def own_program(module: str) -> tuple[str, ...]:
    """How a module of ours is started with the interpreter of this process."""
    return (sys.executable, "-m", module)
