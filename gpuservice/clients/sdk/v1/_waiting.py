# SPDX-License-Identifier: Apache-2.0
"""Waiting until something on the server has ended, by looking again and again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from openstack import exceptions


class Ending(Protocol):
    """What ends at some time."""

    id: Any
    status: Any

    @property
    def is_ended(self) -> bool:
        """Whether it has."""


E = TypeVar("E", bound=Ending)


def until_ended(
    look: Callable[[], E],
    noun: str,
    timeout_s: float | None,
    interval_s: float,
    seen: Callable[[E], None] | None,
) -> E:
    """The thing once it has ended.

    :param look: reads it; ``seen``: called with it after each look.
    :raises openstack.exceptions.ResourceTimeout: after ``timeout_s``.
    """
    until = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        current = look()
        if seen is not None:
            seen(current)
        if current.is_ended:
            return current
        if until is not None and time.monotonic() >= until:
            raise exceptions.ResourceTimeout(
                f"The {noun} {current.id} is still {current.status} after {timeout_s:g} s."
            )
        time.sleep(interval_s)
