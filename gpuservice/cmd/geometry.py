# SPDX-License-Identifier: Apache-2.0
"""Which hosts and cards an all-in-one has: decided once, since flavor, pool and nodes are made for
them at the first start on a state directory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oslo_config import cfg

from gpuservice.domain.errors import CloudError, Misconfigured
from gpuservice.drivers import durable_files, loader

_FILE = "geometry.json"
#: Argument -> option group, option and what it is at a first start that does not say it.
_ARGUMENTS = {
    "cloud": ("cloud", "driver", "simulated"),
    "hosts": ("simulated", "hosts", 8),
    "gpus_per_host": ("simulated", "gpus_per_host", 8),
    "gpu_type": ("simulated", "gpu_type", "a100-80gb"),
}


def decide(conf: cfg.ConfigOpts, state: Path, given: Mapping[str, Any]) -> None:
    """Set the options: as the arguments say, else as the state directory was begun.

    :raises Misconfigured: when it was begun with others.
    """
    kept = _kept(state)
    for argument, (group, option, default) in _ARGUMENTS.items():
        value = given.get(argument)
        conf.set_default(option, kept.get(argument, default) if value is None else value, group)
    now = _now(conf)
    other = [one for one in now if one in kept and kept[one] != now[one]]
    if other:
        told = ", ".join(f"{_flag(one)} {kept[one]} (now {now[one]})" for one in other)
        raise Misconfigured(
            f"the state directory {state} was begun with {told}; its pool and nodes are made for "
            "that: start it with the same, or begin another state directory"
        )


def keep(conf: cfg.ConfigOpts, state: Path) -> None:
    """Write down what was decided, for the starts to come, where it is not written yet.

    :raises Misconfigured: when that cannot be written.
    """
    now = _now(conf)
    if _kept(state) == now:
        return
    try:
        durable_files.replace(state / _FILE, json.dumps(now))
    except OSError as error:
        raise Misconfigured(f"{state / _FILE} cannot be written: {error}") from error


def hosts(conf: cfg.ConfigOpts) -> int:
    """How many hosts there are, each with an agent of its own in this process."""
    return int(conf.simulated.hosts) if conf.cloud.driver == "simulated" else 1


def look_at_cards(conf: cfg.ConfigOpts) -> None:
    """See at once whether this machine has cards, where they are what is to be served.

    :raises Misconfigured: when it has none, or they cannot be asked.
    """
    if conf.cloud.driver != "local":
        return
    try:
        hosts = loader.load("cloud", "local", conf).inventory()
    except CloudError as error:
        raise Misconfigured(f"--cloud local: {error.detail}") from error
    if not any(host.devices for host in hosts):
        raise Misconfigured("--cloud local: this machine has no NVIDIA card")


def _now(conf: cfg.ConfigOpts) -> dict[str, Any]:
    """What holds now; of the simulated hosts only where they are what is served."""
    names = _ARGUMENTS if conf.cloud.driver == "simulated" else ("cloud",)
    return {one: conf[_ARGUMENTS[one][0]][_ARGUMENTS[one][1]] for one in names}


def _kept(state: Path) -> dict[str, Any]:
    try:
        kept = json.loads((state / _FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise Misconfigured(f"{state / _FILE} cannot be read: {error}") from error
    except ValueError:
        kept = None
    if not isinstance(kept, dict):
        raise Misconfigured(
            f"{state / _FILE} is not whole: remove it, and start with the arguments that the "
            "state directory was begun with"
        )
    return kept


def _flag(argument: str) -> str:
    return f"--{argument.replace('_', '-')}"
