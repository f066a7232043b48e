# SPDX-License-Identifier: Apache-2.0
"""The process that holds one task: starts it, keeps its output, ends it, writes down its end.

It belongs to nobody: agent and spawner may die or be replaced. It is told what to do by files
(``stop``, the lease file) and a signal that only says "look now". Where pid namespaces are
allowed it is process 1 of the task's own, so that its death is the death of the whole tree.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
from typing import Any, NoReturn

from gpuservice.agent import execution, isolation, plain_files, process_tree, task_files
from gpuservice.agent.cgroups import TaskGroup, kernel_oom_kills
from gpuservice.agent.lease import LOOK_S, LeaseReader, boot_id, boot_time
from gpuservice.agent.logfiles import STREAMS, SegmentWriter
from gpuservice.agent.task_files import Launch, Result

#: A task may be over its limit by this much and still have ended "exactly at" it: the time that
#: start and end of a process themselves take.
LIMIT_SLACK_S = 0.25
#: A task that lives longer is announced as running, seconds.
ANNOUNCE_S = 0.02
_READ_BYTES = 65536


def run(directory: str, events: socket.socket) -> NoReturn:
    """Be the supervisor of the task whose order lies in ``directory``; ends the process.

    The signals that ask for an end are ignored already, by the spawner that forked it.
    """
    try:
        os.setsid()
        wake, wake_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        for number in (signal.SIGUSR1, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        itself = int(os.readlink("/proc/self"))
        me = {"pid": itself, "start": process_tree.start_time(itself), "boot": boot_id()}
        if task_files.claim(directory, me):
            launch = Launch(**task_files.read_json(f"{directory}/{task_files.ORDER}")["launch"])
            supervisor = Supervisor(launch, events, wake)
            supervisor.tell("claimed")
            supervisor.supervise()
        else:
            _tell(events, "refused", os.path.basename(directory))
    finally:
        os._exit(0)


def _tell(events: socket.socket, event: str, task_id: str) -> None:
    message = json.dumps({"event": event, "task_id": task_id}).encode()
    with contextlib.suppress(OSError):
        events.send(message, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


class Supervisor:
    """One task from its fork to its written end."""

    def __init__(self, launch: Launch, events: socket.socket, wake: int) -> None:
        self._launch = launch
        self._events = events
        self._wake = wake
        self._lease = LeaseReader(launch.lease_file)
        self._group = TaskGroup(launch.groups, launch.directory)
        self._poll = select.poll()
        self._poll.register(wake, select.POLLIN)
        self._logs = {
            stream: SegmentWriter(
                launch.directory, stream, launch.log_max_bytes, launch.log_segment_bytes
            )
            for stream in STREAMS
        }
        self._pipes: dict[int, SegmentWriter] = {}
        self._main = 0
        self._status: int | None = None
        self._started_at = time.time()
        self._began = boot_time()
        self._limit_s = launch.time_limit_s
        self._limit_at: float | None = None
        self._kill_at: float | None = None
        self._announced = False
        self._cause: str | None = None
        self._next_look = 0.0

    def tell(self, event: str) -> None:
        """Tell the agent, if the one that ordered this task is still there; files say the rest."""
        _tell(self._events, event, self._launch.task_id)

    def supervise(self) -> None:
        """Run the task to its end and write the result."""
        if os.getpid() != 1:
            isolation.adopt_orphans()
        kills_before = kernel_oom_kills()
        failure: dict[str, str] | None
        try:
            task_files.reserve_result(self._launch.directory)
            launch = self._launch
            self._group.create(
                launch.memory_mib, launch.vcpus, launch.devices, launch.max_processes
            )
            failure = self._start()
        except OSError as error:
            failure = {
                "class": "node_failure",
                "evidence": f"the task could not be started: {error}",
            }
        if failure is None:
            self._watch()
        self._end_tree()
        self._drain()
        task_files.save_result(self._launch.directory, self._result(failure, kills_before))
        self._group.remove()

    def _start(self) -> dict[str, str] | None:
        """Fork the task; returns why its program could not start, null if it did."""
        heard, tell = os.pipe2(os.O_CLOEXEC)
        ends = {stream: os.pipe2(os.O_CLOEXEC) for stream in STREAMS}
        self._main = os.fork()
        if self._main == 0:
            execution.become_task(
                self._launch, self._group, ends["stdout"][1], ends["stderr"][1], tell
            )
        os.close(tell)
        for stream, (reading, writing) in ends.items():
            os.close(writing)
            os.set_blocking(reading, False)
            self._pipes[reading] = self._logs[stream]
            self._poll.register(reading, select.POLLIN)
        try:
            said = plain_files.read_all(heard)
        finally:
            os.close(heard)
        self._started_at = time.time()
        self._began = boot_time()
        self._set_limit(self._limit_s)
        return json.loads(said) if said else None

    def _watch(self) -> None:
        """Until the main process ended or the whole tree must be killed."""
        announce_at = time.monotonic() + ANNOUNCE_S
        while self._status is None:
            timeout = LOOK_S if self._announced else max(announce_at - time.monotonic(), 0)
            for due in (self._limit_at, self._kill_at):
                if due is not None:
                    timeout = min(timeout, max(due - boot_time(), 0))
            for handle, _ in self._poll.poll(timeout * 1000 + 1):
                if handle == self._wake:
                    os.read(self._wake, 4096)
                    self._next_look = 0.0
                else:
                    self._read(handle)
            self._reap()
            now = time.monotonic()
            if not self._announced and now >= announce_at and self._status is None:
                self._announce()
            if self._status is None and self._must_die(now):
                return

    def _announce(self) -> None:
        self._announced = True
        with contextlib.suppress(OSError):  # on a full disk the result says it as well
            task_files.write_json(
                f"{self._launch.directory}/{task_files.STARTED}", {"started_at": self._started_at}
            )
        self.tell("started")

    def _must_die(self, now: float) -> bool:
        """Look at lease, orders and limits; true when the tree is to be killed now."""
        if now >= self._next_look:
            self._next_look = now + LOOK_S
            deadline = self._lease.look()
            if deadline and boot_time() > deadline:
                self._cause = "lease"
                return True
            if self._lease.unattended_s > self._launch.orphan_after_s:
                self._cause = "orphan"
                return True
            wish = task_files.read_json(f"{self._launch.directory}/{task_files.STOP}")
            if wish is not None and self._stop(wish):
                return True
            self._look_at_limit()
        if self._limit_at is not None and boot_time() >= self._limit_at:
            self._limit_at = None
            self._ask_to_end("limit", self._launch.signal, self._launch.grace_s)
        return self._kill_at is not None and boot_time() >= self._kill_at

    def _look_at_limit(self) -> None:
        """Take a changed time limit, unless the task is being ended already."""
        wish = task_files.read_json(f"{self._launch.directory}/{task_files.LIMIT}")
        if wish is not None and wish["time_limit_s"] != self._limit_s and self._cause is None:
            self._set_limit(wish["time_limit_s"])

    def _set_limit(self, limit_s: float | None) -> None:
        self._limit_s = limit_s
        self._limit_at = None if limit_s is None else self._began + limit_s + LIMIT_SLACK_S

    def _stop(self, wish: dict[str, Any]) -> bool:
        """Follow a stop order; a later one may only shorten the grace. True: kill at once."""
        grace = float(wish["grace_s"])
        if self._cause is None:
            self._ask_to_end("stop", str(wish["signal"]), grace)
        elif self._kill_at is not None:
            self._kill_at = min(self._kill_at, boot_time() + grace)
        return grace <= 0

    def _ask_to_end(self, cause: str, signal_name: str, grace_s: float) -> None:
        self._cause = cause
        self._limit_at = None
        self._kill_at = boot_time() + grace_s
        if grace_s > 0:
            number = getattr(signal, f"SIG{signal_name.removeprefix('SIG')}", signal.SIGTERM)
            for one in (number, signal.SIGCONT):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._main, one)

    def _read(self, handle: int) -> None:
        """Take what a pipe holds; one that reached its end is closed."""
        try:
            data = os.read(handle, _READ_BYTES)
        except BlockingIOError:
            return
        if data:
            self._pipes[handle].write(data)
        else:
            self._poll.unregister(handle)
            del self._pipes[handle]
            os.close(handle)

    def _reap(self) -> bool:
        """Collect ended children; false when there is none left, alive or dead."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._main:
                self._status = status

    def _end_tree(self) -> None:
        """SIGKILL to every process of the task until none is left; a dying one is waited for."""
        pause = 0.001
        while self._reap():
            if os.getpid() == 1:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(-1, signal.SIGKILL)
            elif self._launch.uid is not None:
                process_tree.kill_everything_of(self._launch.uid)
            else:
                process_tree.kill_each(process_tree.descendants(int(os.readlink("/proc/self"))))
            self._poll.poll(pause * 1000)
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 4096)
            for handle in list(self._pipes):
                self._read(handle)
            pause = min(pause * 2, 0.1)

    def _drain(self) -> None:
        """What the dead processes had written already."""
        for _ in range(1024):
            if not self._pipes:
                return
            poll = select.poll()
            for handle in self._pipes:
                poll.register(handle, select.POLLIN)
            if not poll.poll(0):
                return
            for handle in list(self._pipes):
                self._read(handle)

    def _result(self, failure: dict[str, str] | None, kills_before: int) -> Result:
        status = self._status
        code = number = None
        if failure is None and status is not None:
            if os.WIFSIGNALED(status):
                number = os.WTERMSIG(status)
            else:
                code = os.WEXITSTATUS(status)
        out_of_memory = (
            code != 0
            and failure is None
            and (
                self._group.killed_for_memory()
                or (
                    number == signal.SIGKILL
                    and self._cause is None
                    and kernel_oom_kills() > kills_before
                )
            )
        )
        fault = failure or {}
        if self._cause in ("lease", "orphan"):
            fault = {"class": "node_failure", "evidence": _LOST[self._cause]}
        return Result(
            started_at=self._started_at,
            ended_at=time.time(),
            exit_code=code,
            signal=number,
            oom=out_of_memory,
            timed_out=self._cause == "limit",
            cause="setup" if failure else self._cause,
            failure_class=fault.get("class"),
            evidence=fault.get("evidence"),
        )


_LOST = {
    "lease": "the node's lease ran out before the service was reached again",
    "orphan": "no agent adopted the task in time",
}
