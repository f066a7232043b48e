# SPDX-License-Identifier: Apache-2.0
"""The service's own processes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from gpuservice.api.endpoint import Answer, Call, Table
from gpuservice.api.listing import Listing
from gpuservice.api.schemas import catalogue as schemas
from gpuservice.api.schemas.pieces import listed, shown
from gpuservice.api.v1.shapes import page_of, time
from gpuservice.domain.work import ServiceRecord

TABLE = Table()


def process_view(row: ServiceRecord, call: Call) -> dict[str, Any]:
    """One of the service's processes as answered."""
    alive = call.services.processes.deps.clock.now() - row.seen_at < timedelta(seconds=60)
    return {
        "id": row.id,
        "binary": row.binary,
        "host": row.host,
        "state": "up" if alive and row.ended_at is None else "down",
        "status": row.status,
        "last_seen_at": time(row.seen_at),
        "version": row.version,
        "links": [{"rel": "self", "href": f"/v1/services/{row.id}"}],
    }


@TABLE.add(
    "GET",
    "/services",
    "gpu:services:list",
    200,
    answer=listed("services"),
    listing=Listing(
        "services",
        {"binary": "text", "host": "text", "status": "text"},
        sorts=("binary", "host"),
        scoped=False,
        default_sort=(("binary", "asc"), ("host", "asc")),
    ),
)
def list_services(call: Call) -> Answer:
    """List the service's own processes."""
    service = call.services.processes
    return page_of(
        call,
        "services",
        lambda page, count: service.page(call.caller, page, count),
        lambda row: process_view(row, call),
    )


@TABLE.add("GET", "/services/<id>", "gpu:services:show", 200, answer=shown("service"))
def show_service(call: Call) -> Answer:
    """Show one of the service's own processes."""
    row = call.services.processes.show(call.caller, call.args["id"])
    return Answer(200, {"service": process_view(row, call)})


@TABLE.add(
    "PATCH",
    "/services/<id>",
    "gpu:services:change",
    200,
    body=schemas.SERVICE_PATCH,
    answer=shown("service"),
)
def change_service(call: Call) -> Answer:
    """Enable or disable one of the service's own processes."""
    status = call.body["service"]["status"]
    row = call.services.processes.change(call.caller, call.args["id"], status)
    return Answer(200, {"service": process_view(row, call)})
