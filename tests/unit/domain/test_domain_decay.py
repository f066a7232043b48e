# SPDX-License-Identifier: Apache-2.0
"""What is past counts less: the closed form against the sum of its seconds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuservice.domain.decay import faded, worth


@given(st.integers(0, 500), st.integers(0, 500), st.integers(0, 1000), st.floats(50, 5000))
def test_it_is_the_sum_of_its_seconds(
    begin: int, length: int, later: int, half_life: float
) -> None:
    end = begin + length
    seen = end + later
    # Each second as if it were its middle.
    slowly = sum(faded(3.0, seen - (second + 0.5), half_life) for second in range(begin, end))
    assert worth(3.0, begin, end, seen, half_life) == pytest.approx(slowly, rel=1e-3, abs=1e-9)


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6))
def test_two_halves_are_the_whole(a: float, b: float, c: float, d: float) -> None:
    begin, middle, end, seen = sorted((a, b, c, d))
    halves = worth(1.0, begin, middle, seen, 1e5) + worth(1.0, middle, end, seen, 1e5)
    assert halves == pytest.approx(worth(1.0, begin, end, seen, 1e5), rel=1e-6, abs=1e-3)
    assert worth(1.0, end, end, seen, 1e5) == 0.0
