# SPDX-License-Identifier: Apache-2.0
"""A connection to a stand-alone service in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import openstack
from openstack import connection

from gpuservice.clients.sdk.service import GpuService


def connect(
    endpoint: str | None = None,
    *,
    username: str | None = None,
    password: str | None = None,
    project_id: str | None = None,
    user_id: str | None = None,
    roles: Sequence[str] = (),
    cloud: str | None = None,
    **options: Any,
) -> connection.Connection:
    """A connection whose ``gpu`` is this service.

    With ``endpoint`` it is a stand-alone service: by HTTP basic authentication when ``username``
    is given, else without authentication, as ``project_id``, ``user_id`` and ``roles`` (default:
    what the environment says, see ``service.identity_headers``). Without ``endpoint`` it is the
    cloud of ``clouds.yaml`` or of the environment, as ``openstack.connect`` finds it.

    :param options: further options of ``openstack.connect``, ``timeout`` for one.
    """
    if endpoint is None:
        found = openstack.connect(cloud=cloud, **options)
    elif username is not None:
        found = openstack.connect(
            load_yaml_config=False,
            load_envvars=False,
            auth_type="http_basic",
            auth={"endpoint": endpoint, "username": username, "password": password or ""},
            **options,
        )
    else:
        found = openstack.connect(
            load_yaml_config=False,
            load_envvars=False,
            auth_type="none",
            auth={"endpoint": endpoint},
            **options,
        )
        said = {"project_id": project_id, "user_id": user_id, "gpu_roles": ",".join(roles)}
        found.config.config.update({name: value for name, value in said.items() if value})
    found.add_service(GpuService())
    return found
