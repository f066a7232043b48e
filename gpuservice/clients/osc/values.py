# SPDX-License-Identifier: Apache-2.0
"""How values are read from the command line, and shown in tables, shell loops and JSON."""

from __future__ import annotations

import argparse
import json
import re
from typing import Any

#: Output formats that carry structure; the others get text.
STRUCTURED = ("json", "yaml")

_UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(\d+)([smhd]?)")
_MEMORY_MIB = {"": 1, "m": 1, "mib": 1, "g": 1024, "gib": 1024, "t": 1048576, "tib": 1048576}
_BREAKING = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]+")
_ESCAPES = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])|"
    rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)


def duration(text: str) -> int:
    """Seconds of ``90``, ``90s``, ``15m``, ``1h30m``, ``2d``."""
    parts = _DURATION.findall(text)
    whole = "".join(number + unit for number, unit in parts) == text
    # 1h30 is refused: who writes it means minutes, and a number alone is seconds.
    if not parts or not whole or (len(parts) > 1 and not all(unit for _, unit in parts)):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no duration; write it like 90s, 15m, 1h30m or 2d"
        )
    return sum(int(number) * _UNITS_S[unit] for number, unit in parts)


def memory(text: str) -> int:
    """MiB of ``65536``, ``512MiB``, ``64G`` (binary units)."""
    match = re.fullmatch(r"(\d+)\s*([A-Za-z]*)", text)
    if match is None or match[2].lower() not in _MEMORY_MIB:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no amount of memory; write it in MiB, or like 64GiB"
        )
    return int(match[1]) * _MEMORY_MIB[match[2].lower()]


def pair(text: str) -> tuple[str, str]:
    """``KEY=VALUE``."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} must be KEY=VALUE")
    return key, value


def number_pair(text: str) -> tuple[str, int]:
    """``NAME=NUMBER``."""
    key, value = pair(text)
    if not re.fullmatch(r"-?\d+", value):
        raise argparse.ArgumentTypeError(f"{text!r} must be NAME=NUMBER")
    return key, int(value)


def json_value(text: str) -> Any:
    """Any JSON value."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON: {error}") from error


def boolean(text: str) -> bool:
    """``true`` or ``false``."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} must be true or false")
    return text.lower() == "true"


def compact(value: Any) -> str:
    """A value on one line: structures as compact JSON, nothing as an empty string."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)
    return _BREAKING.sub(" ", str(value))


def for_output(value: Any, formatter: str) -> Any:
    """A value as an output format wants it."""
    return value if formatter in STRUCTURED else compact(value)


def harmless(data: bytes) -> bytes:
    """Bytes without what steers a terminal (escape sequences, control characters)."""
    return _ESCAPES.sub(b"", data)
