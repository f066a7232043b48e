# SPDX-License-Identifier: Apache-2.0
"""A study that misses a floor says which, and ends so that nobody takes it for a success."""

from __future__ import annotations

import pytest

from benchmarks.scheduling import sharing, waiting
from benchmarks.scheduling.floors import at_least, at_most, status


def test_floors_that_hold(capsys: pytest.CaptureFixture[str]) -> None:
    assert status([at_most("wait", 2.0, 2.0), at_least("share", 0.5, 0.5)]) == 0
    told = capsys.readouterr().err.splitlines()
    assert told == [
        "floor held   wait: 2 (at most 2)",
        "floor held   share: 0.5 (at least 0.5)",
    ]


def test_one_that_is_missed(capsys: pytest.CaptureFixture[str]) -> None:
    assert status([at_most("wait", 2.5, 2.0), at_least("share", 0.5, 0.5)]) == 1
    assert "floor MISSED wait: 2.5 (at most 2)" in capsys.readouterr().err


def test_shares_farther_from_their_part_than_they_may_be() -> None:
    shares = dict.fromkeys(sharing.WEIGHTS, 1.0)
    found = {"shares": {"good": shares, "bad": {**shares, next(iter(shares)): 0.94}}}
    assert [floor.held for floor in sharing.floors(found)] == [True, False]


def test_waiting_names_floors_and_leaves_aims_out() -> None:
    reached = {"score 0.95": False, "aim: score 0.8": False, "no promise slips": True}
    run = {"default": {"ratios": {"score": 0.96}, "reached": reached}}
    assert waiting.missed({"cluster02.csv.gz@14": run}) == [
        "cluster02.csv.gz@14, default: score 0.95"
    ]
