# SPDX-License-Identifier: Apache-2.0
"""How objects and lists look on the wire: times, links, wrapping, paging."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from gpuservice.api import listing
from gpuservice.api.endpoint import Answer, Call
from gpuservice.domain.inventory import Row
from gpuservice.domain.ports_store import Page
from gpuservice.services.idempotency import Kept, Once

Fetch = Callable[[Page, bool], tuple[Sequence[Any], int | None]]


def time(value: datetime | None) -> str | None:
    """ISO 8601 in UTC."""
    return None if value is None else value.isoformat().replace("+00:00", "Z")


def common(row: Row, path: str) -> dict[str, Any]:
    """What every object has."""
    return {
        "id": row.id,
        "project_id": getattr(row, "project_id", None),
        "created_at": time(row.created_at),
        "updated_at": time(row.updated_at),
        "generation": row.generation,
        "links": [{"rel": "self", "href": f"/v1/{path}/{row.id}"}],
    }


def tagged(row: Any) -> dict[str, str]:
    """The ETag of an object."""
    return {"ETag": f'"{row.generation}"'}


def page_of(
    call: Call,
    nouns: str,
    fetch: Fetch,
    view: Callable[[Any], dict[str, Any]],
    key: Callable[[Any], str] = lambda item: str(item.id),
    cut: Callable[[], bool] = lambda: False,
) -> Answer:
    """One page of a list, with the link to the next.

    :param cut: whether the page that was fetched is shorter than asked for, with more behind it.
    """
    assert call.listing is not None  # rows with this verb have one
    wanted = listing.read(call.listing, call.query, call.caller.project_id, call.caller.sees_all)
    rows, total = fetch(wanted.page, wanted.with_count)
    body: dict[str, Any] = {nouns: [view(row) for row in rows], "links": []}
    if len(rows) == wanted.page.limit or cut():
        query = {**call.query, "marker": key(rows[-1])}
        body["links"].append({"rel": "next", "href": f"{call.path}?{urlencode(query)}"})
    if total is not None:
        body["count"] = total
    return Answer(200, body)


def once(
    call: Call, status: int, noun: str, path: str, view: Callable[[Any], dict[str, Any]]
) -> tuple[Once, Callable[[Any], Answer]]:
    """How a creating request keeps its answer, and gives it."""

    def render(created: Any) -> Kept:
        shown = view(created)
        headers = {
            "Location": f"{call.base_url.rstrip('/')}/v1/{path}/{shown['id']}",
            "ETag": f'"{shown["generation"]}"',
        }
        return status, {noun: shown}, headers

    def answer(created: Any) -> Answer:
        _, body, headers = render(created)
        return Answer(status, body, headers)

    return Once(call.idempotency, render), answer


def verb_of(body: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The verb of an action body and its details."""
    verb, details = next(iter(body.items()))
    return verb, details or {}
