# SPDX-License-Identifier: Apache-2.0
"""Lists: limit, marker, sort, filters and their reading into ``domain.ports.Page``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuservice.domain import moments
from gpuservice.domain.errors import Forbidden, Invalid
from gpuservice.domain.ports_store import Page, Where

MAX_LIMIT = 1000
_BOUND = 255
_LABEL = re.compile(r"^labels\.[A-Za-z0-9][A-Za-z0-9._/-]{0,62}\Z")


@dataclass(frozen=True, slots=True)
class Listing:
    """What a list may be filtered and sorted by.

    ``filters``: field -> kind (text, id, integer, boolean, time). ``scoped``: rows belong to
    projects. ``shared``: rows of no project are everybody's.
    """

    noun: str
    filters: Mapping[str, str]
    sorts: tuple[str, ...] = ("created_at", "name")
    scoped: bool = True
    shared: bool = False
    labels: bool = False
    default_sort: tuple[tuple[str, str], ...] = (("created_at", "asc"),)

    def names(self) -> dict[str, dict[str, Any]]:
        """The query parameters as schemas (for OpenAPI)."""
        known: dict[str, dict[str, Any]] = {
            "limit": {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": 100},
            "marker": {"type": "string", "maxLength": 64},
            "sort": {"type": "string", "maxLength": _BOUND},
            "with_count": {"type": "string", "enum": ["true", "false"]},
        }
        if self.scoped:
            known["all_projects"] = {"type": "string", "enum": ["true", "false"]}
            known["project_id"] = {"type": "string", "maxLength": 64}
        for name in self.filters:
            known[name] = {"type": "string", "maxLength": _BOUND}
        return known


@dataclass(frozen=True, slots=True)
class Wanted:
    """A list as asked for."""

    page: Page
    with_count: bool


def read(listing: Listing, query: Mapping[str, str], project_id: str, sees_all: bool) -> Wanted:
    """The page that a query asks for, within what the caller may see.

    :raises Invalid: for an unknown parameter or a wrong value.
    """
    names = listing.names()
    where: list[Where] = []
    labels: dict[str, str] = {}
    for name, value in query.items():
        if len(value) > _BOUND:
            raise Invalid(f"{name} is longer than {_BOUND} characters.", pointer=f"/{name}")
        if listing.labels and _LABEL.match(name):
            labels[name.removeprefix("labels.")] = value
        elif name not in names:
            allowed = ", ".join(sorted(names))
            raise Invalid(
                f"The query parameter {name[:80]!r} is unknown; allowed: {allowed}.",
                pointer=f"/{name}",
            )
        elif name in listing.filters:
            where.append(_filter(name, value, listing.filters[name]))
    if listing.scoped:
        where.extend(_scope(listing, query, project_id, sees_all))
    page = Page(
        tuple(where),
        _sort(listing, query.get("sort")),
        _limit(query.get("limit")),
        query.get("marker"),
        labels,
    )
    return Wanted(page, _flag(query, "with_count"))


def _scope(
    listing: Listing, query: Mapping[str, str], project_id: str, sees_all: bool
) -> list[Where]:
    everyone = _flag(query, "all_projects")
    asked = query.get("project_id")
    if (everyone or (asked is not None and asked != project_id)) and not sees_all:
        raise Forbidden("Policy does not allow to see other projects.")
    if asked is not None:
        return [Where("project_id", "eq", asked)]
    return [] if everyone else [Where("project_id", "eq", project_id)]


def _flag(query: Mapping[str, str], name: str) -> bool:
    value = query.get(name, "false")
    if value not in ("true", "false"):
        raise Invalid(f"{name} is {value[:80]!r}; allowed: true, false.", pointer=f"/{name}")
    return value == "true"


def _limit(text: str | None) -> int:
    if text is None:
        return 100
    if not re.fullmatch(r"\d{1,4}", text, re.ASCII) or not 1 <= int(text) <= MAX_LIMIT:
        raise Invalid(f"limit is {text[:80]!r}; it must be 1 to {MAX_LIMIT}.", pointer="/limit")
    return int(text)


def _sort(listing: Listing, text: str | None) -> tuple[tuple[str, str], ...]:
    if text is None:
        return listing.default_sort
    keys: list[tuple[str, str]] = []
    for part in text.split(","):
        key, _, way = part.partition(":")
        if key not in (*listing.sorts, "id") or way not in ("", "asc", "desc"):
            raise Invalid(
                f"sort is {text[:80]!r}; allowed are {', '.join(listing.sorts)}, "
                "each with :asc or :desc.",
                pointer="/sort",
            )
        if key in [known for known, _ in keys]:
            raise Invalid(f"sort names {key} twice.", pointer="/sort")
        keys.append((key, way or "asc"))
    return tuple(keys)


def _filter(name: str, text: str, kind: str) -> Where:
    for prefix, op in (("in:", "in"), ("neq:", "ne")):
        if text.startswith(prefix):
            values = (
                text.removeprefix(prefix).split(",") if op == "in" else [text.removeprefix(prefix)]
            )
            read_values = [_value(name, one, kind) for one in values]
            return Where(name, op, read_values if op == "in" else read_values[0])
    return Where(name, "eq", _value(name, text, kind))


def _value(name: str, text: str, kind: str) -> Any:
    if kind == "integer":
        if not re.fullmatch(r"-?\d{1,9}", text, re.ASCII):
            raise Invalid(
                f"{name} is {text[:80]!r}; it must be a whole number.", pointer=f"/{name}"
            )
        return int(text)
    if kind == "boolean":
        if text not in ("true", "false"):
            raise Invalid(f"{name} is {text[:80]!r}; allowed: true, false.", pointer=f"/{name}")
        return text == "true"
    if kind == "time":
        return _time(name, text)
    return text


def _time(name: str, text: str) -> datetime:
    try:
        return moments.parsed(text)
    except ValueError as error:
        raise Invalid(
            f"{name} is {text[:80]!r}; it must be an ISO 8601 time from 1970 to 9998.",
            pointer=f"/{name}",
        ) from error
