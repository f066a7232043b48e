#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turn the outcome of one suite into one result line, and many result lines into the last word.

    report.py suite NAME STATUS SECONDS COMMIT FOLDER   judge the suite, write FOLDER/NAME.json
    report.py kept NAME COMMIT FOLDER                   exit 0 if NAME passed on this commit before
    report.py total FOLDER NAME...                      print the closing lines; exit 1 on a failure

A suite made of pytest runs left FOLDER/NAME.xml (JUnit); any other counts as one test. A skipped
test must be listed in tests/hygiene/expected_skips.txt, else it fails the suite.
Only the standard library: this runs before anything is installed.
"""

from __future__ import annotations

import fnmatch
import json
import sys
from pathlib import Path
from xml.etree import ElementTree

EXPECTED_SKIPS = Path(__file__).parent.parent / "tests" / "hygiene" / "expected_skips.txt"


def read_cases(path: Path) -> dict[str, list[str]]:
    """Return the names of passed, failed and (with the reason) skipped tests of a JUnit file."""
    cases: dict[str, list[str]] = {"passed": [], "failed": [], "skipped": []}
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            cases["failed"].append(name)
        elif skipped is not None:
            cases["skipped"].append(f"{name}: {skipped.get('message')}")
        else:
            cases["passed"].append(name)
    return cases


def expected_skips() -> list[str]:
    """Return the patterns of tests that may be skipped on a machine that lacks a power."""
    lines = EXPECTED_SKIPS.read_text(encoding="utf-8").splitlines()
    return [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]


def judge(name: str, status: int, seconds: int, commit: str, folder: Path) -> int:
    """Print and keep the result of one suite; return 1 if it failed."""
    junit = folder / f"{name}.xml"
    if junit.exists():
        cases = read_cases(junit)
    else:
        cases = {"passed": [name] if status == 0 else [], "failed": [], "skipped": []}
    patterns = expected_skips()
    surprises = [
        skip
        for skip in cases["skipped"]
        if not any(fnmatch.fnmatch(skip.split(": ")[0], pattern) for pattern in patterns)
    ]
    failed = len(cases["failed"]) + len(surprises)
    if status != 0 and failed == 0:
        failed = 1
    counts = {"passed": len(cases["passed"]), "failed": failed, "skipped": len(cases["skipped"])}
    result = {"suite": name, "commit": commit, "seconds": seconds, **counts}
    (folder / f"{name}.json").write_text(json.dumps(result) + "\n", encoding="utf-8")
    print(line_of(result))
    for skip in cases["skipped"]:
        print(f"    skipped{' UNEXPECTEDLY' if skip in surprises else ''}: {skip}")
    for case in cases["failed"]:
        print(f"    failed: {case}")
    return 1 if failed else 0


def line_of(result: dict[str, object]) -> str:
    """Return the result line of one suite."""
    return (
        f"suite {result['suite']}: {result['passed']} passed, {result['failed']} failed, "
        f"{result['skipped']} skipped in {result['seconds']} s"
    )


def kept(name: str, commit: str, folder: Path) -> int:
    """Return 0, and print the kept line, if the suite passed on this commit already."""
    path = folder / f"{name}.json"
    if not path.exists():
        return 1
    result = json.loads(path.read_text(encoding="utf-8"))
    if result["failed"] or result["commit"] != commit:
        return 1
    print(f"{line_of(result)} (kept)")
    return 0


def total(folder: Path, names: list[str]) -> int:
    """Print every result line once more and the sum."""
    passed = failed = 0
    print("\n---- results")
    for name in names:
        result = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        print(line_of(result))
        passed += result["passed"]
        failed += result["failed"]
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def main(words: list[str]) -> int:
    """Dispatch on the first word."""
    if words[0] == "suite":
        return judge(words[1], int(words[2]), int(words[3]), words[4], Path(words[5]))
    if words[0] == "kept":
        return kept(words[1], words[2], Path(words[3]))
    return total(Path(words[1]), words[2:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
