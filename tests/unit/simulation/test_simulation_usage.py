# SPDX-License-Identifier: Apache-2.0
"""Decayed usage: the same value however often it is looked at."""

from __future__ import annotations

from math import log

import pytest

from gpuservice.simulation.usage import DecayedUsage

KEY = ("q", "p", "u")


def test_what_is_held_adds_up_and_halves() -> None:
    usage = DecayedUsage(100.0)
    usage.hold(KEY, 1000, 0.0)
    usage.hold(KEY, -1000, 50.0)
    at_end = usage.at(50.0)[KEY]
    assert at_end == pytest.approx(1000 * 100 / log(2) * (1 - 0.5**0.5))
    assert usage.at(150.0)[KEY] == pytest.approx(at_end / 2)


def test_looking_changes_nothing() -> None:
    often, once = DecayedUsage(100.0), DecayedUsage(100.0)
    for usage in (often, once):
        usage.hold(KEY, 3000, 7.0)
    for second in range(8, 200):
        often.at(float(second)).get(KEY)
    assert often.at(200.0)[KEY] == once.at(200.0)[KEY]


def test_what_never_held_anything_is_not_there() -> None:
    assert dict(DecayedUsage(1.0).at(5.0)) == {}
