# SPDX-License-Identifier: Apache-2.0
"""Whether tasks of two projects may be on one node at once.

Only on pools that say so (``isolation: device``), and there only on nodes whose agent has proved
that it keeps tasks apart; any other node of such a pool is given to one project at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PROVED = ("own_uid", "device_filter", "private_tmp")
#: As agents call them.
_NAMESPACES = ("mount", "pid", "ipc")


def unproved(capabilities: Mapping[str, Any]) -> tuple[str, ...]:
    """What an agent has not proved of what sharing a node between projects needs."""
    spaces = capabilities.get("namespaces") or ()
    return (
        *(name for name in _PROVED if not capabilities.get(name)),
        *(f"{name} namespace" for name in _NAMESPACES if name not in spaces),
    )


def one_project_at_a_time(isolation: str, capabilities: Mapping[str, Any]) -> bool:
    """Whether a node of a pool with this isolation is for one project at a time."""
    if isolation == "none":
        return False
    return isolation != "device" or bool(unproved(capabilities))


def reasons_unproved(capabilities: Mapping[str, Any]) -> tuple[str, ...]:
    """The same as :func:`unproved` for people, with what the agent says of it."""
    why = capabilities.get("device_filter_reason")
    return tuple(
        f"device_filter ({why})" if name == "device_filter" and why else name
        for name in unproved(capabilities)
    )
