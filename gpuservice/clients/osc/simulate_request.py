# SPDX-License-Identifier: Apache-2.0
"""The request of a what-if: a workload from a file, and a change from options."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from osc_lib import exceptions

from gpuservice.clients.osc.options import Option, put
from gpuservice.clients.osc.values import duration, number_pair

_NUMBERS = ("submit_s", "duration_s", "deadline_s")
_WORDS = (
    "name", "project", "queue", "user", "kind", "within", "topology_policy", "outcome",
)  # fmt: skip
_LISTS = {"gpu_types": "|", "depends_on": ";"}


def named_value(text: str) -> tuple[str, Any]:
    """``NAME=VALUE``: the value a number, true or false, several with commas, or a word."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} must be NAME=VALUE")
    return name.replace("-", "_"), _value(value)


def owned_value(text: str) -> tuple[str, str, Any]:
    """``OWNER:NAME=VALUE``."""
    owner, colon, rest = text.partition(":")
    if not owner or not colon or "=" not in rest:
        raise argparse.ArgumentTypeError(f"{text!r} must be OWNER:NAME=VALUE")
    name, _, value = rest.partition("=")
    return owner, name, _value(value)


def window(text: str) -> dict[str, str]:
    """``SINCE/UNTIL``, two ISO 8601 times."""
    since, slash, until = text.partition("/")
    if not since or not slash or not until:
        raise argparse.ArgumentTypeError(f"{text!r} must be SINCE/UNTIL, two ISO 8601 times")
    return {"since": since, "until": until}


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text.lower() in ("none", "null"):
        return None
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text


OPTIONS = (
    Option(
        "--from",
        "Begin with what runs and waits now (the default), or with an empty cluster",
        choices=("now", "empty"),
    ),
    Option(
        "--history", "Replay the jobs submitted in this time, two ISO 8601 times", window,
        metavar="SINCE/UNTIL",
    ),
    Option(
        "--assumed-runtime",
        "What jobs of now without a limit are taken to need (1h)",
        duration,
        "assumed_runtime_s",
    ),
    Option(
        "--gpus", "So many more (or fewer) GPUs of a type; repeat for more", number_pair,
        "change.gpus", "TYPE=NUMBER", many="map",
    ),
    Option(
        "--pool", "So many more (or fewer) nodes of a pool; repeat for more", number_pair,
        "change.pools", "POOL=NUMBER", many="map",
    ),
    Option(
        "--policy", "Another value of [scheduler]; repeat for more", named_value,
        "change.policy", "NAME=VALUE", many="map",
    ),
)  # fmt: skip
#: Those whose values name an owner.
OWNED = (
    Option(
        "--queue",
        "Another value of a queue, like vision:weight=2 or vision:nominal.a100-80gb=8; repeat for "
        "more",
        owned_value,
        metavar="QUEUE:NAME=VALUE",
        many="list",
    ),
    Option(
        "--quota",
        "Another limit of a project, like vision:gpus=8 (none: unlimited); repeat for more",
        owned_value,
        metavar="PROJECT:NAME=NUMBER",
        many="list",
    ),
)


def with_owned(body: dict[str, Any], parsed_args: argparse.Namespace) -> dict[str, Any]:
    """The body with the changes of queues and quotas that were given."""
    queue, quota = (option.given(parsed_args) or () for option in OWNED)
    for owner, name, value in queue:
        field, dot, gpu_type = name.partition(".")
        change = body.setdefault("change", {}).setdefault("queues", {}).setdefault(owner, {})
        if dot:
            change.setdefault(field.replace("-", "_"), {})[gpu_type] = value
        else:
            change[field.replace("-", "_")] = value
    for owner, name, value in quota:
        body.setdefault("change", {}).setdefault("quotas", {}).setdefault(owner, {})[name] = value
    policy = body.get("change", {}).get("policy", {})
    if isinstance(policy.get("preempt"), str):
        put(body, "change.policy", {"preempt": policy["preempt"].split(",")})
    return body


def rows_of(path: str) -> list[dict[str, Any]]:
    """The rows of a workload file (the CSV of ``gpuservice-simulate``).

    :raises osc_lib.exceptions.CommandError: if it cannot be read, naming the place.
    """
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            return [_row(path, reader.line_num, cells) for cells in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise exceptions.CommandError(f"{path}: {error}") from error


def _row(path: str, line: int, cells: Mapping[Any, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for column, cell in cells.items():
        if column is None or cell is None:
            raise exceptions.CommandError(f"{path}: line {line} has not as many values as line 1.")
        text = cell.strip()
        if text:
            try:
                row[column.strip()] = _cell(column.strip())(text)
            except ValueError as error:
                raise exceptions.CommandError(
                    f"{path}: line {line}: column {column.strip()}: {text!r} is no number."
                ) from error
    return _gpus(row)


def _cell(column: str) -> Callable[[str], Any]:
    if column in _NUMBERS:
        return float
    if column in _WORDS:
        return str
    if column in _LISTS:
        return lambda text: text.replace(_LISTS[column], " ").split()
    if column == "preemptible":
        return lambda text: text.lower() in ("true", "yes", "1")
    if column == "priority":
        return lambda text: int(text) if text.isdecimal() else text
    return int


def _gpus(row: dict[str, Any]) -> dict[str, Any]:
    """A thousandfold share is whole GPUs."""
    milli = row.get("gpu_milli")
    if isinstance(milli, int) and milli % 1000 == 0:
        del row["gpu_milli"]
        row.setdefault("gpus_per_task", milli // 1000)
    elif milli is not None:
        row.pop("gpus_per_task", None)
    return row
