# SPDX-License-Identifier: Apache-2.0
"""Times as clients write them and as plans reckon them: UTC, within what every database keeps."""

from __future__ import annotations

from datetime import UTC, datetime

#: Time zones and databases move a moment by hours; so far from the ends nothing overflows.
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(9999, 1, 1, tzinfo=UTC)
_LATEST_S = LATEST.timestamp()


def parsed(text: str, *, zone: bool = False) -> datetime:
    """An ISO 8601 time as UTC; one without a zone is taken as UTC unless it must have one.

    :raises ValueError: when it is none, or lies outside ``EARLIEST`` to ``LATEST``.
    """
    value = datetime.fromisoformat(text)
    if value.tzinfo is None:
        if zone:
            raise ValueError("no time zone")
        value = value.replace(tzinfo=UTC)
    # Compared before it is converted: the conversion overflows at the ends of the calendar.
    if not EARLIEST <= value <= LATEST:
        raise ValueError(f"not between {EARLIEST.year} and {LATEST.year}")
    return value.astimezone(UTC)


def shown(value: datetime) -> str:
    """ISO 8601 in UTC, as answers have it."""
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def reckoned(seconds: float | None) -> datetime | None:
    """A moment of a plan (seconds since 1970); None for never and for what no calendar has."""
    if seconds is None or not 0 <= seconds < _LATEST_S:
        return None
    return datetime.fromtimestamp(seconds, UTC)
