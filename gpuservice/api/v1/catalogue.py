# SPDX-License-Identifier: Apache-2.0
"""GPU types, hosts, devices and flavors."""

from __future__ import annotations

from typing import Any

from gpuservice.api.endpoint import Answer, Call, Table
from gpuservice.api.listing import Listing
from gpuservice.api.schemas import catalogue as schemas
from gpuservice.api.schemas.pieces import listed, shown
from gpuservice.api.v1.shapes import common, once, page_of, tagged, time, verb_of
from gpuservice.domain.inventory import Device, Flavor, GpuType
from gpuservice.services.hosts import HostView

TABLE = Table()
_BY_NAME = (("name", "asc"),)


def gpu_type_view(row: GpuType) -> dict[str, Any]:
    """A GPU type as answered."""
    return {
        **common(row, "gpu-types"),
        "name": row.name,
        "vendor": row.vendor,
        "pci_ids": list(row.pci_ids),
        "memory_mib": row.memory_mib,
        "architecture": row.architecture,
        "interconnect": row.interconnect,
        "partitions": list(row.partitions),
        "resource_class": row.resource_class,
        "traits": list(row.traits),
    }


@TABLE.add(
    "GET",
    "/gpu-types",
    "gpu:gpu-types:list",
    200,
    answer=listed("gpu_types"),
    listing=Listing("gpu_types", {"name": "text", "vendor": "text"}, scoped=False),
)
def list_gpu_types(call: Call) -> Answer:
    """List GPU types."""
    service = call.services.gpu_types
    return page_of(
        call, "gpu_types", lambda page, count: service.page(call.caller, page, count), gpu_type_view
    )


@TABLE.add(
    "POST",
    "/gpu-types",
    "gpu:gpu-types:create",
    201,
    body=schemas.GPU_TYPE_CREATE,
    answer=shown("gpu_type"),
    idempotent=True,
)
def create_gpu_type(call: Call) -> Answer:
    """Create a GPU type."""
    keep, answer = once(call, 201, "gpu_type", "gpu-types", gpu_type_view)
    return answer(call.services.gpu_types.create(call.caller, call.body["gpu_type"], keep))


@TABLE.add("GET", "/gpu-types/<id>", "gpu:gpu-types:show", 200, answer=shown("gpu_type"))
def show_gpu_type(call: Call) -> Answer:
    """Show a GPU type."""
    row = call.services.gpu_types.show(call.caller, call.args["id"])
    return Answer(200, {"gpu_type": gpu_type_view(row)}, tagged(row))


@TABLE.add(
    "PATCH",
    "/gpu-types/<id>",
    "gpu:gpu-types:change",
    200,
    body=schemas.GPU_TYPE_PATCH,
    answer=shown("gpu_type"),
)
def change_gpu_type(call: Call) -> Answer:
    """Change a GPU type."""
    row = call.services.gpu_types.change(
        call.caller, call.args["id"], call.body["gpu_type"], call.generation()
    )
    return Answer(200, {"gpu_type": gpu_type_view(row)}, tagged(row))


@TABLE.add("DELETE", "/gpu-types/<id>", "gpu:gpu-types:delete", 204)
def delete_gpu_type(call: Call) -> Answer:
    """Delete a GPU type that nothing uses."""
    call.services.gpu_types.delete(call.caller, call.args["id"], call.generation())
    return Answer(204)


def host_view(view: HostView) -> dict[str, Any]:
    """A host as answered."""
    row = view.host
    return {
        **common(row, "hosts"),
        "name": row.name,
        "kind": row.kind,
        "state": row.state,
        "status": row.status,
        "status_reason": row.status_reason,
        "drain_deadline_at": time(row.drain_deadline_at),
        "rack": row.rack,
        "zone": row.zone,
        "link_domain": row.link_domain,
        "vcpus": row.vcpus,
        "memory_mib": row.memory_mib,
        "devices_total": view.devices_total,
        "devices_used": view.devices_used,
    }


@TABLE.add(
    "GET",
    "/hosts",
    "gpu:hosts:list",
    200,
    answer=listed("hosts"),
    listing=Listing(
        "hosts",
        {"name": "text", "state": "text", "status": "text", "kind": "text", "rack": "text"},
        scoped=False,
        default_sort=_BY_NAME,
    ),
)
def list_hosts(call: Call) -> Answer:
    """List hosts with the numbers of their devices."""
    service = call.services.hosts
    return page_of(
        call,
        "hosts",
        lambda page, count: service.page(call.caller, page, count),
        host_view,
        key=lambda view: str(view.host.id),
    )


@TABLE.add("GET", "/hosts/<id>", "gpu:hosts:show", 200, answer=shown("host"))
def show_host(call: Call) -> Answer:
    """Show a host."""
    view = call.services.hosts.show(call.caller, call.args["id"])
    return Answer(200, {"host": host_view(view)}, tagged(view.host))


@TABLE.add(
    "POST",
    "/hosts/<id>/action",
    "gpu:hosts:act",
    200,
    body=schemas.HOST_ACTION,
    answer=shown("host"),
)
def act_on_host(call: Call) -> Answer:
    """Cordon, drain, uncordon a host, or take it into maintenance."""
    verb, details = verb_of(call.body)
    view = call.services.hosts.act(
        call.caller, call.args["id"], verb, details.get("reason"), details.get("notice_s")
    )
    return Answer(200, {"host": host_view(view)}, tagged(view.host))


def device_view(row: Device) -> dict[str, Any]:
    """A device as answered."""
    return {
        **common(row, "devices"),
        "address": row.address,
        "gpu_type": row.gpu_type,
        "host_id": row.host_id,
        "numa_node": row.numa_node,
        "link_group": row.link_group,
        "mode": row.mode,
        "health": row.health,
        "health_reason": row.health_reason,
        "health_source": row.health_source,
        "memory_mib": row.memory_mib,
        "used_milli": row.used_milli,
        "allocated_to": row.node_id,
    }


@TABLE.add(
    "GET",
    "/devices",
    "gpu:devices:list",
    200,
    answer=listed("devices"),
    listing=Listing(
        "devices",
        {
            "host_id": "id",
            "gpu_type": "text",
            "health": "text",
            "node_id": "id",
            "used_milli": "integer",
        },
        sorts=("created_at", "address"),
        scoped=False,
    ),
)
def list_devices(call: Call) -> Answer:
    """List devices."""
    service = call.services.devices
    return page_of(
        call, "devices", lambda page, count: service.page(call.caller, page, count), device_view
    )


@TABLE.add("GET", "/devices/<id>", "gpu:devices:show", 200, answer=shown("device"))
def show_device(call: Call) -> Answer:
    """Show a device."""
    row = call.services.devices.show(call.caller, call.args["id"])
    return Answer(200, {"device": device_view(row)}, tagged(row))


@TABLE.add(
    "POST",
    "/devices/<id>/action",
    "gpu:devices:act",
    200,
    body=schemas.DEVICE_ACTION,
    answer=shown("device"),
)
def act_on_device(call: Call) -> Answer:
    """Quarantine a device, release it, or have it tested again."""
    verb, details = verb_of(call.body)
    row = call.services.devices.act(call.caller, call.args["id"], verb, details.get("reason"))
    return Answer(200, {"device": device_view(row)}, tagged(row))


def flavor_view(row: Flavor, call: Call) -> dict[str, Any]:
    """A flavor as answered; which projects it was given to is the operator's to know."""
    caller = call.caller
    projects = [one for one in row.projects if caller.is_admin or one == caller.project_id]
    return {
        **common(row, "flavors"),
        "name": row.name,
        "gpu_type": row.gpu_type,
        "gpu_count": row.gpu_count,
        "mode": row.mode,
        "partition": row.partition,
        "vcpus": row.vcpus,
        "memory_mib": row.memory_mib,
        "disk_gib": row.disk_gib,
        "numa_policy": row.numa_policy,
        "public": row.public,
        "projects": projects,
        "price_per_hour": row.price_per_hour,
        "status": row.status,
        "realised_as": row.realised_as,
    }


@TABLE.add(
    "GET",
    "/flavors",
    "gpu:flavors:list",
    200,
    answer=listed("flavors"),
    listing=Listing(
        "flavors",
        {"name": "text", "gpu_type": "text", "mode": "text", "status": "text"},
        scoped=False,
    ),
)
def list_flavors(call: Call) -> Answer:
    """List the flavors that the caller may use."""
    service = call.services.flavors
    return page_of(
        call,
        "flavors",
        lambda page, count: service.page(call.caller, page, count),
        lambda row: flavor_view(row, call),
    )


@TABLE.add(
    "POST",
    "/flavors",
    "gpu:flavors:create",
    201,
    body=schemas.FLAVOR_CREATE,
    answer=shown("flavor"),
    idempotent=True,
)
def create_flavor(call: Call) -> Answer:
    """Create a flavor."""
    keep, answer = once(call, 201, "flavor", "flavors", lambda row: flavor_view(row, call))
    return answer(call.services.flavors.create(call.caller, call.body["flavor"], keep))


@TABLE.add("GET", "/flavors/<id>", "gpu:flavors:show", 200, answer=shown("flavor"))
def show_flavor(call: Call) -> Answer:
    """Show a flavor."""
    row = call.services.flavors.show(call.caller, call.args["id"])
    return Answer(200, {"flavor": flavor_view(row, call)}, tagged(row))


@TABLE.add(
    "PATCH",
    "/flavors/<id>",
    "gpu:flavors:change",
    200,
    body=schemas.FLAVOR_PATCH,
    answer=shown("flavor"),
)
def change_flavor(call: Call) -> Answer:
    """Change name, access or price of a flavor."""
    row = call.services.flavors.change(
        call.caller, call.args["id"], call.body["flavor"], call.generation()
    )
    return Answer(200, {"flavor": flavor_view(row, call)}, tagged(row))


@TABLE.add("DELETE", "/flavors/<id>", "gpu:flavors:delete", 204)
def delete_flavor(call: Call) -> Answer:
    """Delete a flavor that no pool uses."""
    call.services.flavors.delete(call.caller, call.args["id"], call.generation())
    return Answer(204)


@TABLE.add("GET", "/flavors/<id>/capacity", "gpu:flavors:capacity", 200)
def show_capacity(call: Call) -> Answer:
    """See how many more nodes of a flavor fit now."""
    capacity = call.services.flavors.capacity(call.caller, call.args["id"])
    return Answer(200, {"capacity": {"nodes": capacity.nodes, "hosts": list(capacity.hosts)}})


@TABLE.add("POST", "/flavors/<id>/action", "gpu:flavors:act", 200, body=schemas.FLAVOR_ACTION)
def act_on_flavor(call: Call) -> Answer:
    """Bring the cloud's flavor in step; a cloud without flavors of its own never drifts."""
    row = call.services.flavors.show(call.caller, call.args["id"])
    return Answer(200, {"flavor": flavor_view(row, call), "differences": []})
