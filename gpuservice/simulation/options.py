# SPDX-License-Identifier: Apache-2.0
"""``--set GROUP.NAME=VALUE``: every field of the policy, of the simulated world and of reading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from gpuservice.planner.snapshot import DueTimes, Policy
from gpuservice.simulation.faults import InputFault
from gpuservice.simulation.replay import World
from gpuservice.simulation.workload import Reading

#: Fields whose values are words.
CHOICES: dict[str, tuple[str, ...]] = {
    "order": ("fair", "fifo", "multifactor"),
    "backfill_order": ("line", "short_first", "area_slowdown"),
    "preempt": ("priority", "reclaim", "due_gangs", "short_jobs"),
}
#: The least value of a field, where it is not 0; and those that must be more than 0.
LEAST: dict[str, float] = {"promises": -1, "small_promises": -1, "first": 1, "host_gpus": 1}
POSITIVE = frozenset({"usage_half_life_s", "limit_factor", "age_max_s"})
#: Fields of the policy that a replay never asks for.
LEFT_OUT = frozenset({"explain", "counterfactuals", "estimates", "focus"})
WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


@dataclass(frozen=True, slots=True)
class Options:
    """What ``--set`` changes."""

    scheduler: Policy
    simulation: World
    workload: Reading


def apply(options: Options, settings: Sequence[str]) -> Options:
    """The options with these settings, in order.

    :raises InputFault: naming the setting and what is right.
    """
    for setting in settings:
        name, equals, value = setting.partition("=")
        group, dot, rest = name.partition(".")
        groups = tuple(one.name for one in fields(Options))
        if not equals or not dot or group not in groups:
            raise InputFault(
                f"--set {setting}: write GROUP.NAME=VALUE; GROUP is one of {', '.join(groups)}"
            )
        changed = _set(getattr(options, group), rest, value, setting)
        options = replace(options, **{group: changed})
    return options


def _set(target: Any, name: str, value: str, setting: str) -> Any:
    head, _, rest = name.partition(".")
    hints = get_type_hints(type(target))
    known = [one.name for one in fields(target) if one.name not in LEFT_OUT]
    if head not in known:
        raise InputFault(f"--set {setting}: there is no '{head}'; one of {', '.join(known)}")
    kinds = _kinds(hints[head])
    nested = next((kind for kind in kinds if is_dataclass(kind)), None)
    if rest or (nested is not None and value != "none"):
        if nested is None:
            raise InputFault(f"--set {setting}: '{head}' has no parts")
        if not rest:
            parts = ", ".join(f"{head}.{one.name}" for one in fields(nested))
            none = " or none" if type(None) in kinds else ""
            raise InputFault(f"--set {setting}: set one of {parts}{none}")
        inner = getattr(target, head)
        inner = DueTimes() if inner is None else inner
        return replace(target, **{head: _set(inner, rest, value, setting)})
    return replace(target, **{head: _value(head, kinds, value, setting)})


def _kinds(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _value(name: str, kinds: tuple[Any, ...], value: str, setting: str) -> Any:
    if type(None) in kinds and value == "none":
        return None
    kind = next(one for one in kinds if one is not type(None))
    if get_origin(kind) is frozenset:
        words = [] if value in ("", "none") else value.split(",")
        for word in words:
            _choose(name, word, setting)
        return frozenset(words)
    if kind is bool:
        if value.lower() not in WORDS:
            raise InputFault(f"--set {setting}: write true or false")
        return WORDS[value.lower()]
    if kind is str:
        return _choose(name, value, setting)
    return _number(name, kind, value, setting)


def _choose(name: str, word: str, setting: str) -> str:
    if word not in CHOICES[name]:
        raise InputFault(f"--set {setting}: one of {', '.join(CHOICES[name])}, not '{word}'")
    return word


def _number(name: str, kind: type, value: str, setting: str) -> int | float:
    least = LEAST.get(name, 0)
    bound = "above 0" if name in POSITIVE else f"of at least {least}"
    right = f"write a {'whole ' if kind is int else ''}number {bound}"
    try:
        found: int | float = int(value) if kind is int else float(value)
    except ValueError:
        raise InputFault(f"--set {setting}: {right}") from None
    if not least <= found < float("inf") or (name in POSITIVE and found <= 0):
        raise InputFault(f"--set {setting}: {right}")
    return found


def describe() -> str:
    """Every name that can be set, with its default, for the help text."""
    lines = []
    for group, target in (
        ("scheduler", Policy()),
        ("simulation", World()),
        ("workload", Reading()),
    ):
        for name, value in _flat(target):
            choices = CHOICES.get(name)
            more = f" ({', '.join(choices)})" if choices else ""
            lines.append(f"  {group}.{name}={_shown(value)}{more}")
    return "\n".join(lines)


def _flat(target: Any, prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for one in fields(target):
        if one.name in LEFT_OUT:
            continue
        value = getattr(target, one.name)
        if is_dataclass(value):
            found.extend(_flat(value, f"{prefix}{one.name}."))
        else:
            found.append((prefix + one.name, value))
    return found


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, frozenset):
        return ",".join(sorted(value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
