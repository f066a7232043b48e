# SPDX-License-Identifier: Apache-2.0
"""What the cloud has, as rows: GPU types, hosts, devices. Visible is not usable until healthy."""

from __future__ import annotations

from typing import Any

from gpuservice.conductor.deps import CAUSE, Deps
from gpuservice.domain.happenings import happening
from gpuservice.domain.health import BY_CLOUD, after_cloud
from gpuservice.domain.inventory import Device, GpuType, Host
from gpuservice.domain.ports import CloudDevice, CloudHost, Hint
from gpuservice.domain.ports_store import UnitOfWork, Where


class Inventory:
    """Keeps hosts and devices in step with the cloud driver."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    def step(self) -> None:
        """One look at the cloud, by one conductor at a time; what changed is written with an
        event."""
        seconds = self._deps.conf.conductor.claim_s
        token = self._deps.store.write(
            lambda uow: uow.claim("inventory", "cloud", self._deps.owner, seconds)
        )
        if token is None:
            return
        try:
            self._look()
        finally:
            self._deps.store.write(lambda uow: uow.unclaim("inventory", "cloud", token))

    def _look(self) -> None:
        types = self._deps.cloud.gpu_types()
        hosts = self._deps.cloud.inventory()
        changed = self._deps.store.write(lambda uow: self._write(uow, types, hosts))
        if changed:
            self._deps.hints.send(Hint("jobs"))
            self._deps.hints.send(Hint("pools"))

    def _write(self, uow: UnitOfWork, types: list[dict[str, Any]], hosts: list[CloudHost]) -> int:
        known = {row.name for row in uow.gpu_types.find()}
        for body in types:
            if body["name"] not in known:
                values: dict[str, Any] = {
                    key: tuple(value) if isinstance(value, list) else value
                    for key, value in body.items()
                }
                uow.gpu_types.add(
                    GpuType(
                        id=self._deps.ids.new(),
                        created_at=uow.now(),
                        updated_at=uow.now(),
                        **values,
                    )
                )
        rows = {row.name: row for row in uow.hosts.find()}
        changed = 0
        for host in hosts:
            row = rows.pop(host.name, None)
            changed += self._host(uow, host, row)
        for gone in rows.values():
            if gone.state != "down":
                uow.hosts.change(gone.id, {"state": "down"})
                self._event(uow, "host.down", "host", gone.id, "not seen in the cloud")
                changed += 1
        return changed

    def _host(self, uow: UnitOfWork, host: CloudHost, row: Host | None) -> int:
        facts: dict[str, Any] = {
            "kind": host.kind,
            "state": "up" if host.up else "down",
            "rack": host.rack,
            "zone": host.zone,
            "link_domain": host.link_domain,
            "vcpus": host.vcpus,
            "memory_mib": host.memory_mib,
            "address": host.address,
        }
        if row is None:
            row = Host(
                id=self._deps.ids.new(),
                created_at=uow.now(),
                updated_at=uow.now(),
                name=host.name,
                **facts,
            )
            uow.hosts.add(row)
            uow.devices.add_many([self._device(uow, row.id, one) for one in host.devices])
            self._event(uow, "host.found", "host", row.id, None)
            return 1
        changed = 0
        differs = {key: value for key, value in facts.items() if getattr(row, key) != value}
        if differs:
            uow.hosts.change(row.id, differs)
            self._event(uow, "host.changed", "host", row.id, ", ".join(sorted(differs)))
            changed += 1
        return changed + self._devices(uow, row.id, host)

    def _devices(self, uow: UnitOfWork, host_id: str, host: CloudHost) -> int:
        rows = {row.address: row for row in uow.devices.find(Where("host_id", "eq", host_id))}
        changed = 0
        for device in host.devices:
            row = rows.pop(device.address, None)
            if row is None:
                uow.devices.add(self._device(uow, host_id, device))
                changed += 1
                continue
            values = after_cloud(row, device.healthy, device.health_reason)
            if values is not None:
                uow.devices.change(row.id, values)
                if values["health"] != row.health:
                    action = f"device.{values['health']}"
                    self._event(uow, action, "device", row.id, device.health_reason)
                changed += 1
        for row in rows.values():
            if row.health not in ("lost", "quarantined"):
                uow.devices.change(
                    row.id,
                    {
                        "health": "lost",
                        "health_reason": "not seen in the cloud",
                        "health_source": BY_CLOUD,
                    },
                )
                self._event(uow, "device.lost", "device", row.id, "not seen in the cloud")
                changed += 1
        return changed

    def _device(self, uow: UnitOfWork, host_id: str, one: CloudDevice) -> Device:
        return Device(
            id=self._deps.ids.new(),
            created_at=uow.now(),
            updated_at=uow.now(),
            host_id=host_id,
            address=one.address,
            gpu_type=one.gpu_type,
            memory_mib=one.memory_mib,
            ordinal=one.ordinal,
            uuid=one.uuid,
            vendor=one.vendor,
            product_id=one.product_id,
            numa_node=one.numa_node,
            link_group=one.link_group,
            health="healthy" if one.healthy else "unhealthy",
            health_reason=one.health_reason,
            health_source=None if one.healthy else BY_CLOUD,
        )

    def _event(
        self, uow: UnitOfWork, action: str, noun: str, ident: str, reason: str | None
    ) -> None:
        uow.events.add(
            happening(
                self._deps.ids,
                uow.now(),
                CAUSE,
                action,
                noun,
                ident,
                project_id=None,
                detail={} if reason is None else {"message": reason},
            )
        )
