# SPDX-License-Identifier: Apache-2.0
"""The operator's side of the proxy: GPU types, hosts, flavors, cohorts, quotas, and so on."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from openstack import proxy

from gpuservice.clients.sdk.errors import raise_for
from gpuservice.clients.sdk.v1.cohort import Cohort
from gpuservice.clients.sdk.v1.device import Device
from gpuservice.clients.sdk.v1.flavor import Flavor
from gpuservice.clients.sdk.v1.gpu_type import GpuType
from gpuservice.clients.sdk.v1.host import Host
from gpuservice.clients.sdk.v1.quota import Quota
from gpuservice.clients.sdk.v1.service import Service


class OperatorMixin(proxy.Proxy):
    """What an operator keeps. ``find_*`` take a name or an id; ``*_or_id`` an object or an id."""

    def gpu_types(self, **query: Any) -> Generator[GpuType, None, None]:
        """Generate the GPU types."""
        return self._list(GpuType, **query)

    def find_gpu_type(self, name_or_id: str, ignore_missing: bool = True) -> GpuType | None:
        """The GPU type with a name or an id, or None."""
        return GpuType.find(self, name_or_id, ignore_missing)

    def get_gpu_type(self, gpu_type: str | GpuType) -> GpuType:
        """One GPU type by its id."""
        return self._get(GpuType, gpu_type)

    def create_gpu_type(self, **attrs: Any) -> GpuType:
        """Create a GPU type."""
        return self._create(GpuType, **attrs)

    def update_gpu_type(self, gpu_type: str | GpuType, **attrs: Any) -> GpuType:
        """Change a GPU type."""
        return self._update(GpuType, gpu_type, **attrs)

    def delete_gpu_type(
        self, gpu_type: str | GpuType, ignore_missing: bool = True, if_match: str | None = None
    ) -> None:
        """Delete a GPU type that nothing uses."""
        self._delete(GpuType, gpu_type, ignore_missing, **_match(if_match))

    def hosts(self, **query: Any) -> Generator[Host, None, None]:
        """Generate the hosts."""
        return self._list(Host, **query)

    def find_host(self, name_or_id: str, ignore_missing: bool = True) -> Host | None:
        """The host with a name or an id, or None."""
        return Host.find(self, name_or_id, ignore_missing)

    def get_host(self, host: str | Host) -> Host:
        """One host by its id."""
        return self._get(Host, host)

    def act_on_host(self, host: str | Host, action: str, **details: Any) -> Host:
        """cordon, drain (``reason``, ``notice_s``), maintenance or uncordon a host."""
        return self._get_resource(Host, host).act(self, action, details)

    def devices(self, **query: Any) -> Generator[Device, None, None]:
        """Generate the devices."""
        return self._list(Device, **query)

    def get_device(self, device: str | Device) -> Device:
        """One device by its id."""
        return self._get(Device, device)

    def act_on_device(self, device: str | Device, action: str, **details: Any) -> Device:
        """quarantine, release or retest a device."""
        return self._get_resource(Device, device).act(self, action, details)

    def flavors(self, **query: Any) -> Generator[Flavor, None, None]:
        """Generate the flavors that the caller may use."""
        return self._list(Flavor, **query)

    def find_flavor(self, name_or_id: str, ignore_missing: bool = True) -> Flavor | None:
        """The flavor with a name or an id, or None."""
        return Flavor.find(self, name_or_id, ignore_missing)

    def get_flavor(self, flavor: str | Flavor) -> Flavor:
        """One flavor by its id."""
        return self._get(Flavor, flavor)

    def create_flavor(self, **attrs: Any) -> Flavor:
        """Create a flavor."""
        return self._create(Flavor, **attrs)

    def update_flavor(self, flavor: str | Flavor, **attrs: Any) -> Flavor:
        """Change name, access or price of a flavor."""
        return self._update(Flavor, flavor, **attrs)

    def delete_flavor(
        self, flavor: str | Flavor, ignore_missing: bool = True, if_match: str | None = None
    ) -> None:
        """Delete a flavor that no pool uses."""
        self._delete(Flavor, flavor, ignore_missing, **_match(if_match))

    def flavor_capacity(self, flavor: str | Flavor) -> dict[str, Any]:
        """How many more nodes of a flavor fit now: ``nodes``, and ``hosts`` for an admin."""
        found = self._get_resource(Flavor, flavor)
        return dict(found.subresource(self, "capacity")["capacity"])

    def sync_flavor(self, flavor: str | Flavor, dry_run: bool = False) -> dict[str, Any]:
        """Make the cloud have what the flavor says; the answer with the ``differences``."""
        found = self._get_resource(Flavor, flavor)
        response = self.post(
            f"{Flavor.base_path}/{found.id}/action", json={"sync": {"dry_run": dry_run}}
        )
        raise_for(response)
        return dict(response.json())

    def cohorts(self, **query: Any) -> Generator[Cohort, None, None]:
        """Generate the cohorts of queues."""
        return self._list(Cohort, **query)

    def find_cohort(self, name_or_id: str, ignore_missing: bool = True) -> Cohort | None:
        """The cohort with a name or an id, or None."""
        return Cohort.find(self, name_or_id, ignore_missing)

    def get_cohort(self, cohort: str | Cohort) -> Cohort:
        """One cohort by its id."""
        return self._get(Cohort, cohort)

    def create_cohort(self, **attrs: Any) -> Cohort:
        """Create a cohort."""
        return self._create(Cohort, **attrs)

    def update_cohort(self, cohort: str | Cohort, **attrs: Any) -> Cohort:
        """Change a cohort's name or whose queues it takes."""
        return self._update(Cohort, cohort, **attrs)

    def delete_cohort(
        self, cohort: str | Cohort, ignore_missing: bool = True, if_match: str | None = None
    ) -> None:
        """Delete a cohort that has no queues."""
        self._delete(Cohort, cohort, ignore_missing, **_match(if_match))

    def quotas(self, **query: Any) -> Generator[Quota, None, None]:
        """Generate the quotas of every project that has limits or use."""
        return self._list(Quota, **query)

    def get_quota(self, project_id: str) -> Quota:
        """A project's quota."""
        return self._get(Quota, project_id)

    def update_quota(self, project_id: str, limits: Mapping[str, int | None]) -> Quota:
        """Set some of a project's limits; None goes back to the default."""
        return self._update(Quota, project_id, limits=dict(limits))

    def delete_quota(self, project_id: str) -> None:
        """Go back to the defaults for a project."""
        self._delete(Quota, project_id, ignore_missing=False)

    def get_limits(self) -> Quota:
        """The caller's own limits and use, with the GPUs free for it now."""
        response = self.get("/limits")
        raise_for(response)
        return Quota.existing(connection=self._get_connection(), **response.json()["limits"])

    def services(self, **query: Any) -> Generator[Service, None, None]:
        """Generate the service's own processes."""
        return self._list(Service, **query)

    def get_service(self, service: str | Service) -> Service:
        """One process by its id."""
        return self._get(Service, service)

    def update_service(self, service: str | Service, **attrs: Any) -> Service:
        """Enable or disable a process (``status``)."""
        return self._update(Service, service, **attrs)


def _match(if_match: str | None) -> dict[str, Any]:
    return {} if if_match is None else {"if_match": if_match}
