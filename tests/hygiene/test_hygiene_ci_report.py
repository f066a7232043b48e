# SPDX-License-Identifier: Apache-2.0
"""What `.ci/run` says of a suite: counts, unexpected skips, kept results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import sources

REPORT = sources.ROOT / ".ci" / "report.py"


def _report(*words: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, str(REPORT), *words], capture_output=True, text=True, check=False
    )
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


def _junit(folder: Path, *cases: str) -> None:
    (folder / "one.xml").write_text(f"<testsuites>{''.join(cases)}</testsuites>", encoding="ascii")


GOOD = '<testcase classname="tests.a" name="good"/>'
BAD = '<testcase classname="tests.a" name="bad"><failure message="no"/></testcase>'
SKIP = '<testcase classname="tests.a" name="lazy"><skipped message="no card"/></testcase>'


@pytest.mark.parametrize(
    ("cases", "status", "line"),
    [
        ([GOOD, GOOD], 0, "suite one: 2 passed, 0 failed, 0 skipped in 7 s"),
        ([GOOD, BAD], 1, "suite one: 1 passed, 1 failed, 0 skipped in 7 s"),
        ([GOOD, SKIP], 0, "suite one: 1 passed, 1 failed, 1 skipped in 7 s"),
        ([GOOD], 124, "suite one: 1 passed, 1 failed, 0 skipped in 7 s"),
    ],
)
def test_suite_line(tmp_path: Path, cases: list[str], status: int, line: str) -> None:
    _junit(tmp_path, *cases)
    code, said = _report("suite", "one", str(status), "7", "abc", str(tmp_path))
    assert said.splitlines()[0] == line
    assert code == (0 if " 0 failed" in line else 1)


def test_a_suite_without_tests_counts_as_one(tmp_path: Path) -> None:
    assert _report("suite", "one", "0", "1", "abc", str(tmp_path))[0] == 0
    assert _report("suite", "two", "1", "1", "abc", str(tmp_path))[0] == 1
    code, said = _report("total", str(tmp_path), "one", "two")
    assert code == 1
    assert said.splitlines()[-1] == "1 passed, 1 failed"


def test_results_are_kept_for_their_commit_alone(tmp_path: Path) -> None:
    _report("suite", "one", "0", "1", "abc", str(tmp_path))
    assert json.loads((tmp_path / "one.json").read_text())["commit"] == "abc"
    assert _report("kept", "one", "abc", str(tmp_path))[0] == 0
    assert _report("kept", "one", "def", str(tmp_path))[0] == 1
    _report("suite", "one", "1", "1", "abc", str(tmp_path))
    assert _report("kept", "one", "abc", str(tmp_path))[0] == 1
