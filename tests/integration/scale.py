# SPDX-License-Identifier: Apache-2.0
"""How large the integration tests are: a tenth by default, ``full`` for the acceptance runs."""

from __future__ import annotations

import os

FULL = os.environ.get("GPUSERVICE_TEST_SCALE", "tenth") == "full"


def sized(full: int, tenth: int) -> int:
    """The number for this run."""
    return full if FULL else tenth
