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
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from gpuservice.agent import probing, process_tree, task_files
from gpuservice.agent.cgroups import TaskGroup
from gpuservice.agent.device_nodes import DeviceNodes, Unfilterable
from gpuservice.agent.lease import boot_id
from gpuservice.agent.orders import TaskOrder
from gpuservice.agent.runner import DataMessage, Ended, Event, LaunchError, Started
from gpuservice.agent.sandbox import Sandbox
from gpuservice.agent.settings import AgentSettings
from gpuservice.agent.spawning import Spawner
from gpuservice.agent.task_files import Result
from gpuservice.agent.task_places import TaskPlaces
from gpuservice.agent.uids import UidPool, UidsExhausted
from gpuservice.agent.wire import Capabilities, WireError

LOG = logging.getLogger(__name__)
#: How long a sweep after a dead supervisor may take before what is left is reported, seconds.
_SWEEP_S = 10
#: Seconds within which a supervisor claims its task; later the spawner is looked at.
_CLAIM_S = 30

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
        self._boot = boot_id()
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._watched: dict[str, int] = {}
        self._unclaimed: dict[str, float] = {}
        self._events: deque[Event] = deque()
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
            order = task_files.read_json(f"{directory}/{task_files.ORDER}") or {}
            try:
                found.append(TaskOrder.parse(order["task"]))
            except (KeyError, WireError):
                self.clean(task_id)
                continue
            started = task_files.read_json(f"{directory}/{task_files.STARTED}")
            if started is not None:
                self._events.append(Started(task_id, float(started["started_at"])))
            task_files.claim(directory, {"pid": 0, "start": 0, "boot": self._boot})
            self._attach(task_id)
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
        with self._lock:
            self._unclaimed[task_id] = time.monotonic()
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
        with self._lock:
            handle = self._watched.get(task_id)
            if handle is not None:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, number)

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
                self._finish(str(key.data))
        for message in self._spawner.heard():
            self._hear(message)
        if not self._spawner.alive:
            self._replace_spawner()
        self._look_at_unclaimed()
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
        order = task_files.read_json(f"{directory}/{task_files.ORDER}") or {}
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
        with self._lock:
            for handle in self._watched.values():
                os.close(handle)
            self._watched.clear()
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
            held = task_files.read_json(f"{self._directory(task_id)}/{task_files.STARTED}")
            if held is not None:
                self._events.append(Started(task_id, float(held["started_at"])))
        elif task_id in self._unclaimed:
            if message["event"] == "refused":
                LOG.error("task %s: %s", task_id, message.get("evidence"))
                task_files.claim(self._directory(task_id), {"pid": 0, "start": 0, "boot": ""})
            self._attach(task_id)

    def _replace_spawner(self) -> None:
        """A new spawner for a dead one; what the old one forked is found by its claims."""
        LOG.error("the spawner died; starting another")
        self._selector.unregister(self._spawner.events)
        self._spawner.close()
        self._spawner = self._start_spawner()
        self._look_at_unclaimed(within_s=0)

    def _look_at_unclaimed(self, within_s: float = _CLAIM_S) -> None:
        """Tasks whose supervisor did not claim them in time never get one."""
        late = time.monotonic() - within_s
        with self._lock:
            overdue = [task_id for task_id, since in self._unclaimed.items() if since <= late]
        for task_id in overdue:
            task_files.claim(self._directory(task_id), {"pid": 0, "start": 0, "boot": self._boot})
            self._attach(task_id)

    def _attach(self, task_id: str) -> None:
        """Watch the task's supervisor, or take its end if there is none (any more)."""
        with self._lock:
            self._unclaimed.pop(task_id, None)
        held = task_files.read_json(f"{self._directory(task_id)}/{task_files.SUPERVISOR}") or {}
        pid = int(held.get("pid") or 0)
        if pid and held.get("boot") == self._boot:
            with contextlib.suppress(OSError):
                handle = os.pidfd_open(pid)
                if process_tree.start_time(pid) == held.get("start"):
                    with self._lock:
                        self._watched[task_id] = handle
                    self._selector.register(handle, selectors.EVENT_READ, task_id)
                    if os.path.exists(f"{self._directory(task_id)}/{task_files.STOP}"):
                        signal.pidfd_send_signal(handle, signal.SIGUSR1)
                    return
                os.close(handle)
        self._finish(task_id)

    def _finish(self, task_id: str) -> None:
        """The supervisor is gone: take its result, or make sure that nothing is left."""
        with self._lock:
            handle = self._watched.pop(task_id, None)
        if handle is not None:
            self._selector.unregister(handle)
            os.close(handle)
        directory = self._directory(task_id)
        result = task_files.load_result(directory)
        if result is None:
            result = self._lost(directory)
        self._events.append(Ended(task_id, result))

    def _lost(self, directory: str) -> Result:
        order = task_files.read_json(f"{directory}/{task_files.ORDER}") or {}
        launch = order.get("launch") or {}
        held = task_files.read_json(f"{directory}/{task_files.SUPERVISOR}") or {}
        left = process_tree.sweep(directory, launch.get("uid"), _SWEEP_S)
        TaskGroup(launch.get("groups") or {}, directory).remove()
        evidence = (
            "its supervisor ended without a result"
            if held.get("pid")
            else "no supervisor took it up before the agent or its spawner ended"
        )
        if left:
            evidence += f"; processes that cannot be ended: {left}"
        started = task_files.read_json(f"{directory}/{task_files.STARTED}") or {}
        return Result(
            started_at=started.get("started_at"),
            ended_at=time.time(),
            cause="lost",
            failure_class="node_failure",
            evidence=evidence,
        )
