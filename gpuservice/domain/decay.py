# SPDX-License-Identifier: Apache-2.0
"""What is past counts less and less: half after each half-life. Times are in seconds."""

from __future__ import annotations

import math


def faded(value: float, seconds: float, half_life: float) -> float:
    """What ``value`` is worth ``seconds`` later."""
    return value * math.pow(2.0, -seconds / half_life)


def worth(rate: float, begin: float, end: float, seen: float, half_life: float) -> float:
    """What ``rate`` a second, had from ``begin`` to ``end``, is worth when seen at ``seen``: the
    integral of what each of those seconds is worth then."""
    if end <= begin:
        return 0.0
    now = faded(1.0, seen - end, half_life) - faded(1.0, seen - begin, half_life)
    return rate * half_life / math.log(2.0) * now
