# SPDX-License-Identifier: Apache-2.0
"""Cohorts of queues: the operator's."""

from __future__ import annotations

from typing import Any

from gpuservice.api.endpoint import Answer, Call, Table
from gpuservice.api.listing import Listing
from gpuservice.api.schemas import pools as schemas
from gpuservice.api.schemas.pieces import listed, shown
from gpuservice.api.v1.shapes import common, once, page_of, tagged
from gpuservice.domain.work import Cohort

TABLE = Table()


def cohort_view(row: Cohort) -> dict[str, Any]:
    """A cohort as answered."""
    return {**common(row, "cohorts"), "name": row.name, "projects": list(row.projects)}


@TABLE.add(
    "GET",
    "/cohorts",
    "gpu:cohorts:list",
    200,
    answer=listed("cohorts"),
    listing=Listing("cohorts", {"name": "text"}, scoped=False),
)
def list_cohorts(call: Call) -> Answer:
    """List cohorts."""
    service = call.services.cohorts
    return page_of(
        call, "cohorts", lambda page, count: service.page(call.caller, page, count), cohort_view
    )


@TABLE.add(
    "POST",
    "/cohorts",
    "gpu:cohorts:create",
    201,
    body=schemas.COHORT_CREATE,
    answer=shown("cohort"),
    idempotent=True,
)
def create_cohort(call: Call) -> Answer:
    """Create a cohort."""
    keep, answer = once(call, 201, "cohort", "cohorts", cohort_view)
    return answer(call.services.cohorts.create(call.caller, call.body["cohort"], keep))


@TABLE.add("GET", "/cohorts/<id>", "gpu:cohorts:show", 200, answer=shown("cohort"))
def show_cohort(call: Call) -> Answer:
    """Show a cohort."""
    row = call.services.cohorts.show(call.caller, call.args["id"])
    return Answer(200, {"cohort": cohort_view(row)}, tagged(row))


@TABLE.add(
    "PATCH",
    "/cohorts/<id>",
    "gpu:cohorts:change",
    200,
    body=schemas.COHORT_PATCH,
    answer=shown("cohort"),
)
def change_cohort(call: Call) -> Answer:
    """Change a cohort's name or whose queues it takes."""
    row = call.services.cohorts.change(
        call.caller, call.args["id"], call.body["cohort"], call.generation()
    )
    return Answer(200, {"cohort": cohort_view(row)}, tagged(row))


@TABLE.add("DELETE", "/cohorts/<id>", "gpu:cohorts:delete", 204)
def delete_cohort(call: Call) -> Answer:
    """Delete a cohort that has no queues."""
    call.services.cohorts.delete(call.caller, call.args["id"], call.generation())
    return Answer(204)
