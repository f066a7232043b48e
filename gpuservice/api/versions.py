# SPDX-License-Identifier: Apache-2.0
"""API versions: documents and the microversion header."""

from __future__ import annotations

import re
from typing import Any

import microversion_parse
from werkzeug.datastructures import EnvironHeaders, Headers

from gpuservice.domain.errors import GpuServiceError, Invalid

MINIMUM = CURRENT = "1.0"
_VERSION = re.compile(r"[0-9]{1,4}\.[0-9]{1,4}")


class NotAcceptable(GpuServiceError):
    """The microversion is out of range (406)."""

    code = "gpu.request.microversion"
    title = "Microversion not supported"


def _document(root: str) -> dict[str, Any]:
    return {
        "id": "v1.0",
        "status": "CURRENT",
        "min_version": MINIMUM,
        "max_version": CURRENT,
        "version": CURRENT,
        "links": [{"rel": "self", "href": f"{root.rstrip('/')}/v1/"}],
    }


def listing(root: str) -> dict[str, Any]:
    """The document of ``GET /``."""
    return {"versions": [_document(root)]}


def one(root: str) -> dict[str, Any]:
    """The document of ``GET /v1``."""
    return {"version": _document(root)}


def check(headers: Headers | EnvironHeaders) -> None:
    """Raise ``Invalid`` (400) or ``NotAcceptable`` (406) for a microversion we do not have."""
    if "OpenStack-API-Version" not in headers:
        return
    given = headers["OpenStack-API-Version"]
    try:
        wanted = microversion_parse.get_version({"openstack-api-version": given}, "gpu")
    except ValueError as error:
        raise Invalid(f"The microversion {given[:80]!r} is not well formed.") from error
    if wanted is None and "gpu" in (part.strip().lower() for part in given.split(",")):
        raise Invalid(f"The microversion {given[:80]!r} must be like gpu {CURRENT}.")
    if wanted is None or wanted == "latest":
        return
    if not _VERSION.fullmatch(wanted):
        raise Invalid(f"The microversion {wanted[:80]!r} must be like {CURRENT}.")
    version = microversion_parse.parse_version_string(wanted)
    if str(version) != CURRENT:
        raise NotAcceptable(
            f"Version {version} is not served; {MINIMUM} to {CURRENT} are.",
            meta={"min_version": MINIMUM, "max_version": CURRENT},
        )
