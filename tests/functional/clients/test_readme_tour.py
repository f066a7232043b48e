# SPDX-License-Identifier: Apache-2.0
"""The tour of the README, as it stands there, on the service that it starts."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import readme
from openstack_shell import run_openstack

from gpuservice.cmd import all_in_one

sys.path.insert(0, str(readme.ROOT / "tests" / "integration"))

from programs import Program, kill_all, processes_naming, until

#: The placeholder of the README for the name or id of a job.
JOB = "<job>"


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that tasks with a user of their own can reach, which pytest's are not."""
    with tempfile.TemporaryDirectory(prefix="gpuservice-", dir="/var/tmp") as folder:
        place = Path(folder)
        place.chmod(0o711)
        yield place
        kill_all(list(processes_naming(place)))


@pytest.fixture
def url(place: Path) -> Iterator[str]:
    """Where the service listens that the README starts."""
    name, *words = readme.service(place, "--listen", "127.0.0.1:0", "--stop-tasks")
    assert name == all_in_one.PROGRAM
    program = Program(name, name, [all_in_one.__name__, *words], place / "log")
    program.start()
    try:
        ready = r"(?m)^gpuservice ready at (http://\S+)$"
        until(lambda: re.search(ready, program.log_text) or not program.alive(), "the service")
        found = re.search(ready, program.log_text)
        assert found, program.log_text
        yield found.group(1)
    finally:
        program.end()


def check(line: str, out: str, place: Path) -> None:
    """What a command of the tour is there to show."""
    if " --wait" in line:
        assert re.search(r"\| status +\| succeeded ", out)
    elif " --dry-run" in line:
        assert re.search(r"\| status +\| starts_now ", out)
    elif " job list" in line:
        assert " gang " in out
    elif " job logs" in line:
        assert out == "rank 0 of 4\n"
    elif " job explain" in line:
        assert "succeeded" in out
    elif " job download" in line:
        files = sorted(path for path in (place / "results").rglob("*") if path.is_file())
        assert [path.read_text() for path in files] == [f"rank {rank} of 4\n" for rank in range(4)]


def test_every_command_of_the_readme(
    place: Path,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name in [name for name in os.environ if name.startswith("OS_")]:
        monkeypatch.delenv(name)
    for name, value in readme.exported().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OS_ENDPOINT", url)
    # The reader is in a clone of the repository, which a test must not write to.
    (place / "examples").symlink_to(readme.ROOT / "examples")
    monkeypatch.chdir(place)
    job, shown = None, set()
    for line in readme.commands():
        assert JOB not in line or job, f"no job was created before: {line}"
        words = readme.words(line.replace(JOB, str(job)))
        shown.add(" ".join(words[1:3]))
        code, out, err = run_openstack(capfd, *words)
        assert code == 0, f"{line}\n{out}\n{err}"
        check(line, out, place)
        created = re.search(r"\| id +\| ([0-9a-f-]{36}) ", out)
        job = created.group(1) if created else job
    assert shown >= {"job create", "job list", "job logs", "job explain", "job download"}


def test_the_readme_names_the_address_that_the_service_listens_on() -> None:
    parser = all_in_one._parser()
    assert readme.exported()["OS_ENDPOINT"] == f"http://{parser.get_default('listen')}"


def test_the_words_of_a_command_are_those_of_a_shell() -> None:
    assert readme.words("openstack gpu a 'b $c' \"d\"  e\\ f") == ["gpu", "a", "b $c", "d", "e f"]
