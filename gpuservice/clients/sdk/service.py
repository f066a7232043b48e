# SPDX-License-Identifier: Apache-2.0
"""The service description: how a connection finds the service and who it says it is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from openstack import service_description

from gpuservice.clients.sdk.v1 import _proxy

SERVICE_TYPE = "gpu"

#: Auth types that know one endpoint and no catalog.
STAND_ALONE = ("none", "http_basic")


class GpuService(service_description.ServiceDescription[_proxy.Proxy]):
    """The ``gpu`` service, for ``Connection.add_service``."""

    supported_versions = {"1": _proxy.Proxy}

    def __init__(self, service_type: str = SERVICE_TYPE) -> None:
        super().__init__(service_type)

    def _make_proxy(self, instance: Any) -> Any:
        """The proxy; without discovery, because there is one version and the proxy knows its path.

        Stand-alone: the endpoint of the auth plugin serves; without authentication the caller's
        identity goes along as headers, because keystoneauth's plugin ``none`` sends none.
        """
        config = instance.config
        auth: Mapping[str, Any] = config.config.get("auth") or {}
        stand_alone = config.config.get("auth_type") in STAND_ALONE
        if not config.has_service(self.service_type):
            return super()._make_proxy(instance)
        if stand_alone and not config.get_endpoint(self.service_type) and auth.get("endpoint"):
            config.set_service_value("endpoint_override", self.service_type, auth["endpoint"])
        proxy = config.get_session_client(self.service_type, constructor=_proxy.Proxy)
        proxy.version = proxy.min_version = proxy.max_version = None
        if config.config.get("auth_type") == "none":
            proxy.additional_headers.update(identity_headers(config.config, os.environ))
        return proxy


def identity_headers(config: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    """Who the caller says to be, for a service without authentication.

    The configuration (cloud file, options) goes before the environment: ``OS_PROJECT_ID``,
    ``OS_USER_ID``, and ``OS_GPU_ROLES`` (comma-separated). What is nowhere said is not sent.
    """
    auth: Mapping[str, Any] = config.get("auth") or {}
    wanted = {
        "X-Project-Id": ("project_id", "project_name"),
        "X-User-Id": ("user_id", "username"),
        "X-Roles": ("gpu_roles",),
    }
    headers: dict[str, str] = {}
    for header, names in wanted.items():
        for name in names:
            value = auth.get(name) or config.get(name) or environ.get(f"OS_{name.upper()}")
            if value:
                headers[header] = str(value)
                break
    return headers
