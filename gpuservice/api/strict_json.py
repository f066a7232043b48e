# SPDX-License-Identifier: Apache-2.0
"""JSON as it is meant: no duplicate keys, no NaN, no unpaired surrogates, no endless nesting."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from gpuservice.domain.errors import Invalid

MAX_DEPTH = 20

#: Neither a database nor a terminal should meet these; tab and line ends are text.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class _Fault:
    """Stands for a value that is wrong, until it is known where; ``below``: of a key in it."""

    said: str
    below: str = ""


def parse(body: bytes) -> Any:
    """The value of a body.

    :raises Invalid: saying what is wrong with it and where.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Invalid(f"The body is not UTF-8 (byte {error.start}).") from error
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
            parse_int=_bounded,
            parse_float=_finite,
        )
    except RecursionError as error:
        raise Invalid(f"The body is nested deeper than {MAX_DEPTH} levels.") from error
    except json.JSONDecodeError as error:
        raise Invalid(
            f"The body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}."
        ) from error
    _check(value, "", 1)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Fault:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                said = f"The key {key[:80]!r} stands twice in one object."
                return _Fault(said, f"/{escaped(key)}")
            seen.add(key)
    return value


def _no_constant(name: str) -> _Fault:
    return _Fault(f"{name} is not a JSON number.")


def _bounded(digits: str) -> int | _Fault:
    if len(digits) > 20:
        return _Fault(f"The number {digits[:20]}... is too large.")
    return int(digits)


def _finite(digits: str) -> float | _Fault:
    value = float(digits)
    if math.isinf(value):
        return _Fault(f"The number {digits[:20]} is too large.")
    return value


def _check(value: Any, pointer: str, depth: int) -> None:
    if isinstance(value, _Fault):
        raise Invalid(value.said, pointer=pointer + value.below)
    if isinstance(value, str):
        check_text(value, pointer)
    elif isinstance(value, dict):
        _check_depth(depth, pointer)
        for key, inner in value.items():
            check_text(key, pointer)
            _check(inner, f"{pointer}/{escaped(key)}", depth + 1)
    elif isinstance(value, list):
        _check_depth(depth, pointer)
        for index, inner in enumerate(value):
            _check(inner, f"{pointer}/{index}", depth + 1)


def _check_depth(depth: int, pointer: str) -> None:
    if depth > MAX_DEPTH:
        raise Invalid(f"The body is nested deeper than {MAX_DEPTH} levels.", pointer=pointer)


def check_text(text: str, pointer: str) -> None:
    """Refuse control characters and unpaired surrogates.

    :raises Invalid: with the pointer.
    """
    found = _CONTROL.search(text)
    if found is not None:
        raise Invalid(
            f"Text must not contain the control character U+{ord(found[0]):04X}.", pointer=pointer
        )
    if _SURROGATE.search(text):
        raise Invalid("Text must not contain unpaired surrogates.", pointer=pointer)


def escaped(key: str) -> str:
    """A key as a piece of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")
