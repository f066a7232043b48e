# SPDX-License-Identifier: Apache-2.0
"""What the spawner has loaded: all of it is what each of its forks pays for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HOME = Path(__file__).parents[3]
#: What a child of the spawner would load or do again by itself, at every task.
_AFTER_FORK = "threading", "logging", "random"


def loaded(module: str) -> set[str]:
    code = f"import sys; sys.path.append({str(HOME)!r}); import {module}; print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-S", "-E", "-s", "-c", code], capture_output=True, text=True, check=True
    )
    return set(ran.stdout.split())


def test_the_spawner_has_no_more_than_the_standard_library_and_nothing_for_threads() -> None:
    names = loaded("gpuservice.agent.spawner")
    ours = {name.partition(".")[0] for name in names}
    assert ours <= set(sys.stdlib_module_names) | {"__main__", "gpuservice"}
    assert not names & set(_AFTER_FORK)
