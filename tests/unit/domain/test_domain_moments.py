# SPDX-License-Identifier: Apache-2.0
"""Times of clients and of plans."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gpuservice.domain import moments
from gpuservice.scheduler.explaining import iso


@pytest.mark.parametrize(
    ("text", "hour"),
    [
        ("2026-05-06T07:08:09Z", 7),
        ("2026-05-06T07:08:09", 7),
        ("2026-05-06T07:08:09+02:00", 5),
        ("2026-05-06", 0),
    ],
)
def test_times_are_utc(text: str, hour: int) -> None:
    found = moments.parsed(text)
    assert (found.tzinfo, found.hour) == (UTC, hour)


@pytest.mark.parametrize(
    "text",
    [
        "0001-01-01T00:00:00+14:00",
        "0001-01-01T00:00:00",
        "1969-12-31T23:59:59Z",
        "9999-12-31T23:59:59-14:00",
        "9999-12-31T23:59:59",
        "tomorrow",
        "",
    ],
)
def test_what_no_database_keeps_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        moments.parsed(text)


@pytest.mark.parametrize("seconds", [None, float("inf"), float("-inf"), float("nan"), -1.0, 1e12])
def test_a_plan_may_reach_beyond_the_calendar(seconds: float | None) -> None:
    """A thousand jobs of ten years each, one after another, are planned too."""
    assert moments.reckoned(seconds) is None
    assert iso(seconds) is None


def test_a_plan_in_the_calendar() -> None:
    at = datetime(2026, 5, 6, 7, 8, 9, tzinfo=UTC)
    assert moments.reckoned(at.timestamp()) == at
    assert iso(at.timestamp() + 0.5) == "2026-05-06T07:08:09Z"
