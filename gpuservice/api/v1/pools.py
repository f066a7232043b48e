# SPDX-License-Identifier: Apache-2.0
"""Pools, nodes, queues."""

from __future__ import annotations

from typing import Any

from gpuservice.api.endpoint import Answer, Call, Table
from gpuservice.api.listing import Listing
from gpuservice.api.schemas import pools as schemas
from gpuservice.api.schemas.pieces import listed, shown
from gpuservice.api.v1.catalogue import device_view
from gpuservice.api.v1.shapes import common, once, page_of, tagged, time, verb_of
from gpuservice.domain.health import HEALTHY, UNHEALTHY, fault_of
from gpuservice.domain.inventory import Device, Node, Pool
from gpuservice.domain.isolation import reasons_unproved
from gpuservice.domain.work import Queue
from gpuservice.services.pools import NodeView

TABLE = Table()


def pool_view(row: Pool) -> dict[str, Any]:
    """A pool as answered."""
    return {
        **common(row, "pools"),
        "name": row.name,
        "flavor": row.flavor_id,
        "min_nodes": row.min_nodes,
        "max_nodes": row.max_nodes,
        "target_nodes": row.target_nodes,
        "wanted_nodes": row.size,
        "autoscale": row.autoscale,
        "idle_timeout_s": row.idle_timeout_s,
        "on_shortage": row.on_shortage,
        "image": row.image,
        "networks": list(row.networks),
        "key_name": row.key_name,
        "engine": row.engine,
        "engine_options": row.engine_options,
        "shared_with": list(row.shared_with),
        "isolation": row.isolation,
        "reservation": row.reservation,
        "status": row.status,
        "fault": row.fault,
        "waiting": row.waiting,
        "credential_status": row.credential_status,
    }


@TABLE.add(
    "GET",
    "/pools",
    "gpu:pools:list",
    200,
    answer=listed("pools"),
    listing=Listing(
        "pools", {"name": "text", "status": "text", "flavor_id": "id", "engine": "text"}
    ),
)
def list_pools(call: Call) -> Answer:
    """List the project's pools."""
    service = call.services.pools
    return page_of(
        call, "pools", lambda page, count: service.page(call.caller, page, count), pool_view
    )


@TABLE.add(
    "POST",
    "/pools",
    "gpu:pools:create",
    202,
    body=schemas.POOL_CREATE,
    answer=shown("pool"),
    idempotent=True,
)
def create_pool(call: Call) -> Answer:
    """Create a pool; its nodes are built from then on."""
    keep, answer = once(call, 202, "pool", "pools", pool_view)
    return answer(call.services.pools.create(call.caller, call.body["pool"], keep))


@TABLE.add("GET", "/pools/<id>", "gpu:pools:show", 200, answer=shown("pool"))
def show_pool(call: Call) -> Answer:
    """Show a pool."""
    row = call.services.pools.show(call.caller, call.args["id"])
    return Answer(200, {"pool": pool_view(row)}, tagged(row))


@TABLE.add(
    "PATCH", "/pools/<id>", "gpu:pools:change", 200, body=schemas.POOL_PATCH, answer=shown("pool")
)
def change_pool(call: Call) -> Answer:
    """Change a pool's size, idle time or sharing."""
    row = call.services.pools.change(
        call.caller, call.args["id"], call.body["pool"], call.generation()
    )
    return Answer(200, {"pool": pool_view(row)}, tagged(row))


@TABLE.add("DELETE", "/pools/<id>", "gpu:pools:delete", 202, answer=shown("pool"))
def delete_pool(call: Call) -> Answer:
    """Delete a pool with its nodes."""
    row = call.services.pools.delete(call.caller, call.args["id"], call.generation())
    return Answer(202, {"pool": pool_view(row)})


@TABLE.add("GET", "/pools/<id>/explain", "gpu:pools:explain", 200)
def explain_pool(call: Call) -> Answer:
    """See why a pool is not (yet) what it should be."""
    return Answer(200, {"explanation": call.services.pools.explain(call.caller, call.args["id"])})


def _device_of(node: Node, device: Device) -> dict[str, Any]:
    """A device as its node shows it: as bad as the worst that is said of it."""
    shown = device_view(device)
    fault = fault_of(node, device)
    if fault is not None and device.health == HEALTHY:
        shown |= {"health": UNHEALTHY, "health_reason": fault}
    names = ("id", "address", "gpu_type", "health", "health_reason", "used_milli")
    return {name: shown[name] for name in names}


def node_view(view: NodeView) -> dict[str, Any]:
    """A node as answered."""
    row = view.node
    return {
        **common(row, "nodes"),
        "name": row.name,
        "pool_id": row.pool_id,
        "server_id": row.server_id,
        "baremetal_id": row.baremetal_id,
        "addresses": [row.address] if row.address else [],
        "status": row.status,
        "status_reason": row.status_reason,
        "drain_deadline_at": time(row.drain_deadline_at),
        "devices": [_device_of(row, device) for device in view.devices],
        "vcpus": row.vcpus,
        "memory_mib": row.memory_mib,
        "live_tasks": row.live_tasks,
        "epoch": row.epoch,
        "last_seen_at": time(row.last_seen_at),
        "fault": row.fault,
        "unproved": list(reasons_unproved(row.capabilities)) if row.capabilities else None,
    }


@TABLE.add(
    "GET",
    "/nodes",
    "gpu:nodes:list",
    200,
    answer=listed("nodes"),
    listing=Listing("nodes", {"name": "text", "status": "text", "pool_id": "id"}),
)
def list_nodes(call: Call) -> Answer:
    """List the nodes of the project's pools."""
    service = call.services.nodes
    return page_of(
        call,
        "nodes",
        lambda page, count: service.page(call.caller, page, count),
        node_view,
        key=lambda view: str(view.node.id),
    )


@TABLE.add("GET", "/nodes/<id>", "gpu:nodes:show", 200, answer=shown("node"))
def show_node(call: Call) -> Answer:
    """Show a node."""
    view = call.services.nodes.show(call.caller, call.args["id"])
    return Answer(200, {"node": node_view(view)}, tagged(view.node))


@TABLE.add(
    "POST",
    "/nodes/<id>/action",
    "gpu:nodes:act",
    200,
    body=schemas.NODE_ACTION,
    answer=shown("node"),
)
def act_on_node(call: Call) -> Answer:
    """Cordon, uncordon, drain or repair a node."""
    verb, details = verb_of(call.body)
    view = call.services.nodes.act(call.caller, call.args["id"], verb, details.get("reason"))
    return Answer(200, {"node": node_view(view)}, tagged(view.node))


def queue_view(row: Queue, call: Call) -> dict[str, Any]:
    """A queue as answered; who else may use it and by which pools is the operator's to know."""
    own = row.project_id == call.caller.project_id or call.caller.is_admin
    return {
        **common(row, "queues"),
        "name": row.name,
        "projects": list(row.projects) if own else [],
        "pools": list(row.pool_ids) if own else [],
        "status": row.status,
        "weight": row.weight,
        "cohort": row.cohort,
        "nominal": row.nominal,
        "borrowing_limit": row.borrowing_limit,
        "lending_limit": row.lending_limit,
        "preemption": row.preemption,
        "max_priority": row.max_priority,
        "placement": row.placement,
        "kinds": row.kinds,
    }


@TABLE.add(
    "GET",
    "/queues",
    "gpu:queues:list",
    200,
    answer=listed("queues"),
    listing=Listing("queues", {"name": "text", "status": "text"}),
)
def list_queues(call: Call) -> Answer:
    """List the queues that the caller may use."""
    service = call.services.queues
    return page_of(
        call,
        "queues",
        lambda page, count: service.page(call.caller, page, count),
        lambda row: queue_view(row, call),
    )


@TABLE.add(
    "POST",
    "/queues",
    "gpu:queues:create",
    201,
    body=schemas.QUEUE_CREATE,
    answer=shown("queue"),
    idempotent=True,
)
def create_queue(call: Call) -> Answer:
    """Create a queue."""
    keep, answer = once(call, 201, "queue", "queues", lambda row: queue_view(row, call))
    return answer(call.services.queues.create(call.caller, call.body["queue"], keep))


@TABLE.add("GET", "/queues/<id>", "gpu:queues:show", 200, answer=shown("queue"))
def show_queue(call: Call) -> Answer:
    """Show a queue."""
    row = call.services.queues.show(call.caller, call.args["id"])
    return Answer(200, {"queue": queue_view(row, call)}, tagged(row))


@TABLE.add(
    "PATCH",
    "/queues/<id>",
    "gpu:queues:change",
    200,
    body=schemas.QUEUE_PATCH,
    answer=shown("queue"),
)
def change_queue(call: Call) -> Answer:
    """Change a queue."""
    row = call.services.queues.change(
        call.caller, call.args["id"], call.body["queue"], call.generation()
    )
    return Answer(200, {"queue": queue_view(row, call)}, tagged(row))


@TABLE.add("DELETE", "/queues/<id>", "gpu:queues:delete", 204)
def delete_queue(call: Call) -> Answer:
    """Delete a queue that has no live jobs."""
    call.services.queues.delete(call.caller, call.args["id"], call.generation())
    return Answer(204)
