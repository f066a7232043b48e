# SPDX-License-Identifier: Apache-2.0
"""OpenAPI 3.1 from the endpoint table: the very schemas that validate."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from gpuservice.api.endpoint import Endpoint
from gpuservice.api.versions import CURRENT

_PARAMETER = re.compile(r"<(?:[a-z]+:)?([a-z_]+)>")

ERROR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "errors": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["status", "code", "title", "detail", "request_id", "links"],
                "properties": {
                    "status": {"type": "integer"},
                    "code": {"type": "string"},
                    "title": {"type": "string"},
                    "detail": {"type": "string"},
                    "request_id": {"type": "string"},
                    "links": {"type": "array"},
                    "source": {"type": "object"},
                    "meta": {"type": "object"},
                },
            },
        }
    },
    "required": ["errors"],
}
_ERRORS = (400, 401, 403, 404, 405, 406, 409, 412, 413, 415, 503)


def document(rows: Iterable[Endpoint]) -> dict[str, Any]:
    """The whole description."""
    paths: dict[str, Any] = {}
    for row in rows:
        path = "/v1" + _PARAMETER.sub(r"{\1}", row.path)
        paths.setdefault(path, {})[row.method.lower()] = _operation(row)
    return {
        "openapi": "3.1.0",
        "info": {"title": "GPU service", "version": CURRENT},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": {"Error": ERROR_SCHEMA}},
    }


def _operation(row: Endpoint) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": row.summary,
        "operationId": f"{row.method.lower()}{_PARAMETER.sub('', row.path).replace('/', '_')}",
        "parameters": [*_path_parameters(row), *_query_parameters(row)],
        "responses": _responses(row),
    }
    if row.raw_body:
        operation["requestBody"] = {
            "required": True,
            "content": {
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
            },
        }
    elif row.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": row.body}},
        }
    return operation


def _path_parameters(row: Endpoint) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {
                "type": "string",
                "minLength": 1,
                "maxLength": 512 if name == "path" else 64,
            },
        }
        for name in _PARAMETER.findall(row.path)
    ]


def _query_parameters(row: Endpoint) -> list[dict[str, Any]]:
    known = row.query if row.listing is None else row.listing.names()
    return [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in sorted(known.items())
    ]


def _responses(row: Endpoint) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status in row.statuses:
        found[str(status)] = {"description": "Done." if status < 300 else "See Location."}
        if row.answer is not None and status != 204:
            found[str(status)]["content"] = {"application/json": {"schema": row.answer}}
    for status in _ERRORS:
        found.setdefault(
            str(status),
            {
                "description": "The request was refused; the body says why.",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        )
    return found
