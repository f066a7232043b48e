# SPDX-License-Identifier: Apache-2.0
"""What the README tells its reader to type."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def typed_lines() -> list[str]:
    """The lines of the indented blocks, continued ones joined, without comments."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = (line.strip() for line in text.splitlines() if line.startswith("    "))
    return [line for line in lines if line and not line.startswith("#")]


def commands() -> list[str]:
    """The ``openstack gpu`` commands, in order."""
    return [line for line in typed_lines() if line.startswith("openstack gpu ")]


def exported() -> dict[str, str]:
    """The variables for the ``openstack`` command that the reader exports."""
    lines = [shlex.split(line)[1:] for line in typed_lines() if line.startswith("export ")]
    pairs = (word.partition("=") for words in lines for word in words)
    return {name: value for name, _, value in pairs if name.startswith("OS_")}


def service(env_dir: Path, *more: str) -> list[str]:
    """The command of the tox environment that the README starts the service by.

    :param more: given after ``tox -e ENV --``.
    """
    (environment,) = {
        found.group(1)
        for line in typed_lines()
        if (found := re.fullmatch(r"\.venv/bin/tox -e (\w+)", line))
    }
    tox = (ROOT / "tox.ini").read_text(encoding="utf-8")
    section = tox.partition(f"[testenv:{environment}]\n")[2].partition("\n[")[0]
    command = section.partition("\ncommands = ")[2].partition("\n")[0]
    filled = command.replace("{env_dir}", str(env_dir)).replace("{posargs}", shlex.join(more))
    return shlex.split(filled)


def words(line: str) -> list[str]:
    """The words that a shell makes of ``openstack ...``, but for the first."""
    script = f"openstack() {{ printf '%s\\0' \"$@\"; }}\n{line}\n"
    done = subprocess.run(["sh", "-ec", script], capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]
