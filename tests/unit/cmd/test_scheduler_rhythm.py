# SPDX-License-Identifier: Apache-2.0
"""When the scheduler's loop makes its passes: at once after a quiet time, else after a pause."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from oslo_config import cfg

from gpuservice.conf import opts
from gpuservice.domain.ports import Hint
from gpuservice.scheduler import loop


class Machine:
    """Clock, wake-ups and the event that stops the loop, all told beforehand.

    :param moments: of each pass: when it began and ended, and when the next wake-up came.
    """

    def __init__(self, moments: list[tuple[float, float, float]]) -> None:
        self.passes = len(moments)
        self.pauses: list[float] = []
        self._times: Iterator[float] = iter([at for three in moments for at in three])
        self._wake: Callable[[Hint], None] = lambda _: None

    def monotonic(self) -> float:
        return next(self._times)

    def subscribe(self, kinds: Any, listener: Callable[[Hint], None]) -> Callable[[], None]:
        self._wake = listener
        return lambda: None

    def step(self) -> bool:
        self._wake(Hint("jobs"))
        return self.fruitful

    def is_set(self) -> bool:
        return len(self.pauses) == self.passes

    def wait(self, seconds: float) -> bool:
        self.pauses.append(round(seconds, 3))
        return False

    def stop(self) -> None: ...

    fruitful = True


def pauses(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    conf = cfg.ConfigOpts()
    opts.register_all(conf)
    conf([], project="gpuservice", default_config_files=[], default_config_dirs=[])
    conf.set_override("min_interval_s", 0.5, "scheduler")
    nothing: Any = None
    fake: Any = machine
    made = loop.Scheduler(nothing, fake, fake, conf, nothing, nothing, nothing, fake)
    monkeypatch.setattr(made, "step", machine.step)
    made.run(fake)
    return machine.pauses


def test_after_a_quiet_time_a_pass_comes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes with the first wake-up shares it."""
    assert pauses(Machine([(0.0, 0.01, 0.7)]), monkeypatch) == [loop.GATHER_S]


def test_wake_ups_in_quick_succession_share_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    found = pauses(
        Machine([(0.0, 0.01, 0.02), (0.51, 0.52, 0.92), (1.02, 1.03, 1.53)]), monkeypatch
    )
    assert found == [0.49, 0.1, loop.GATHER_S]


def test_long_passes_that_start_nothing_take_half_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine([(0.0, 2.0, 2.5)])
    machine.fruitful = False
    assert pauses(machine, monkeypatch) == [1.5]
    assert pauses(Machine([(0.0, 2.0, 2.1)]), monkeypatch) == [0.4]
