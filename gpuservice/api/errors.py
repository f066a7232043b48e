# SPDX-License-Identifier: Apache-2.0
"""From domain errors to HTTP: one table, one body format."""

from __future__ import annotations

from typing import Any

from gpuservice.api.requests import UnsupportedMediaType
from gpuservice.api.versions import NotAcceptable
from gpuservice.domain import errors as domain

#: First match wins: subclasses before their bases.
STATUS: tuple[tuple[type[domain.GpuServiceError], int], ...] = (
    (domain.Unauthenticated, 401),
    (domain.Forbidden, 403),
    (domain.QuotaExceeded, 403),
    (domain.PriorityForbidden, 403),
    (domain.NotFound, 404),
    (NotAcceptable, 406),
    (UnsupportedMediaType, 415),
    (domain.StaleGeneration, 412),
    (domain.TooLarge, 413),
    (domain.Busy, 503),
    (domain.Conflict, 409),
    (domain.Invalid, 400),
)

HELP = "https://docs.openstack.org/api-ref/gpu/#"


def status_of(error: domain.GpuServiceError) -> int:
    """The HTTP status of a domain error; 500 for what no client can cause."""
    for kind, status in STATUS:
        if isinstance(error, kind):
            return status
    return 500


def body(
    status: int,
    code: str,
    title: str,
    detail: str,
    request_id: str,
    pointer: str | None = None,
    meta: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The body of every error answer."""
    entry: dict[str, Any] = {
        "status": status,
        "code": code,
        "title": title,
        "detail": detail,
        "request_id": request_id,
        "links": [{"rel": "help", "href": HELP + code.replace(".", "-").replace("_", "-")}],
    }
    if pointer is not None:
        entry["source"] = {
            "pointer": pointer if pointer.startswith("/") or not pointer else f"/{pointer}"
        }
    if meta:
        entry["meta"] = meta
    return {"errors": [entry]}


def headers_of(error: domain.GpuServiceError, status: int) -> dict[str, str]:
    """Further headers that go with an error."""
    if status == 503:
        return {"Retry-After": str(error.meta.get("retry_after_s", 1))}
    if status == 401:
        return {"WWW-Authenticate": 'Basic realm="gpuservice"'}
    return {}
