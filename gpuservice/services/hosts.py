# SPDX-License-Identifier: Apache-2.0
"""Hosts: what the operator says of them, told to the nodes on them at once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from gpuservice.domain.context import Caller, cause_of
from gpuservice.domain.happenings import status_change
from gpuservice.domain.host_orders import HEARS, order_of
from gpuservice.domain.inventory import Host
from gpuservice.domain.ports import Hint
from gpuservice.domain.ports_store import Page, UnitOfWork, Where
from gpuservice.domain.states import NODE
from gpuservice.services.catalogue import Catalogue
from gpuservice.services.visibility import found

#: What an action makes of a host's status.
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
