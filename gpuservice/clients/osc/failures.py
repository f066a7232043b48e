# SPDX-License-Identifier: Apache-2.0
"""Failures in words: which field, which value was found there, and what is allowed."""

from __future__ import annotations

import json
from typing import Any

from keystoneauth1 import exceptions as ksa_exceptions
from openstack import exceptions as sdk_exceptions
from osc_lib import exceptions

from gpuservice.clients.sdk import GpuHttpError

_LONGEST_VALUE = 200
_ABSENT = object()


def told(error: Exception, sent: Any = None) -> exceptions.CommandError | None:
    """The failure as the command tells it; None for what is not a failure of the service.

    :param sent: the body that was sent, to show the value at fault.
    """
    if isinstance(error, GpuHttpError):
        return exceptions.CommandError(_refusal(error, sent))
    if isinstance(error, ksa_exceptions.ConnectFailure):
        return exceptions.CommandError(f"The gpu service cannot be reached: {error}")
    if isinstance(error, sdk_exceptions.HttpException):
        return exceptions.CommandError(error.message or str(error))
    if isinstance(error, sdk_exceptions.SDKException):
        return exceptions.CommandError(str(error))
    return None


def _refusal(error: GpuHttpError, sent: Any) -> str:
    entries = error.errors or [{"detail": error.detail}]
    lines: list[str] = []
    for entry in entries:
        pointer = (entry.get("source") or {}).get("pointer")
        detail = entry.get("detail") or entry.get("title") or error.detail
        value = value_at(sent, pointer) if pointer else _ABSENT
        if pointer:
            lines.append(f"field: {pointer}")
            lines.append("value: " + ("(not given)" if value is _ABSENT else _short(value)))
            lines.append(f"error: {detail}")
        else:
            lines.append(str(detail))
    facts = [f"HTTP {error.status_code}", error.code, error.request_id]
    lines.append("(" + ", ".join(str(one) for one in facts if one) + ")")
    return "\n".join(lines)


def value_at(body: Any, pointer: str) -> Any:
    """What a JSON pointer names in a body; a mark of its own when nothing is there."""
    found = body
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        else:
            return _ABSENT
    return found


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "..."
