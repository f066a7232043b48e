# SPDX-License-Identifier: Apache-2.0
"""JSON merge patch (RFC 7396) of one map."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuservice.domain.errors import Invalid

#: No map of a request may have more keys, nor may one grow beyond by many patches.
MAX_KEYS = 64


def merged(old: Mapping[str, Any], patch: Mapping[str, Any], pointer: str) -> dict[str, Any]:
    """``old`` with ``patch`` laid over it: null removes a key, a map goes on inside.

    :raises Invalid: with ``pointer`` when the result has too many keys.
    """
    result = dict(old)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            inner = result.get(key)
            result[key] = merged(
                inner if isinstance(inner, Mapping) else {}, value, f"{pointer}/{key}"
            )
        else:
            result[key] = value
    if len(result) > MAX_KEYS:
        raise Invalid(
            f"With this change there are {len(result)} keys; at most {MAX_KEYS} are allowed.",
            pointer=pointer,
        )
    return result
