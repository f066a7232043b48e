# SPDX-License-Identifier: Apache-2.0
"""What a job's row says of its waiting once nothing of it waits any more."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

#: The columns of a job that a list shows while it waits, emptied.
NOT_WAITING: Mapping[str, Any] = MappingProxyType(
    {
        "waiting_code": None,
        "waiting_summary": None,
        "waiting_position": None,
        "waiting_estimated_start_at": None,
    }
)
