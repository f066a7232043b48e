# SPDX-License-Identifier: Apache-2.0
"""The service as an openstacksdk extension.

Add it to a connection of your own::

    import openstack
    from gpuservice.clients import sdk

    cloud = openstack.connect(cloud="mycloud")
    cloud.add_service(sdk.GpuService())
    for job in cloud.gpu.jobs(status="queued"):
        print(job.name, job.waiting["summary"])

or, against a stand-alone service without Keystone::

    gpu = sdk.connect("http://127.0.0.1:9797", project_id="vision").gpu
"""

from __future__ import annotations

from gpuservice.clients.sdk.connecting import connect
from gpuservice.clients.sdk.errors import (
    GpuBadRequest,
    GpuConflict,
    GpuForbidden,
    GpuHttpError,
    GpuNotFound,
    GpuPreconditionFailed,
)
from gpuservice.clients.sdk.service import GpuService
from gpuservice.clients.sdk.v1._proxy import Proxy

__all__ = [
    "GpuService",
    "Proxy",
    "connect",
    "GpuHttpError",
    "GpuBadRequest",
    "GpuForbidden",
    "GpuNotFound",
    "GpuConflict",
    "GpuPreconditionFailed",
]
