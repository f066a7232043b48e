# SPDX-License-Identifier: Apache-2.0
"""The process of one what-if: material on standard input, progress and result as lines of JSON.

Started by the service alone, with the seconds and the MiB that it may use.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import sys
import time
from collections.abc import Sequence
from typing import Any

from gpuservice.simulation.faults import InputFault, PlanFault
from gpuservice.simulation.what_if import Material, what_if

#: Seconds between two lines of progress.
EVERY_S = 0.5


class Progress:
    """Tells how far it is, now and then."""

    def __init__(self) -> None:
        self._told_at = time.monotonic()

    def __call__(self, share: float) -> None:
        """``share`` of the work is done."""
        now = time.monotonic()
        if now - self._told_at >= EVERY_S:
            self._told_at = now
            tell({"progress": int(100 * share)})


def tell(said: dict[str, Any]) -> None:
    """One line."""
    sys.stdout.write(json.dumps(said, sort_keys=True) + "\n")
    sys.stdout.flush()


def main(argv: Sequence[str] | None = None) -> int:
    """Simulate. Whatever comes of it is said in the last line."""
    seconds, mib = (int(word) for word in (sys.argv[1:] if argv is None else argv))
    _bound(seconds, mib)
    try:
        material: Material = pickle.load(sys.stdin.buffer)
        result = what_if(material, Progress())
    except InputFault as fault:
        tell({"fault": f"It cannot be simulated: {fault}."})
    except PlanFault as fault:
        tell({"fault": f"The simulation went wrong: {fault}."})
    except MemoryError:
        tell({"fault": f"It needs more than {mib} MiB; simulate less ([simulation] memory_mib)."})
    except BrokenPipeError:
        return 1
    else:
        tell({"result": result})
    return 0


def _bound(seconds: int, mib: int) -> None:
    """Time and memory; nobody else is to wait for it."""
    os.nice(10)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds + 1, seconds + 5))
    resource.setrlimit(resource.RLIMIT_AS, (mib << 20, mib << 20))


if __name__ == "__main__":
    sys.exit(main())
