# SPDX-License-Identifier: Apache-2.0
"""Two results side by side."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gpuservice.simulation.faults import InputFault
from gpuservice.simulation.reading import text_of

_HEAD = ("figure", "first", "second", "difference", "ratio")


def summary_of(path: str) -> Mapping[str, Any]:
    """The summary of a result file.

    :raises InputFault: if it is none.
    """
    try:
        found = json.loads(text_of(path, "--compare"))
    except json.JSONDecodeError as error:
        raise InputFault(f"--compare {path}: line {error.lineno}: no JSON: {error.msg}") from None
    if not isinstance(found, dict) or not isinstance(found.get("summary"), dict):
        raise InputFault(f"--compare {path}: this is no result of gpuservice-simulate")
    return dict(found["summary"])


def compare(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    """A table of the figures that differ, and of those that only one has."""
    ours, theirs = dict(_figures(first)), dict(_figures(second))
    names = list(ours) + [name for name in theirs if name not in ours]
    rows = [
        _row(name, ours.get(name), theirs.get(name))
        for name in names
        if ours.get(name) != theirs.get(name)
    ]
    if not rows:
        return "No difference."
    table = [_HEAD, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(_HEAD))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    )


def _figures(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for name in sorted(value):
        one = value[name]
        if isinstance(one, dict):
            yield from _figures(one, f"{prefix}{name}.")
        elif isinstance(one, int | float) and not isinstance(one, bool):
            yield f"{prefix}{name}", one


def _row(name: str, first: float | None, second: float | None) -> tuple[str, ...]:
    if first is None or second is None:
        return name, _shown(first), _shown(second), "-", "-"
    ratio = f"{second / first:.3f}" if first else "-"
    return name, _shown(first), _shown(second), f"{second - first:+.6g}", ratio


def _shown(value: float | None) -> str:
    return "-" if value is None else str(value)
