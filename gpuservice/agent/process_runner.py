# SPDX-License-Identifier: Apache-2.0
"""Runs tasks as real processes, each under a supervisor that outlives this agent."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import selectors
import shutil
import signal
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from gpuservice.agent import open_files, probing, task_files
from gpuservice.agent.device_nodes import DeviceNodes, Unfilterable
from gpuservice.agent.orders import TaskOrder
from gpuservice.agent.runner import DataMessage, Ended, Event, LaunchError, Started
from gpuservice.agent.sandbox import Sandbox
from gpuservice.agent.settings import AgentSettings
from gpuservice.agent.spawning import Spawner
from gpuservice.agent.supervisors import Supervisors
from gpuservice.agent.task_files import Result
from gpuservice.agent.task_places import TaskPlaces
from gpuservice.agent.uids import UidPool, UidsExhausted
from gpuservice.agent.wire import Capabilities, WireError

LOG = logging.getLogger(__name__)
#: How long a new agent waits for files to be free, to read what an earlier one left, seconds.
_ADOPT_S = 60.0

#: Errors that what was ordered causes, not the node.
_OF_THE_TASK = frozenset(
    {errno.ENAMETOOLONG, errno.EINVAL, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EEXIST}
)


class ProcessRunner:
    """See ``runner.Runner``. Files of a task: ``task_files``; its isolation: ``sandbox``."""

    def __init__(
        self, state_dir: str, settings: AgentSettings, lease_file: str, nodes: DeviceNodes
    ) -> None:
        self._tasks = f"{state_dir}/tasks"
        self._error_log = f"{state_dir}/spawner.log"
        self._selector = selectors.DefaultSelector()
        self._events: deque[Event] = deque()
        self._supervisors = Supervisors(self._tasks, self._selector, self._ended)
        #: Tasks that could not be cleaned yet.
        self._uncleaned: set[str] = set()
        self._wake, self._wake_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._selector.register(self._wake, selectors.EVENT_READ, None)
        os.makedirs(self._tasks, exist_ok=True)
        os.chmod(self._tasks, 0o711)
        self._spawner = self._start_spawner()
        self._sandbox = Sandbox()
        self._uids: UidPool | None = None
        if os.geteuid() == 0 and settings.own_uid is not False:
            self._uids = UidPool(settings.uid_directory, settings.uid_base, settings.uid_count)
        self._places = TaskPlaces(settings, lease_file, self._uids, nodes)
        self.fault: str | None = None
        try:
            self._sandbox = Sandbox.prove(state_dir, settings, nodes, self.try_out)
            os.chmod(state_dir, 0o711 if self._sandbox.needs_passage else 0o700)
        except probing.CannotIsolate as error:
            LOG.error("no task will be started here: %s", error)
            self.fault = str(error)

    @property
    def capabilities(self) -> Capabilities:
        """What the sandbox proved."""
        return self._sandbox.capabilities

    def adopt(self) -> Sequence[TaskOrder]:
        """Tasks with a place in the state directory; those never claimed can no longer start."""
        found = []
        for task_id in sorted(os.listdir(self._tasks)):
            directory = self._directory(task_id)
            order = _read_in_time(f"{directory}/{task_files.ORDER}") or {}
            try:
                found.append(TaskOrder.parse(order["task"]))
            except (KeyError, WireError):
                self.clean(task_id)
                continue
            started = _read_in_time(f"{directory}/{task_files.STARTED}")
            if started is not None:
                self._events.append(Started(task_id, float(started["started_at"])))
            self._supervisors.adopt(task_id)
        return found

    def prepare(self, order: TaskOrder, env: Mapping[str, str]) -> str:
        """Make the task's place: folders, user id, order and script."""
        if self.fault is not None:
            raise LaunchError(self.fault)
        try:
            return self._places.make(self._directory(order.task_id), order, env, self._sandbox).work
        except (OSError, UidsExhausted, Unfilterable, ValueError) as error:
            said = f"the task's place could not be made: {error}"
            if isinstance(error, ValueError) or getattr(error, "errno", None) in _OF_THE_TASK:
                # The same on every node: no fault of this one.
                raise OSError(said) from error
            raise LaunchError(said) from error

    def launch(self, task_id: str) -> None:
        """Hand the task to a new supervisor."""
        self._supervisors.expect(task_id)
        try:
            self._spawner.request(self._launch_request(task_id, self._sandbox))
        except OSError as error:
            LOG.warning("task %s: the spawner is not there: %s", task_id, error)
        self._wake_up()

    def stop(self, task_id: str, grace_s: float, signal_name: str) -> None:
        """Write the wish down and wake the supervisor; it looks by itself twice a second, too."""
        self._wish(task_id, task_files.STOP, {"grace_s": grace_s, "signal": signal_name})

    def limit(self, task_id: str, time_limit_s: int | None) -> None:
        """As ``stop``."""
        self._wish(task_id, task_files.LIMIT, {"time_limit_s": time_limit_s})

    def _wish(self, task_id: str, name: str, content: Mapping[str, Any]) -> None:
        number = signal.SIGUSR1
        try:
            task_files.write_json(f"{self._directory(task_id)}/{name}", content)
        except FileNotFoundError:
            # The task's place is gone, and so is the task: nothing is left that could hear it.
            LOG.debug("task %s: the wish %r comes after its end", task_id, name)
        except OSError as error:
            LOG.error("task %s: the wish %r cannot be written: %s", task_id, name, error)
            if name == task_files.STOP:  # its end must not wait for room on the disk
                number = signal.SIGKILL
        self._supervisors.signal(task_id, number)

    def helper(self, task_id: str, kind: str) -> AbstractContextManager[Iterator[DataMessage]]:
        """Start a data helper for the task."""
        return self._spawner.helper(self._directory(task_id), kind)

    def wait(self, timeout_s: float) -> Sequence[Event]:
        """Starts and ends, from the spawner's socket and the supervisors' pidfds."""
        ready = self._selector.select(0 if self._events else timeout_s)
        for key, _ in ready:
            if key.fd == self._wake:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake, 4096)
            elif key.data is not None:
                self._supervisors.take_end(str(key.data))
        for message in self._spawner.heard():
            self._hear(message)
        if not self._spawner.alive:
            self._replace_spawner()
        self._supervisors.look_at_unclaimed()
        if self._supervisors.look_again():
            for task_id in [self._uncleaned.pop() for _ in range(len(self._uncleaned))]:
                self.clean(task_id)
        found = list(self._events)
        self._events.clear()
        return found

    def wipe(self, task_id: str, result: Result | None = None) -> None:
        """Remove what the task itself could see."""
        directory, settled = self._directory(task_id), result is None
        if result is not None:
            with contextlib.suppress(OSError):
                task_files.settle(directory, result)
                settled = True
        shutil.rmtree(f"{directory}/box", ignore_errors=True)
        if result is not None and not settled:  # perhaps there is room now
            with contextlib.suppress(OSError):
                task_files.settle(directory, result)

    def clean(self, task_id: str) -> None:
        """Remove the place and give the user id back."""
        directory = self._directory(task_id)
        try:
            order = task_files.read_json(f"{directory}/{task_files.ORDER}") or {}
        except OSError as error:  # its user id would be lost
            LOG.warning("task %s is cleaned later: %s", task_id, error)
            self._uncleaned.add(task_id)
            return
        shutil.rmtree(directory, ignore_errors=True)
        uid = (order.get("launch") or {}).get("uid")
        if uid is not None and self._uids is not None:
            self._uids.release(uid, directory)

    def log_directory(self, task_id: str) -> str | None:
        """The task's own directory."""
        return self._directory(task_id)

    def close(self) -> None:
        """End the spawner and close handles; supervisors go on."""
        self._spawner.close()
        self._supervisors.close()
        self._selector.close()
        os.close(self._wake)
        os.close(self._wake_end)

    def try_out(self, sandbox: Sandbox, script: str) -> str | None:
        """What a probe in a sandbox says; see ``probing``."""
        return probing.patiently(lambda: self._probe(sandbox, script))

    def _probe(self, sandbox: Sandbox, script: str) -> str | None:
        task_id = f"probe-{os.getpid()}-{time.monotonic_ns()}"
        directory = self._directory(task_id)
        try:
            self._places.make_probe(directory, sandbox, script)
            self._spawner.request(self._launch_request(task_id, sandbox))
            until = time.monotonic() + 15
            while (result := task_files.load_result(directory)) is None:
                if time.monotonic() > until:
                    raise probing.CannotTell("it did not end")
                self._selector.select(0.005)
                self._spawner.heard()
            return probing.verdict(result, f"{directory}/stdout.0")
        except UidsExhausted as error:
            raise probing.CannotTell(str(error)) from error
        finally:
            self.clean(task_id)

    def _ended(self, task_id: str, result: Result) -> None:
        self._events.append(Ended(task_id, result))

    def _directory(self, task_id: str) -> str:
        return f"{self._tasks}/{task_id}"

    def _launch_request(self, task_id: str, sandbox: Sandbox) -> dict[str, Any]:
        return {
            "op": "launch",
            "task_id": task_id,
            "directory": self._directory(task_id),
            "pid_namespace": "pid" in sandbox.namespaces,
        }

    def _start_spawner(self) -> Spawner:
        spawner = Spawner(self._error_log)
        self._selector.register(spawner.events, selectors.EVENT_READ, None)
        return spawner

    def _wake_up(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_end, b".")

    def _hear(self, message: Mapping[str, Any]) -> None:
        task_id = str(message["task_id"])
        if message["event"] == "started":
            try:
                held = task_files.read_json(f"{self._directory(task_id)}/{task_files.STARTED}")
            except OSError:
                held = {"started_at": time.time()}  # so it was told just now
            if held is not None:
                self._events.append(Started(task_id, float(held["started_at"])))
            return
        refused = message["event"] == "refused"
        if refused:
            LOG.error("task %s: %s", task_id, message.get("evidence"))
        self._supervisors.heard_of(task_id, refused)

    def _replace_spawner(self) -> None:
        """A new spawner for a dead one; what the old one forked is found by its claims."""
        if self._spawner.events.fileno() >= 0:
            LOG.error("the spawner died; starting another")
            self._selector.unregister(self._spawner.events)
            self._spawner.close()
        try:
            self._spawner = self._start_spawner()
        except OSError as error:
            LOG.warning("no other spawner can be started now: %s", error)
            return
        self._supervisors.look_at_unclaimed(within_s=0)


def _read_in_time(path: str) -> Any:
    """As ``read_json``, once a file can be opened: an agent that cannot read what it finds would
    end, and with it its node."""
    until = time.monotonic() + _ADOPT_S
    while True:
        try:
            return task_files.read_json(path)
        except OSError as error:
            if not open_files.all_in_use(error) or time.monotonic() > until:
                raise
        time.sleep(0.1)
