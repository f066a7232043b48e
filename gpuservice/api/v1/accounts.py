# SPDX-License-Identifier: Apache-2.0
"""Quotas, the caller's own limits, events."""

from __future__ import annotations

from typing import Any

from gpuservice.api.endpoint import Answer, Call, Table
from gpuservice.api.listing import Listing
from gpuservice.api.schemas import catalogue as schemas
from gpuservice.api.schemas.pieces import listed, text, whole
from gpuservice.api.v1.shapes import page_of, time
from gpuservice.domain.work import Event
from gpuservice.services.quotas import ProjectQuota

TABLE = Table()


def quota_view(quota: ProjectQuota) -> dict[str, Any]:
    """A project's quota as answered."""
    body: dict[str, Any] = {
        "project_id": quota.project_id,
        "limits": quota.limits,
        "usage": quota.usage,
    }
    if quota.free_now is not None:
        body["free_now"] = quota.free_now
    return body


@TABLE.add(
    "GET",
    "/quotas",
    "gpu:quotas:list",
    200,
    answer=listed("quotas"),
    query={"limit": whole(1, 1000), "marker": text(64, 1)},
)
def list_quotas(call: Call) -> Answer:
    """List the quotas of every project that has limits or use."""
    limit = int(call.query.get("limit", "100"))
    quotas = call.services.quotas.page(limit, call.query.get("marker"))
    links = []
    if len(quotas) == limit:
        links.append(
            {"rel": "next", "href": f"/v1/quotas?limit={limit}&marker={quotas[-1].project_id}"}
        )
    return Answer(200, {"quotas": [quota_view(one) for one in quotas], "links": links})


@TABLE.add("GET", "/quotas/<id>", "gpu:quotas:show", 200)
def show_quota(call: Call) -> Answer:
    """Show a project's limits and use."""
    return Answer(200, {"quota": quota_view(call.services.quotas.show(call.args["id"]))})


@TABLE.add("PATCH", "/quotas/<id>", "gpu:quotas:change", 200, body=schemas.QUOTA_PATCH)
def change_quota(call: Call) -> Answer:
    """Set limits of a project; null goes back to the default."""
    quota = call.services.quotas.change(call.caller, call.args["id"], call.body["quota"]["limits"])
    return Answer(200, {"quota": quota_view(quota)})


@TABLE.add("DELETE", "/quotas/<id>", "gpu:quotas:delete", 204)
def delete_quota(call: Call) -> Answer:
    """Go back to the defaults for a project."""
    call.services.quotas.delete(call.caller, call.args["id"])
    return Answer(204)


@TABLE.add("GET", "/limits", "gpu:limits:show", 200)
def show_limits(call: Call) -> Answer:
    """Show the own project's limits, use, and the GPUs free for it now."""
    return Answer(200, {"limits": quota_view(call.services.quotas.own(call.caller))})


def event_view(row: Event) -> dict[str, Any]:
    """An event as answered."""
    return {
        "id": row.id,
        "at": time(row.at),
        "project_id": row.project_id,
        "actor": row.actor,
        "request_id": row.request_id,
        "global_request_id": row.global_request_id,
        "action": row.action,
        "target_type": row.target_type,
        "target_id": row.target_id,
        "outcome": row.outcome,
        "reason": row.reason,
        "detail": row.detail,
    }


EVENT_LISTING = Listing(
    "events",
    {
        "target_type": "text",
        "target_id": "text",
        "action": "text",
        "outcome": "text",
        "request_id": "text",
        "actor": "text",
        "at": "time",
    },
    sorts=("at",),
    default_sort=(("at", "asc"),),
)


@TABLE.add("GET", "/events", "gpu:events:list", 200, answer=listed("events"), listing=EVENT_LISTING)
def list_events(call: Call) -> Answer:
    """List events of the project, in the order in which they were written."""
    service = call.services.events
    return page_of(
        call, "events", lambda page, count: service.page(call.caller, page, count), event_view
    )
