# SPDX-License-Identifier: Apache-2.0
"""Real programs as child processes, and what the process table says of tasks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

#: How long anything may take here that has no deadline of its own, in seconds.
PATIENCE_S = 60.0


def until(look: Callable[[], T], what: str, patience_s: float = PATIENCE_S) -> T:
    """Poll until ``look`` gives something true, and return that."""
    deadline = time.monotonic() + patience_s
    while not (found := look()):
        assert time.monotonic() < deadline, f"{what} did not come within {patience_s:g} s"
        time.sleep(0.05)
    return found


class Program:
    """One program that may be killed and started again; its output goes to one log file."""

    def __init__(self, kind: str, name: str, argv: Sequence[str], log: Path) -> None:
        self.kind = kind
        self.name = name
        self._argv = [sys.executable, "-m", *argv]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id of the present life."""
        assert self._process is not None
        return self._process.pid

    @property
    def log_text(self) -> str:
        """All it ever wrote."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def start(self) -> None:
        """Start it; returns at once."""
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(
                self._argv,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )

    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def send(self, number: int) -> None:
        """Send it a signal, if it runs."""
        if self.alive():
            os.kill(self.pid, number)

    def end(self, number: int | None = signal.SIGTERM, patience_s: float = 20.0) -> int | None:
        """End it by a signal (None: it was sent before); one that lingers is killed."""
        if self._process is None:
            return None
        if number is not None:
            self.send(number)
        try:
            return self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGCONT)
            self.send(signal.SIGKILL)
            return self._process.wait()

    def restart(self) -> None:
        """SIGKILL, then start again."""
        self.end(signal.SIGKILL)
        self.start()


def _environment(pid: int) -> dict[str, str]:
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # gone meanwhile
        return {}
    pairs = (entry.partition(b"=") for entry in text.split(b"\0") if entry)
    return {key.decode(errors="replace"): value.decode(errors="replace") for key, _, value in pairs}


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())


def _is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


TaskKey = tuple[str, int, int, int]


def task_processes(job_id: str | None = None) -> dict[int, TaskKey]:
    """Processes that are tasks (of one job): pid -> (job, index, attempt, rank)."""
    found: dict[int, TaskKey] = {}
    for pid in _pids():
        seen = _environment(pid)
        job = seen.get("GPUSERVICE_JOB_ID")
        if job and job_id in (None, job) and not _is_dead(pid):
            found[pid] = (
                job,
                int(seen["GPUSERVICE_ARRAY_INDEX"]),
                int(seen["GPUSERVICE_ATTEMPT"]),
                int(seen["GPUSERVICE_TASK_RANK"]),
            )
    return found


def _command_line(pid: int) -> str:
    try:
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        )
    except OSError:
        return ""


def processes_naming(place: Path) -> dict[int, str]:
    """Processes (but this one) whose command line or working directory lies below a directory."""
    found = {}
    for pid in _pids():
        if pid == os.getpid() or _is_dead(pid):
            continue
        try:
            where = os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            continue
        if str(place) in (line := _command_line(pid)) or where.startswith(f"{place}/"):
            found[pid] = line
    return found


def kill_all(pids: Sequence[int], number: int = signal.SIGKILL) -> None:
    """Signal processes that may have ended meanwhile."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
