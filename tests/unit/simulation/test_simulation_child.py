# SPDX-License-Identifier: Apache-2.0
"""The process of a what-if as its parent sees it, whatever it does."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from gpuservice.simulation.child import Bounds, ChildRun

PATIENCE_S = 30.0


def run(program: str, time_limit_s: int = 60) -> ChildRun:
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    return ChildRun(process, Bounds(time_limit_s, 512), time.monotonic)


def end_of(child: ChildRun):
    until = time.monotonic() + PATIENCE_S
    while (end := child.end()) is None and time.monotonic() < until:
        time.sleep(0.01)
    return end


def test_progress_and_result() -> None:
    child = run("""print('{"progress": 42}'); print('{"result": {"a": 1}}')""")
    end = end_of(child)
    assert end is not None and end.result == {"a": 1} and end.fault is None
    assert child.progress == 42


def test_a_fault_is_passed_on() -> None:
    end = end_of(run("""print('{"fault": "No."}')"""))
    assert end is not None and (end.result, end.fault) == (None, "No.")


@pytest.mark.parametrize(
    "program",
    [
        "pass",
        "raise SystemExit(3)",
        "print('what?')",
        "print('[]')",
        "print('{}')",
        """print('{"progress": "x"}')""",
        """print('{"progress": 1e999}')""",
        "import os; os.kill(os.getpid(), 9)",
    ],
)
def test_an_end_without_a_result_is_told(program: str) -> None:
    end = end_of(run(program))
    assert end is not None and end.result is None
    assert "ended without a result" in str(end.fault)


def test_it_is_stopped() -> None:
    child = run("import time; time.sleep(600)")
    assert child.end() is None
    child.stop()
    assert child.end() is not None
    child.stop()  # again does no harm


def test_what_takes_too_long_is_ended() -> None:
    child = run("import time; time.sleep(600)", time_limit_s=0)
    end = child.end()
    assert end is not None and "not done after 0 s" in str(end.fault)
    assert child._process.poll() is not None
