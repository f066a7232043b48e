# SPDX-License-Identifier: Apache-2.0
"""Options as declarations: a flag, the field it sets, and how it is read."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a command.

    ``many``: ``list`` collects repeated values, ``map`` repeated pairs. ``field`` is that of the
    request or query (a dotted one is nested); by default the flag's own name.
    """

    flag: str
    help: str
    type: Callable[[str], Any] = str
    field: str = ""
    metavar: str | None = None
    choices: Sequence[str] | None = None
    many: Literal["", "list", "map"] = ""
    const: Any = None
    required: bool = False

    @property
    def dest(self) -> str:
        """The attribute of the parsed arguments."""
        return "option_" + self.flag.lstrip("-").replace("-", "_")

    @property
    def target(self) -> str:
        """The field it sets."""
        return self.field or self.flag.lstrip("-").replace("-", "_")

    def add_to(self, parser: argparse._ActionsContainer) -> None:
        """Add it to a parser."""
        settings: dict[str, Any] = {"dest": self.dest, "help": self.help}
        if self.const is not None:
            parser.add_argument(self.flag, action="store_const", const=self.const, **settings)
            return
        if self.required:
            settings["required"] = True
        if self.many:
            settings["action"] = "append"
        if self.choices is not None:
            settings["choices"] = list(self.choices)
        else:
            name = self.flag.lstrip("-").upper().replace("-", "_")
            settings["metavar"] = self.metavar or f"<{name.lower()}>"
        parser.add_argument(self.flag, type=self.type, **settings)

    def given(self, parsed_args: argparse.Namespace) -> Any:
        """Its value, None when it was not given."""
        value = getattr(parsed_args, self.dest)
        if value is None:
            return None
        return dict(value) if self.many == "map" else value


def add_all(parser: argparse._ActionsContainer, options: Iterable[Option]) -> None:
    """Add options to a parser."""
    for option in options:
        option.add_to(parser)


def collected(options: Iterable[Option], parsed_args: argparse.Namespace) -> dict[str, Any]:
    """The fields that the given options set, nested by their dots."""
    body: dict[str, Any] = {}
    for option in options:
        value = option.given(parsed_args)
        if value is not None:
            put(body, option.target, value)
    return body


def put(body: dict[str, Any], path: str, value: Any) -> None:
    """Set a dotted field; maps are merged into what is there."""
    *parents, last = path.split(".")
    for name in parents:
        below = body.get(name)
        if not isinstance(below, dict):
            below = body[name] = {}
        body = below
    if isinstance(value, dict) and isinstance(body.get(last), dict):
        body[last] = {**body[last], **value}
    else:
        body[last] = value
