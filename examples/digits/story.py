# SPDX-License-Identifier: Apache-2.0
"""What the demo tells its story with: the service, the command, narration and checks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import yaml

HERE = Path(__file__).parent
READY = "gpuservice ready at"
READY_S = 60.0
#: The demo loses a node on purpose; short leases let the loss be noticed while one watches.
SETTINGS = """\
[agent]
lease_s = 5
interval_s = 0.5
"""


class StoryError(Exception):
    """The service did not do what the story says."""


def check(holds: bool, what: str) -> None:
    """Tick ``what`` off, or end the story."""
    if not holds:
        raise StoryError(f"NOT as it should be: {what}")
    print(f"   [ok] {what}", flush=True)


def tell(text: str) -> None:
    """Print a paragraph of the story."""
    print(textwrap.fill(text, 96, initial_indent="   ", subsequent_indent="   "), flush=True)


def chapter(title: str) -> None:
    """Begin a chapter."""
    print(f"\n== {title}", flush=True)


def until(what: str, seconds: float, probe: Callable[[], Any]) -> Any:
    """Call ``probe`` until it returns something true, and return that."""
    deadline = time.monotonic() + seconds
    while True:
        answer = probe()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise StoryError(f"waited {seconds:.0f} s in vain for: {what}")
        time.sleep(0.3)


class Command:
    """The ``openstack gpu`` command, spoken as a user would."""

    def __init__(self, endpoint: str) -> None:
        program = Path(sys.executable).with_name("openstack")
        self._words = [str(program), "--os-auth-type", "none", "--os-endpoint", endpoint, "gpu"]

    def say(self, *words: str, shown: bool = True) -> str:
        """Run the command, show it, and return what it printed; fail if it fails."""
        status, text, error = self.run(*words, shown=shown)
        if status != 0:
            raise StoryError(f"openstack gpu {' '.join(words)} ended with {status}: {text}{error}")
        return text

    def run(self, *words: str, shown: bool = True) -> tuple[int, str, str]:
        """Run the command and return its exit status, output and error output."""
        if shown:
            print(f"   $ openstack gpu {' '.join(words)}", flush=True)
        done = subprocess.run(
            [*self._words, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def ask(self, *words: str, shown: bool = False) -> Any:
        """Run the command with ``-f json`` and return the answer."""
        return json.loads(self.say(*words, "-f", "json", shown=shown))

    def follow(self, job: str, enough: Callable[[str], bool]) -> list[str]:
        """Show the log of ``job`` as it grows, until a line is enough or the log ends."""
        print(f"   $ openstack gpu job logs --follow {job}", flush=True)
        lines = []
        with subprocess.Popen(
            [*self._words, "job", "logs", "--follow", job],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line.rstrip())
                print(f"     | {lines[-1]}", flush=True)
                if enough(line):
                    process.terminate()
                    break
        return lines


class Place:
    """The state directory of the demo's service and what the demo puts into it."""

    def __init__(self, root: Path) -> None:
        # Tasks may run as users of their own and must reach what they are given.
        root.chmod(0o755)
        self.root = root
        self.state = root / "state"
        self.data = self.state / "data"
        # Tasks see nothing of the state directory: what they read themselves lies beside it.
        self.site = root / "site"
        self.settings = root / "gpuservice.conf"

    def furnish(self) -> None:
        """Lay out the inputs, and numpy for a Python that may not read our virtualenv."""
        self.data.mkdir(parents=True, mode=0o755)
        self.settings.write_text(SETTINGS, encoding="ascii")
        for name in ("train.py", "digits.csv.gz"):
            shutil.copyfile(HERE / name, self.data / name)
            (self.data / name).chmod(0o644)
        packages = Path(np.__file__).parent.parent
        for folder in ("numpy", "numpy.libs"):
            if (packages / folder).is_dir():
                shutil.copytree(
                    packages / folder,
                    self.site / folder,
                    ignore=shutil.ignore_patterns("tests", "__pycache__", "*.pyi", "*.a"),
                )

    def job(self, name: str, **changes: Any) -> str:
        """Write a job file made from ``job.yaml`` with ``changes``; return its path."""
        text = (HERE / "job.yaml").read_text(encoding="utf-8")
        job = yaml.safe_load(text.replace("/srv/gpuservice/data", str(self.data)))["job"]
        job |= {"name": name, "env": {"PYTHONPATH": str(self.site)}}
        job |= changes
        path = self.root / f"{name}.yaml"
        path.write_text(yaml.safe_dump({"job": job}, sort_keys=False), encoding="utf-8")
        return str(path)


def python() -> str:
    """Return an interpreter like ours (numpy was built for it) that tasks may run.

    Started by root, the service gives tasks users of their own, and those may not look into
    root's home, where ours may be.
    """
    twin = f"python{sys.version_info.major}.{sys.version_info.minor}"
    ours = os.path.realpath(sys.executable)
    for path in (ours, f"/usr/bin/{twin}", f"/usr/local/bin/{twin}"):
        if os.path.exists(path) and (os.geteuid() != 0 or _open_to_all(Path(path).resolve())):
            return path
    raise StoryError(f"other users than root may not run {ours}: please start this as one of them")


def _open_to_all(path: Path) -> bool:
    """Whether everybody may reach and run ``path``."""
    return all(place.stat().st_mode & 0o001 for place in (path, *path.parents))


@contextmanager
def service(place: Place) -> Iterator[Command]:
    """Run the whole service in one process for as long as the story lasts."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    program = str(Path(sys.executable).with_name("gpuservice-all-in-one"))
    words = [program, "--state-dir", str(place.state), "--listen", address]
    words += ["--config-file", str(place.settings), "--stop-tasks"]
    print(f"   $ {' '.join([Path(program).name, *words[1:]])}", flush=True)
    log = place.root / "service.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True
        )
    try:
        until("the service to be ready", READY_S, lambda: _ready(process, log))
        yield Command(f"http://{address}")
    except BaseException:
        print("\n---- the last lines of the service's log")
        print("\n".join(log.read_text(errors="replace").splitlines()[-40:]))
        raise
    finally:
        _stop(process)


def _ready(process: subprocess.Popen[bytes], log: Path) -> bool:
    """Whether the service said that it serves; fail if it ended instead."""
    said = log.read_text(errors="replace")
    if process.poll() is not None:
        raise StoryError(f"the service ended with {process.returncode}")
    for line in said.splitlines():
        if READY in line:
            tell(line[line.index(READY) :])
            return True
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ask the service to stop; insist after half a minute."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
