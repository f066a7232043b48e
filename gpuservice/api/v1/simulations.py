# SPDX-License-Identifier: Apache-2.0
"""What-if simulations: the operator's."""

from __future__ import annotations

from typing import Any

from gpuservice.api.endpoint import Answer, Call, Table
from gpuservice.api.listing import Listing
from gpuservice.api.schemas import simulations as schemas
from gpuservice.api.schemas.pieces import listed, shown
from gpuservice.api.v1.shapes import common, once, page_of, tagged, time
from gpuservice.domain.simulations import Simulation

TABLE = Table()


def brief_view(row: Simulation) -> dict[str, Any]:
    """A simulation as a list has it: without its result."""
    return {
        **common(row, "simulations"),
        "name": row.name,
        "user_id": row.user_id,
        "status": row.status,
        "status_reason": row.status_reason,
        "progress": row.progress,
        "from": row.request.get("from", "now"),
        "history": row.request.get("history"),
        "workload_rows": len(row.workload),
        "assumed_runtime_s": row.request.get("assumed_runtime_s"),
        "change": row.request.get("change") or {},
        "started_at": time(row.started_at),
        "ended_at": time(row.ended_at),
    }


def simulation_view(row: Simulation) -> dict[str, Any]:
    """A simulation as answered."""
    return {**brief_view(row), "result": row.result}


@TABLE.add(
    "GET",
    "/simulations",
    "gpu:simulations:list",
    200,
    answer=listed("simulations"),
    listing=Listing(
        "simulations",
        {"name": "text", "status": "text"},
        sorts=("created_at", "name", "status"),
        scoped=False,
    ),
)
def list_simulations(call: Call) -> Answer:
    """List what-if simulations, without their results."""
    service = call.services.simulations
    return page_of(
        call, "simulations", lambda page, count: service.page(call.caller, page, count), brief_view
    )


@TABLE.add(
    "POST",
    "/simulations",
    "gpu:simulations:create",
    202,
    body=schemas.SIMULATION_CREATE,
    answer=shown("simulation"),
    idempotent=True,
    max_body=schemas.MAX_BODY,
)
def create_simulation(call: Call) -> Answer:
    """Ask what a change would do to a workload."""
    keep, answer = once(call, 202, "simulation", "simulations", simulation_view)
    return answer(call.services.simulations.create(call.caller, call.body["simulation"], keep))


@TABLE.add("GET", "/simulations/<id>", "gpu:simulations:show", 200, answer=shown("simulation"))
def show_simulation(call: Call) -> Answer:
    """Show a what-if simulation with its result."""
    row = call.services.simulations.show(call.caller, call.args["id"])
    return Answer(200, {"simulation": simulation_view(row)}, tagged(row))


@TABLE.add("DELETE", "/simulations/<id>", "gpu:simulations:delete", 204)
def delete_simulation(call: Call) -> Answer:
    """Delete a what-if simulation; one that runs is cancelled."""
    call.services.simulations.delete(call.caller, call.args["id"], call.generation())
    return Answer(204)
