# SPDX-License-Identifier: Apache-2.0
"""GPU types, devices, flavors and the service's own processes: what the operator keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from gpuservice.domain.context import Caller, cause_of
from gpuservice.domain.errors import Conflict, Invalid, NotFound, UnknownReference
from gpuservice.domain.happenings import happening
from gpuservice.domain.health import BY_OPERATOR, HEALTHY, UNKNOWN
from gpuservice.domain.inventory import Device, Flavor, GpuType
from gpuservice.domain.ports import Hint
from gpuservice.domain.ports_store import Page, Repository, UnitOfWork, Where
from gpuservice.domain.states import POOL_COUNTED
from gpuservice.domain.work import ServiceRecord
from gpuservice.services.deps import Deps
from gpuservice.services.idempotency import Once
from gpuservice.services.visibility import check_generation, found, visible_page

T = TypeVar("T")
#: Modes of a flavor that give parts of a GPU: the kinds of partitions.
PARTITIONED = ("mig", "vgpu")
_TUPLES = ("pci_ids", "partitions", "traits", "projects")


def frozen(values: Mapping[str, Any]) -> dict[str, Any]:
    """Lists of a body as the tuples of a row."""
    return {name: tuple(value) if name in _TUPLES else value for name, value in values.items()}


@dataclass(frozen=True, slots=True)
class Noun(Generic[T]):
    """What the rows of one table are called, in events and in sentences."""

    row: Callable[..., T]
    of: Callable[[UnitOfWork], Repository[T]]
    event: str
    word: str


GPU_TYPE = Noun(GpuType, lambda uow: uow.gpu_types, "gpu_type", "GPU type")
FLAVOR = Noun(Flavor, lambda uow: uow.flavors, "flavor", "flavor")


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

    def _create(
        self,
        caller: Caller,
        noun: Noun[T],
        body: Mapping[str, Any],
        once: Once,
        check: Callable[[UnitOfWork], None] = lambda uow: None,
    ) -> T:
        """Make one, under its key once."""

        def work(uow: UnitOfWork) -> T:
            once.begin(uow)
            check(uow)
            ident, now = self.deps.ids.new(), uow.now()
            row = noun.row(id=ident, created_at=now, updated_at=now, **frozen(body))
            noun.of(uow).add(row)
            self._note(uow, caller, f"{noun.event}.create", noun.event, ident)
            once.keep(uow, row)
            return row

        return self.deps.store.write(work)

    def _change(
        self,
        caller: Caller,
        noun: Noun[T],
        ident: str,
        patch: Mapping[str, Any],
        generation: int | None,
        check: Callable[[UnitOfWork, T], None] = lambda uow, row: None,
    ) -> T:
        """Change one, of the generation that the caller knows."""

        def work(uow: UnitOfWork) -> T:
            row = found(noun.of(uow), ident, noun.word, lock=True)
            check_generation(row, generation)
            check(uow, row)
            noun.of(uow).change(ident, frozen(patch), edit=True)
            detail = {"fields": sorted(patch)}
            self._note(uow, caller, f"{noun.event}.change", noun.event, ident, detail)
            return found(noun.of(uow), ident, noun.word)

        return self.deps.store.write(work)

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
        return self._create(caller, GPU_TYPE, body, once)

    def change(
        self, caller: Caller, ident: str, patch: Mapping[str, Any], generation: int | None
    ) -> GpuType:
        """Change one."""

        def check(uow: UnitOfWork, row: GpuType) -> None:
            if "partitions" in patch:
                _check_unused(uow, row, patch["partitions"])

        return self._change(caller, GPU_TYPE, ident, patch, generation, check)

    def delete(self, caller: Caller, ident: str, generation: int | None) -> None:
        """Delete one that no flavor or device uses."""

        def work(uow: UnitOfWork) -> None:
            row = found(uow.gpu_types, ident, "GPU type", lock=True)
            check_generation(row, generation)
            used = uow.flavors.count(Where("gpu_type", "eq", row.name))
            used += uow.devices.count(Where("gpu_type", "eq", row.name))
            if used:
                raise Conflict(f"The GPU type {row.name!r} is in use by {used} flavors or devices.")
            naming = [queue.name for queue in uow.queues.find() if row.name in queue.counted_types]
            if naming:
                raise Conflict(
                    f"The GPU type {row.name!r} has a number in {len(naming)} queues, like "
                    f"{min(naming)!r}."
                )
            uow.gpu_types.remove(ident)
            self._note(uow, caller, "gpu_type.delete", "gpu_type", ident)

        self.deps.store.write(work)


def _check_unused(uow: UnitOfWork, row: GpuType, partitions: Sequence[Mapping[str, Any]]) -> None:
    """A partition that a flavor gives stays, with its kind."""
    left = {(one["name"], one["kind"]) for one in partitions}
    for flavor in uow.flavors.find(
        Where("gpu_type", "eq", row.name), Where("partition", "notnull"), order=(("name", "asc"),)
    ):
        if (flavor.partition, flavor.mode) not in left:
            raise Conflict(
                f"The partition {flavor.partition!r} is in use by the flavor {flavor.name!r}.",
                pointer="/gpu_type/partitions",
            )


#: What an operator's word makes of a device: its health, and who said so.
_DEVICE_HEALTH = {
    "quarantine": ("quarantined", BY_OPERATOR),
    "release": (HEALTHY, None),
    "retest": (UNKNOWN, None),
}


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
            health, source = _DEVICE_HEALTH[action]
            if action != "quarantine" and device.node_id is not None:
                # Its agent is to say again what it thinks: it may still be bad.
                uow.nodes.change(device.node_id, {"device_faults": None})
            if device.health != health:
                uow.devices.change(
                    ident, {"health": health, "health_reason": reason, "health_source": source}
                )
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
        """One page of those that were not stopped in good order."""
        there = replace(page, where=(*page.where, Where("ended_at", "null")))
        return self._page("services", there, count)

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
        return self._create(caller, FLAVOR, body, once, lambda uow: self._check_type(uow, body))

    def change(
        self, caller: Caller, ident: str, patch: Mapping[str, Any], generation: int | None
    ) -> Flavor:
        """Change price, access or name; what nodes are made of is fixed."""
        return self._change(caller, FLAVOR, ident, patch, generation)

    def delete(self, caller: Caller, ident: str, generation: int | None) -> None:
        """Delete one that no pool uses."""

        def work(uow: UnitOfWork) -> None:
            row = found(uow.flavors, ident, "flavor", lock=True)
            check_generation(row, generation)
            used = uow.pools.count(
                Where("flavor_id", "eq", ident), Where("status", "in", POOL_COUNTED)
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
        """The type must be there (and stay), and have the partition that the mode gives."""
        rows = uow.gpu_types.find(Where("name", "eq", body["gpu_type"]), lock="share")
        if not rows:
            raise UnknownReference(
                f"There is no GPU type {body['gpu_type']!r}.", pointer="/flavor/gpu_type"
            )
        check_partition(rows[0], body.get("mode", "passthrough"), body.get("partition"))

    @staticmethod
    def _seen(uow: UnitOfWork, caller: Caller, ident: str) -> Flavor:
        row = uow.flavors.get(ident)
        if row is None or not usable(caller, row):
            raise NotFound.of("flavor", ident)
        return row


def check_partition(gpu_type: GpuType, mode: str, partition: str | None) -> None:
    """What a flavor gives of a GPU: whole ones have no partition, parts have one of the type's.

    :raises Invalid: with what is allowed.
    """
    pointer = "/flavor/partition"
    if mode not in PARTITIONED:
        if partition is not None:
            raise Invalid(
                f"partition is {partition!r}, but the mode {mode} gives whole GPUs; partitions are "
                f"given by the modes {' and '.join(PARTITIONED)}.",
                pointer=pointer,
            )
        return
    known = [str(one["name"]) for one in gpu_type.partitions if one["kind"] == mode]
    if partition not in known:
        said = "is missing" if partition is None else f"is {partition!r}"
        raise Invalid(
            f"partition {said}; of the kind {mode} the GPU type {gpu_type.name!r} has: "
            f"{', '.join(sorted(known)) or 'none'}.",
            pointer=pointer,
        )


def usable(caller: Caller, flavor: Flavor) -> bool:
    """Whether a flavor exists for the caller."""
    return flavor.public or caller.is_admin or caller.project_id in flavor.projects
