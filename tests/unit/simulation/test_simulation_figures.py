# SPDX-License-Identifier: Apache-2.0
"""Statistics, occupancy, the timeline and the table of differences."""

from __future__ import annotations

import io

import pytest

from gpuservice.planner.snapshot import TaskPlacement
from gpuservice.simulation.cluster import from_spec
from gpuservice.simulation.comparison import compare
from gpuservice.simulation.faults import PlanFault
from gpuservice.simulation.occupancy import Occupancy
from gpuservice.simulation.report import number
from gpuservice.simulation.statistics import Spread, Waiting, score
from gpuservice.simulation.timeline import Timeline


def test_a_percentile_is_an_element() -> None:
    spread = Spread.of(range(10, 0, -1))
    assert (spread.mean, spread.p50, spread.p90, spread.p99, spread.max) == (5.5, 6, 10, 10, 10)
    assert Spread.of(range(100)).p90 == 90
    assert Spread.of([]).count == 0


def _waiting(mean: float, big: float) -> Waiting:
    return Waiting(mean, Spread.of([]), Spread.of([big]))


def test_the_score_is_half_mean_and_half_gangs() -> None:
    assert score(_waiting(8, 5), _waiting(10, 1), _waiting(1, 10)) == pytest.approx(0.65)
    assert score(_waiting(8, 5), _waiting(10, 1), _waiting(1, 0)) == 0.8


def _on(*devices: tuple[str, int], vcpus: int = 0) -> TaskPlacement:
    return TaskPlacement(0, devices[0][0].partition("/")[0], devices, vcpus)


def test_what_is_idle_and_where() -> None:
    held = Occupancy(from_spec("2x2").nodes)
    held.begin(10.0)
    whole, share = [_on(("n0000/0", 1000))], [_on(("n0000/1", 300))]
    assert held.take("a", whole) == 1000
    assert held.take("b", share) == 300
    held.advance(20.0, True)
    assert (held.used, held.free) == (1300, 2700)
    assert (held.idle.used, held.idle.waiting) == (13000, 27000)
    assert (held.idle.nodes, held.idle.devices) == (7000, 7000)
    held.give("a", whole)
    held.give("b", share)
    held.node_ready("n0001", False)
    held.advance(30.0, False)
    assert held.free == 2000
    assert (held.idle.ready, held.idle.used, held.idle.nodes) == (60000, 13000, 7000)


@pytest.mark.parametrize("second", [("n0000/0", 1), ("n0000/1", 1001)])
def test_no_device_is_given_twice(second: tuple[str, int]) -> None:
    held = Occupancy(from_spec("1x2").nodes)
    held.take("a", [_on(("n0000/0", 1000))])
    with pytest.raises(PlanFault, match="b was given more than there is on n0000"):
        held.take("b", [_on(second)])


def test_no_node_that_is_away_is_given() -> None:
    held = Occupancy(from_spec("1x2").nodes)
    held.node_ready("n0000", False)
    with pytest.raises(PlanFault, match="a node that is away"):
        held.take("a", [_on(("n0000/0", 1000))])


def test_the_timeline_has_one_row_a_moment() -> None:
    timeline = Timeline()
    timeline.hold("p", 1000)
    timeline.note(0.0, 1, 1, 7000)
    timeline.hold("q", 2000)
    timeline.note(0.0, 0, 2, 5000)
    timeline.hold("p", -1000)
    timeline.note(2.5, 0, 1, 6000)
    text = io.StringIO()
    timeline.write(text)
    assert text.getvalue() == (
        "time_s,waiting,running,used_milli,free_milli,used_milli:p,used_milli:q\n"
        "0,0,2,3000,5000,1000,2000\n"
        "2.5,0,1,2000,6000,0,2000\n"
    )


def test_differences() -> None:
    assert compare({"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"c": 2}}) == "No difference."
    table = compare({"a": 1, "b": {"c": 2}, "old": 1}, {"a": 1, "b": {"c": 3}, "new": 0})
    assert [line.split() for line in table.splitlines()] == [
        ["figure", "first", "second", "difference", "ratio"],
        ["b.c", "2", "3", "+1", "1.500"],
        ["old", "1", "-", "-", "-"],
        ["new", "-", "0", "-", "-"],
    ]


def test_numbers_are_to_the_microsecond() -> None:
    assert [number(one) for one in (1.0, 0.1 + 0.2, 1e-9)] == [1, 0.3, 0]
    assert isinstance(number(5.0), int)
