# SPDX-License-Identifier: Apache-2.0
"""GPU types, hosts, devices and the service's own processes: what the operator keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from gpuservice.domain.context import Caller, cause_of
from gpuservice.domain.errors import Conflict, NotFound, UnknownReference
from gpuservice.domain.happenings import happening, status_change
from gpuservice.domain.host_orders import HEARS, order_of
from gpuservice.domain.inventory import Device, Flavor, GpuType, Host
from gpuservice.domain.ports import Hint
from gpuservice.domain.ports_store import Page, Repository, UnitOfWork, Where
from gpuservice.domain.states import NODE
from gpuservice.domain.work import ServiceRecord
from gpuservice.services.deps import Deps
from gpuservice.services.idempotency import Once
from gpuservice.services.visibility import check_generation, found, visible_page

T = TypeVar("T")
_TUPLES = ("pci_ids", "partitions", "traits", "projects")


def frozen(values: Mapping[str, Any]) -> dict[str, Any]:
    """Lists of a body as the tuples of a row."""
    return {name: tuple(value) if name in _TUPLES else value for name, value in values.items()}


class Catalogue:
    """What all nouns here share."""

    def __init__(self, deps: Deps) -> None:
        self.deps = deps

    def _page(self, repository: str, page: Page, count: bool) -> tuple[list[Any], int | None]:
        def work(uow: UnitOfWork) -> tuple[list[Any], int | None]:
            rows: Repository[Any] = getattr(uow, repository)
            total = rows.count(*page.where, labels=page.labels) if count else None
            return rows.page(page), total

        return self.deps.store.read(work)

    def _note(
        self,
        uow: UnitOfWork,
        caller: Caller,
        action: str,
        noun: str,
        ident: str,
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        uow.events.add(
            happening(
                self.deps.ids,
                uow.now(),
                cause_of(caller),
                action,
                noun,
                ident,
                project_id=None,
                detail=detail,
            )
        )


class GpuTypes(Catalogue):
    """GPU types."""

    def page(self, caller: Caller, page: Page, count: bool) -> tuple[list[GpuType], int | None]:
        """One page."""
        return self._page("gpu_types", page, count)

    def show(self, caller: Caller, ident: str) -> GpuType:
        """One."""
        return self.deps.store.read(lambda uow: found(uow.gpu_types, ident, "GPU type"))

    def create(self, caller: Caller, body: Mapping[str, Any], once: Once) -> GpuType:
        """Make one."""

        def work(uow: UnitOfWork) -> GpuType:
            once.begin(uow)
            row = GpuType(
                id=self.deps.ids.new(), created_at=uow.now(), updated_at=uow.now(), **frozen(body)
            )
            uow.gpu_types.add(row)
            self._note(uow, caller, "gpu_type.create", "gpu_type", row.id)
            once.keep(uow, row)
            return row

        return self.deps.store.write(work)

    def change(
        self, caller: Caller, ident: str, patch: Mapping[str, Any], generation: int | None
    ) -> GpuType:
        """Change one."""

        def work(uow: UnitOfWork) -> GpuType:
            row = found(uow.gpu_types, ident, "GPU type", lock=True)
            check_generation(row, generation)
            uow.gpu_types.change(ident, frozen(patch), edit=True)
            self._note(uow, caller, "gpu_type.change", "gpu_type", ident, {"fields": sorted(patch)})
            return found(uow.gpu_types, ident, "GPU type")

        return self.deps.store.write(work)

    def delete(self, caller: Caller, ident: str, generation: int | None) -> None:
        """Delete one that no flavor or device uses."""

        def work(uow: UnitOfWork) -> None:
            row = found(uow.gpu_types, ident, "GPU type", lock=True)
            check_generation(row, generation)
            used = uow.flavors.count(Where("gpu_type", "eq", row.name))
            used += uow.devices.count(Where("gpu_type", "eq", row.name))
            if used:
                raise Conflict(f"The GPU type {row.name!r} is in use by {used} flavors or devices.")
            uow.gpu_types.remove(ident)
            self._note(uow, caller, "gpu_type.delete", "gpu_type", ident)

        self.deps.store.write(work)


#: host action -> (status, device statuses it applies to nodes)
_HOST_STATUS = {
    "cordon": "cordoned",
    "drain": "draining",
    "maintenance": "maintenance",
    "uncordon": "enabled",
}


@dataclass(frozen=True, slots=True)
class HostView:
    """A host with the numbers of its devices."""

    host: Host
    devices_total: int
    devices_used: int


class Hosts(Catalogue):
    """Hosts."""

    def page(self, caller: Caller, page: Page, count: bool) -> tuple[list[HostView], int | None]:
        """One page, with device numbers (two queries, whatever the page's size)."""

        def work(uow: UnitOfWork) -> tuple[list[HostView], int | None]:
            total = uow.hosts.count(*page.where) if count else None
            return self._views(uow, uow.hosts.page(page)), total

        return self.deps.store.read(work)

    def show(self, caller: Caller, ident: str) -> HostView:
        """One."""
        return self.deps.store.read(
            lambda uow: self._views(uow, [found(uow.hosts, ident, "host")])[0]
        )

    def act(
        self,
        caller: Caller,
        ident: str,
        action: str,
        reason: str | None,
        notice_s: int | None = None,
    ) -> HostView:
        """cordon, drain, maintenance or uncordon; the nodes there take no new work from now on.

        :param notice_s: how long what runs there may go on (drain); None: to its end.
        """

        def work(uow: UnitOfWork) -> HostView:
            host = found(uow.hosts, ident, "host", lock=True)
            status = _HOST_STATUS[action]
            if host.status != status or notice_s is not None:
                deadline = None if notice_s is None else uow.now() + timedelta(seconds=notice_s)
                values = {"status": status, "status_reason": reason, "drain_deadline_at": deadline}
                uow.hosts.change(ident, values, edit=True)
                detail = {"from": host.status, "to": status}
                if notice_s is not None:
                    detail["notice_s"] = str(notice_s)
                self._note(uow, caller, f"host.{action}", "host", ident, detail)
                self._tell_nodes(uow, caller, found(uow.hosts, ident, "host"))
            return self._views(uow, [found(uow.hosts, ident, "host")])[0]

        view = self.deps.store.write(work)
        self.deps.hints.send(Hint("pools"))
        self.deps.hints.send(Hint("jobs"))
        return view

    def _tell_nodes(self, uow: UnitOfWork, caller: Caller, host: Host) -> None:
        """What the host's status means for the nodes that serve there."""
        nodes = uow.nodes.find(
            Where("host_id", "eq", host.id),
            Where("status", "in", HEARS),
            lock=True,
            order=(("id", "asc"),),
        )
        for node in nodes:
            order = order_of(host, node)
            if order is None:
                continue
            values = dict(order.values)
            if order.event is not None:
                values["status"] = NODE.after(node.status, order.event)
                values["status_changed_at"] = uow.now()
                uow.events.add(
                    status_change(
                        self.deps.ids,
                        uow.now(),
                        cause_of(caller),
                        "node",
                        order.event,
                        node.id,
                        node.status,
                        values["status"],
                        project_id=node.project_id,
                        reason=values.get("status_reason"),
                    )
                )
            uow.nodes.change(node.id, values)

    @staticmethod
    def _views(uow: UnitOfWork, hosts: list[Host]) -> list[HostView]:
        numbers: dict[str, list[int]] = {host.id: [0, 0] for host in hosts}
        if hosts:
            for device in uow.devices.find(Where("host_id", "in", list(numbers))):
                numbers[device.host_id][0] += 1
                numbers[device.host_id][1] += device.used_milli > 0
        return [HostView(host, *numbers[host.id]) for host in hosts]


_DEVICE_HEALTH = {"quarantine": "quarantined", "release": "healthy", "retest": "unknown"}


class Devices(Catalogue):
    """Devices."""

    def page(self, caller: Caller, page: Page, count: bool) -> tuple[list[Device], int | None]:
        """One page."""
        return self._page("devices", page, count)

    def show(self, caller: Caller, ident: str) -> Device:
        """One."""
        return self.deps.store.read(lambda uow: found(uow.devices, ident, "device"))

    def act(self, caller: Caller, ident: str, action: str, reason: str | None) -> Device:
        """quarantine, release or retest."""

        def work(uow: UnitOfWork) -> Device:
            device = found(uow.devices, ident, "device", lock=True)
            health = _DEVICE_HEALTH[action]
            if device.health != health:
                uow.devices.change(ident, {"health": health, "health_reason": reason})
                self._note(
                    uow,
                    caller,
                    f"device.{action}",
                    "device",
                    ident,
                    {"from": device.health, "to": health},
                )
            return found(uow.devices, ident, "device")

        device = self.deps.store.write(work)
        self.deps.hints.send(Hint("jobs"))
        return device


class Processes(Catalogue):
    """gpuservice's own processes."""

    def page(
        self, caller: Caller, page: Page, count: bool
    ) -> tuple[list[ServiceRecord], int | None]:
        """One page."""
        return self._page("services", page, count)

    def show(self, caller: Caller, ident: str) -> ServiceRecord:
        """One."""
        return self.deps.store.read(lambda uow: found(uow.services, ident, "service"))

    def change(self, caller: Caller, ident: str, status: str) -> ServiceRecord:
        """Enable or disable."""

        def work(uow: UnitOfWork) -> ServiceRecord:
            found(uow.services, ident, "service", lock=True)
            uow.services.change(ident, {"status": status})
            self._note(uow, caller, "service.change", "service", ident, {"status": status})
            return found(uow.services, ident, "service")

        return self.deps.store.write(work)


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many nodes of a flavor fit now; ``hosts`` says where, ``reason`` why not more."""

    nodes: int
    hosts: tuple[dict[str, Any], ...]


class Flavors(Catalogue):
    """Flavors."""

    def page(self, caller: Caller, page: Page, count: bool) -> tuple[list[Flavor], int | None]:
        """One page of those the caller may use."""
        return self.deps.store.read(
            lambda uow: visible_page(uow.flavors, page, lambda row: usable(caller, row), count)
        )

    def show(self, caller: Caller, ident: str) -> Flavor:
        """One that the caller may use."""
        return self.deps.store.read(lambda uow: self._seen(uow, caller, ident))

    def create(self, caller: Caller, body: Mapping[str, Any], once: Once) -> Flavor:
        """Make one of a known GPU type."""

        def work(uow: UnitOfWork) -> Flavor:
            once.begin(uow)
            self._check_type(uow, body)
            row = Flavor(
                id=self.deps.ids.new(), created_at=uow.now(), updated_at=uow.now(), **frozen(body)
            )
            uow.flavors.add(row)
            self._note(uow, caller, "flavor.create", "flavor", row.id)
            once.keep(uow, row)
            return row

        return self.deps.store.write(work)

    def change(
        self, caller: Caller, ident: str, patch: Mapping[str, Any], generation: int | None
    ) -> Flavor:
        """Change price, access or name; what nodes are made of is fixed."""

        def work(uow: UnitOfWork) -> Flavor:
            row = found(uow.flavors, ident, "flavor", lock=True)
            check_generation(row, generation)
            uow.flavors.change(ident, frozen(patch), edit=True)
            self._note(uow, caller, "flavor.change", "flavor", ident, {"fields": sorted(patch)})
            return found(uow.flavors, ident, "flavor")

        return self.deps.store.write(work)

    def delete(self, caller: Caller, ident: str, generation: int | None) -> None:
        """Delete one that no pool uses."""

        def work(uow: UnitOfWork) -> None:
            row = found(uow.flavors, ident, "flavor", lock=True)
            check_generation(row, generation)
            used = uow.pools.count(
                Where("flavor_id", "eq", ident), Where("status", "ne", "deleted")
            )
            if used:
                raise Conflict(f"The flavor {row.name!r} is in use by {used} pools.")
            uow.flavors.remove(ident)
            self._note(uow, caller, "flavor.delete", "flavor", ident)

        self.deps.store.write(work)

    def capacity(self, caller: Caller, ident: str) -> Capacity:
        """How many nodes of it fit now, by what the inventory knows."""

        def work(uow: UnitOfWork) -> Capacity:
            flavor = self._seen(uow, caller, ident)
            hosts = {
                host.id: host
                for host in uow.hosts.find(
                    Where("state", "eq", "up"), Where("status", "eq", "enabled")
                )
            }
            free: dict[str, int] = {}
            for device in uow.devices.find(
                Where("gpu_type", "eq", flavor.gpu_type),
                Where("node_id", "null"),
                Where("health", "eq", "healthy"),
            ):
                if device.host_id in hosts:
                    free[device.host_id] = free.get(device.host_id, 0) + 1
            fits = {host: count // max(flavor.gpu_count, 1) for host, count in free.items()}
            named = tuple(
                {"host": hosts[host].name, "nodes": count}
                for host, count in sorted(fits.items())
                if count and caller.is_admin
            )
            return Capacity(sum(fits.values()), named)

        return self.deps.store.read(work)

    @staticmethod
    def _check_type(uow: UnitOfWork, body: Mapping[str, Any]) -> None:
        if not uow.gpu_types.count(Where("name", "eq", body["gpu_type"])):
            raise UnknownReference(
                f"There is no GPU type {body['gpu_type']!r}.", pointer="/flavor/gpu_type"
            )

    @staticmethod
    def _seen(uow: UnitOfWork, caller: Caller, ident: str) -> Flavor:
        row = uow.flavors.get(ident)
        if row is None or not usable(caller, row):
            raise NotFound.of("flavor", ident)
        return row


def usable(caller: Caller, flavor: Flavor) -> bool:
    """Whether a flavor exists for the caller."""
    return flavor.public or caller.is_admin or caller.project_id in flavor.projects
