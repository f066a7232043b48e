# SPDX-License-Identifier: Apache-2.0
"""Request ids, bodies within bounds, and JSON responses with the headers each answer has."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass
from typing import Any

from flask import Request, Response

from gpuservice.api import versions
from gpuservice.domain.errors import GpuServiceError, TooLarge

_REQUEST_ID = re.compile(r"^req-[0-9a-fA-F-]{36}$")
_ENVIRON = "gpuservice.request_ids"


class UnsupportedMediaType(GpuServiceError):
    """The body is not what this endpoint takes (415)."""

    code = "gpu.request.media_type"
    title = "Unsupported media type"


@dataclass(frozen=True, slots=True)
class RequestIds:
    """The request's own id, and the one its sender gave it."""

    local: str
    given: str | None

    @classmethod
    def of(cls, request: Request) -> RequestIds:
        """The ids of a request, made once."""
        known = request.environ.get(_ENVIRON)
        if isinstance(known, cls):
            return known
        given = request.headers.get("X-Openstack-Request-Id", "")
        ids = cls(f"req-{uuid.uuid4()}", given if _REQUEST_ID.match(given) else None)
        request.environ[_ENVIRON] = ids
        return ids


def read_body(request: Request, limit: int, drain: int) -> bytes:
    """The body, at most ``limit`` bytes.

    :raises TooLarge: after reading on for ``drain`` bytes, so that the client sees the answer.
    """
    body = request.stream.read(limit + 1)
    if len(body) <= limit:
        return bytes(body)
    left = drain - len(body)
    while left > 0:
        piece = request.stream.read(min(left, 1 << 16))
        if not piece:
            break
        left -= len(piece)
    raise TooLarge(f"The body is larger than {limit} bytes.", meta={"max_bytes": limit})


def check_json(request: Request) -> None:
    """Raise ``UnsupportedMediaType`` unless the body is said to be JSON."""
    if request.mimetype != "application/json":
        raise UnsupportedMediaType(
            f"The content type is {(request.mimetype or 'missing')[:80]!r}; it must be "
            "application/json."
        )


def dressed(response: Response, ids: RequestIds) -> Response:
    """The headers that every answer has."""
    response.headers["X-Openstack-Request-Id"] = ids.local
    response.headers["OpenStack-API-Version"] = f"gpu {versions.CURRENT}"
    response.headers["Vary"] = "OpenStack-API-Version"
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Cache-Control"] = "no-store"
    return response


def json_response(
    body: Any, status: int, ids: RequestIds, headers: dict[str, str] | None = None
) -> Response:
    """A JSON answer; none for 204."""
    data = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
    response = Response(data, status=status, mimetype="application/json")
    if body is None:
        del response.headers["Content-Type"]
    response.headers.update(headers or {})
    return dressed(response, ids)
