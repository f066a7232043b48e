# SPDX-License-Identifier: Apache-2.0
"""Dual prices against values that were worked out by hand or published sizes of a real list."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from gpuservice.planner.cutting_stock import dual_prices, value_table

#: Fractions of the openb default list: milli-GPU -> requests.
OPENB = {
    50: 7, 110: 24, 140: 1, 160: 74, 220: 62, 230: 140, 270: 4, 290: 1, 320: 328, 330: 7,
    350: 6, 370: 47, 440: 2, 460: 128, 470: 750, 480: 19, 550: 72, 590: 75, 650: 253, 810: 1078,
}  # fmt: skip


def test_prices_of_a_real_list() -> None:
    prices = dict(zip(OPENB, dual_prices(list(OPENB), list(OPENB.values())), strict=True))

    assert prices[810] == pytest.approx(1.0)
    assert [prices[size] for size in (550, 590, 650)] == pytest.approx([2 / 3] * 3)
    assert [prices[size] for size in (460, 470, 480)] == pytest.approx([1 / 2] * 3)
    assert [prices[size] for size in (320, 330, 350, 370, 440)] == pytest.approx([1 / 3] * 5)
    assert [prices[size] for size in (230, 270, 290)] == pytest.approx([1 / 4] * 3)
    assert prices[220] == pytest.approx(1 / 12)
    assert [prices[size] for size in (50, 110, 140, 160)] == pytest.approx([0.0] * 4)
    # So many whole GPUs hold them at least, whatever the rule.
    assert sum(OPENB[size] * price for size, price in prices.items()) == pytest.approx(
        1964.58, abs=0.01
    )


@pytest.mark.parametrize(
    ("demand", "prices"),
    [
        ({500: 3}, {500: 0.5}),
        ({1000: 1}, {1000: 1.0}),
        ({400: 10}, {400: 0.5}),  # two to a GPU, 0.2 lost
        ({600: 5, 400: 1}, {600: 1.0, 400: 0.0}),  # the rest beside 0.6 is there anyway
        ({600: 1, 400: 50}, {600: 0.5, 400: 0.5}),  # a 0.4 takes half a GPU from another
        ({300: 7, 333: 7, 334: 7}, {300: 1 / 3, 333: 1 / 3, 334: 1 / 3}),
    ],
)
def test_prices_of_small_demands(demand: dict[int, int], prices: dict[int, float]) -> None:
    found = dual_prices(list(demand), list(demand.values()))

    assert dict(zip(demand, found, strict=True)) == pytest.approx(prices)


def test_no_demand_has_no_prices() -> None:
    assert dual_prices([], []).shape == (0,)
    assert not value_table([], np.zeros(0)).any()


def test_no_pattern_is_worth_more_than_the_gpu() -> None:
    generator = np.random.default_rng(7)
    for _ in range(60):
        sizes = sorted({int(size) for size in generator.integers(120, 1001, 6)})
        demand = generator.integers(1, 400, len(sizes))
        prices = dual_prices(sizes, list(demand))
        counts = product(*(range(1000 // size + 1) for size in sizes))
        worth = max(
            float(np.dot(pattern, prices)) for pattern in counts if np.dot(pattern, sizes) <= 1000
        )
        assert (prices >= 0).all()
        assert worth == pytest.approx(1.0)
        # By duality a bound below, and never under what is asked for.
        assert float(np.dot(demand, prices)) >= float(np.dot(demand, sizes)) / 1000 - 1e-9


def test_value_is_that_of_the_dearest_set_that_fits() -> None:
    table = value_table([230, 470], np.array([0.25, 0.5]))

    assert [table[room] for room in (0, 229, 230, 459, 460, 470, 699, 700, 940)] == pytest.approx(
        [0, 0, 0.25, 0.25, 0.5, 0.5, 0.75, 0.75, 1.0]
    )
    assert (np.diff(table) >= 0).all()
