# SPDX-License-Identifier: Apache-2.0
"""The proxy: what ``connection.gpu`` is."""

from __future__ import annotations

import urllib.parse
from typing import Any, ClassVar, Literal

import requests

from gpuservice.clients.sdk.errors import raise_for
from gpuservice.clients.sdk.v1 import (
    cohort,
    device,
    event,
    flavor,
    gpu_type,
    host,
    job,
    node,
    pool,
    queue,
    quota,
    service,
    simulation,
)
from gpuservice.clients.sdk.v1._jobs import JobsMixin
from gpuservice.clients.sdk.v1._logs import LogsMixin
from gpuservice.clients.sdk.v1._operator import OperatorMixin
from gpuservice.clients.sdk.v1._simulations import SimulationsMixin
from gpuservice.clients.sdk.v1._tenant import TenantMixin

#: The microversion that this SDK speaks unless another is configured.
MICROVERSION = "1.0"

#: How often a request that may be repeated without harm is tried again when its connection fails.
CONNECT_RETRIES = 3


class Proxy(OperatorMixin, TenantMixin, JobsMixin, LogsMixin, SimulationsMixin):
    """The gpu service, version 1."""

    api_version: ClassVar[Literal["1"]] = "1"

    _resource_registry = {
        "gpu_type": gpu_type.GpuType,
        "host": host.Host,
        "device": device.Device,
        "flavor": flavor.Flavor,
        "quota": quota.Quota,
        "pool": pool.Pool,
        "node": node.Node,
        "cohort": cohort.Cohort,
        "queue": queue.Queue,
        "job": job.Job,
        "event": event.Event,
        "service": service.Service,
        "simulation": simulation.Simulation,
    }

    def __init__(self, session: Any, **options: Any) -> None:
        options["default_microversion"] = options.get("default_microversion") or MICROVERSION
        super().__init__(session, **options)
        self._root: str | None = None

    def request(
        self,
        url: str,
        method: str,
        error_message: str | None = None,
        raise_exc: bool = True,
        connect_retries: int | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> requests.Response:
        """Send a request; an error answer raises, unless ``raise_exc`` is false.

        Reads, and creations under an idempotency key, are tried again when the connection fails.

        :raises GpuHttpError: for an answer of 400 or above.
        """
        if (
            connect_retries is None
            and self.connect_retries is None
            and _repeatable(method, kwargs.get("headers"))
        ):
            connect_retries = CONNECT_RETRIES
        response = super().request(
            self._versioned(url), method, error_message, False, connect_retries, *args, **kwargs
        )
        if raise_exc:
            raise_for(response)
        return response

    def _versioned(self, url: str) -> str:
        """The path with its version, when the endpoint is the service's root."""
        if urllib.parse.urlsplit(url).scheme:
            return url
        if self._root is None:
            path = urllib.parse.urlsplit(self.get_endpoint() or "").path.rstrip("/")
            self._root = "" if path.endswith("/v1") else "/v1"
        return f"{self._root}/{url.lstrip('/')}"


def _repeatable(method: str, headers: Any) -> bool:
    return method.upper() in ("GET", "HEAD") or "Idempotency-Key" in (headers or {})
