# SPDX-License-Identifier: Apache-2.0
"""All option groups, found by walking this package: nothing to add here for a new file."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import Any

from oslo_config import cfg

import gpuservice.conf


def _modules() -> list[ModuleType]:
    names = sorted(one.name for one in pkgutil.iter_modules(gpuservice.conf.__path__))
    return [importlib.import_module(f"gpuservice.conf.{name}") for name in names if name != "opts"]


def register_all(conf: cfg.ConfigOpts) -> None:
    """Register every option of the service."""
    for module in _modules():
        module.register_opts(conf)


def list_opts() -> list[tuple[str, list[Any]]]:
    """What ``oslo-config-generator`` writes into the sample file."""
    return [(module.GROUP, list(module.OPTS)) for module in _modules()]
