# SPDX-License-Identifier: Apache-2.0
"""The one place where drivers are looked up, by stevedore entry points."""

from __future__ import annotations

from typing import Any

from stevedore import driver
from stevedore.exception import NoMatches

from gpuservice.domain.errors import Misconfigured


class NoSuchDriver(Misconfigured):
    """The configuration names a driver that is not installed."""


def load(kind: str, name: str, *args: Any) -> Any:
    """The driver ``name`` of a kind (cloud, engine, quota, logs, objects), made with ``args``.

    :raises NoSuchDriver: when no such entry point is installed.
    """
    try:
        found: Any = driver.DriverManager(
            f"gpuservice.drivers.{kind}", name, invoke_on_load=True, invoke_args=args
        )
    except NoMatches as error:
        raise NoSuchDriver(f"There is no {kind} driver {name!r}.") from error
    return found.driver
