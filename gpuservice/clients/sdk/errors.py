# SPDX-License-Identifier: Apache-2.0
"""The service's error answers as exceptions.

Each is also the openstacksdk exception of its status, so that ``except
openstack.exceptions.NotFoundException`` goes on working.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import requests
from openstack import exceptions


class GpuHttpError(exceptions.HttpException):
    """An answer of 400 or above.

    ``errors`` holds all entries of the body; the attributes are those of the first: ``code``
    (stable, like ``gpu.quota.exceeded``), ``title``, ``detail``, ``pointer`` (JSON pointer to the
    field at fault, None when it is no field), ``meta`` (further facts), ``request_id``.
    """

    def __init__(self, response: requests.Response) -> None:
        self.errors = _entries(response)
        first: Mapping[str, Any] = self.errors[0] if self.errors else {}
        self.code: str | None = _text(first.get("code"))
        self.title: str | None = _text(first.get("title"))
        self.detail: str = _text(first.get("detail")) or self.title or _plain(response)
        source = first.get("source")
        self.pointer: str | None = (
            _text(source.get("pointer")) if isinstance(source, Mapping) else None
        )
        meta = first.get("meta")
        self.meta: dict[str, Any] = dict(meta) if isinstance(meta, Mapping) else {}
        super().__init__(message=self.detail, response=response, details=self.detail)
        self.request_id = self.request_id or _text(first.get("request_id"))

    def __str__(self) -> str:
        facts = [f"HTTP {self.status_code}"]
        if self.code:
            facts.append(self.code)
        if self.pointer:
            facts.append(f"at {self.pointer}")
        if self.request_id:
            facts.append(f"request {self.request_id}")
        return f"{self.detail} ({', '.join(facts)})"


class GpuBadRequest(GpuHttpError, exceptions.BadRequestException):
    """400: the request is wrong; ``pointer`` says where."""


class GpuForbidden(GpuHttpError, exceptions.ForbiddenException):
    """403: policy or quota forbids it."""


class GpuNotFound(GpuHttpError, exceptions.NotFoundException):
    """404: it does not exist, or not for this project."""


class GpuConflict(GpuHttpError, exceptions.ConflictException):
    """409: not in this state, or the name is taken."""


class GpuPreconditionFailed(GpuHttpError, exceptions.PreconditionFailedException):
    """412: it was changed since it was read."""


_BY_STATUS: dict[int, type[GpuHttpError]] = {
    400: GpuBadRequest,
    403: GpuForbidden,
    404: GpuNotFound,
    409: GpuConflict,
    412: GpuPreconditionFailed,
}


def raise_for(response: requests.Response) -> None:
    """Raise the exception of an error answer.

    :raises GpuHttpError: for a status of 400 or above, as the subclass of that status.
    """
    if response.status_code >= 400:
        raise _BY_STATUS.get(response.status_code, GpuHttpError)(response)


def _entries(response: requests.Response) -> list[dict[str, Any]]:
    """The entries of ``{"errors": [...]}``; none when the body is something else."""
    try:
        body = response.json()
    except ValueError:
        return []
    entries = body.get("errors") if isinstance(body, dict) else None
    if not isinstance(entries, list):
        return []
    return [entry for entry in entries if isinstance(entry, dict)]


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _plain(response: requests.Response) -> str:
    """What to say of an answer that is not ours (a proxy's page, say): status and reason."""
    return f"The server answered {response.status_code} {response.reason or ''}".rstrip() + "."
