# SPDX-License-Identifier: Apache-2.0
"""The supervisors of the node's tasks as their agent sees them: who claimed which task, who lives,
and how each task ended.

What cannot be told at the moment, because no further file can be opened or a disk does not
answer, is looked at again later: it is no word on a task.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from gpuservice.agent import open_files, process_tree, task_files
from gpuservice.agent.cgroups import TaskGroup
from gpuservice.agent.lease import boot_id
from gpuservice.agent.task_files import Result

LOG = logging.getLogger(__name__)
#: How long a sweep after a dead supervisor may take before what is left is reported, seconds.
_SWEEP_S = 10
#: Seconds within which a supervisor claims its task; later the spawner is looked at.
_CLAIM_S = 30
#: Seconds between two looks at tasks that could not be looked at, or have no file to be watched by.
_AGAIN_S = 1.0


class Supervisors:
    """Watched by pidfds in the runner's selector, whose data is the task's id.

    :param tasks: the directory of the tasks' directories.
    :param ended: told of each task that ended.
    """

    def __init__(
        self, tasks: str, selector: selectors.BaseSelector, ended: Callable[[str, Result], None]
    ) -> None:
        self._tasks, self._selector, self._ended = tasks, selector, ended
        self._boot = boot_id()
        self._lock = threading.Lock()
        self._watched: dict[str, int] = {}
        self._unclaimed: dict[str, float] = {}
        #: Tasks to be looked at again, with what was said of it.
        self._later: dict[str, str] = {}
        self._look_at = 0.0

    def expect(self, task_id: str) -> None:
        """The task was ordered: a supervisor will claim it."""
        with self._lock:
            self._unclaimed[task_id] = time.monotonic()

    def heard_of(self, task_id: str, refused: bool) -> None:
        """The spawner or a supervisor said who has the task: look there."""
        with self._lock:
            expected = task_id in self._unclaimed
        if expected:
            if refused:
                self._refuse(task_id)
            self.attach(task_id)

    def adopt(self, task_id: str) -> None:
        """A task of an earlier agent; one that was never claimed can no longer start."""
        self._refuse(task_id)
        self.attach(task_id)

    def look_at_unclaimed(self, within_s: float = _CLAIM_S) -> None:
        """Tasks whose supervisor did not claim them in time never get one."""
        late = time.monotonic() - within_s
        with self._lock:
            overdue = [task_id for task_id, since in self._unclaimed.items() if since <= late]
        for task_id in overdue:
            self.adopt(task_id)

    def look_again(self) -> bool:
        """At what was put off, now and then; whether it was time for that."""
        if time.monotonic() < self._look_at:
            return False
        self._look_at = time.monotonic() + _AGAIN_S
        for task_id in list(self._later):
            self.attach(task_id)
        return True

    def signal(self, task_id: str, number: int) -> None:
        """Wake the task's supervisor, or end it, if it is watched."""
        with self._lock:
            handle = self._watched.get(task_id)
            if handle is not None:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, number)

    def attach(self, task_id: str) -> None:
        """Watch the task's supervisor, or take its end if there is none (any more)."""
        with self._lock:
            self._unclaimed.pop(task_id, None)
        try:
            lives = self._watch(task_id)
        except OSError as error:
            self._put_off(task_id, str(error))
        else:
            if not lives:
                self.take_end(task_id)

    def take_end(self, task_id: str) -> None:
        """The supervisor is gone: take its result, or make sure that nothing is left."""
        with self._lock:
            handle = self._watched.pop(task_id, None)
        if handle is not None:
            self._selector.unregister(handle)
            os.close(handle)
        directory = self._directory(task_id)
        try:
            result = task_files.load_result(directory) or self._lost(directory)
        except OSError as error:
            self._put_off(task_id, str(error))
        else:
            self._later.pop(task_id, None)
            self._ended(task_id, result)

    def close(self) -> None:
        """Watch no more."""
        with self._lock:
            for handle in self._watched.values():
                os.close(handle)
            self._watched.clear()

    def _directory(self, task_id: str) -> str:
        return f"{self._tasks}/{task_id}"

    def _refuse(self, task_id: str) -> None:
        """Nobody gets the task any more, where nobody has it."""
        task_files.claim(self._directory(task_id), {"pid": 0, "start": 0, "boot": self._boot})

    def _put_off(self, task_id: str, said: str) -> None:
        if said and said not in self._later.values():
            LOG.warning("task %s is looked at again later: %s", task_id, said)
        self._later[task_id] = said

    def _watch(self, task_id: str) -> bool:
        """Whether the task has a supervisor; it is watched from now on.

        :raises OSError: when that cannot be told now.
        """
        directory = self._directory(task_id)
        held = self._claimed(task_id)
        pid = int(held.get("pid") or 0)
        if not pid or held.get("boot") != self._boot:
            return False
        handle = process_tree.handle_of(pid, held.get("start"))
        if handle is None:
            return False
        if os.path.exists(f"{directory}/{task_files.STOP}"):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGUSR1)
        if open_files.nearly_all_in_use(handle):
            os.close(handle)
            self._put_off(task_id, "")
            return True
        self._later.pop(task_id, None)
        with self._lock:
            self._watched[task_id] = handle
        self._selector.register(handle, selectors.EVENT_READ, task_id)
        return True

    def _claimed(self, task_id: str) -> dict[str, Any]:
        """Who has the task, or that nobody will.

        :raises OSError: when neither can be told.
        """
        directory = self._directory(task_id)
        path = f"{directory}/{task_files.SUPERVISOR}"
        if os.path.isdir(directory) and not os.path.exists(path):
            self._refuse(task_id)
            if not os.path.exists(path):
                raise OSError("no claim can be written")
        held: dict[str, Any] | None = task_files.read_json(path)
        return held or {}

    def _lost(self, directory: str) -> Result:
        order = task_files.read_json(f"{directory}/{task_files.ORDER}") or {}
        launch = order.get("launch") or {}
        held = task_files.read_json(f"{directory}/{task_files.SUPERVISOR}") or {}
        started = task_files.read_json(f"{directory}/{task_files.STARTED}") or {}
        left = process_tree.sweep(directory, launch.get("uid"), _SWEEP_S)
        TaskGroup(launch.get("groups") or {}, directory).remove()
        evidence = (
            "its supervisor ended without a result"
            if held.get("pid")
            else "no supervisor took it up before the agent or its spawner ended"
        )
        if left:
            evidence += f"; processes that cannot be ended: {left}"
        return Result(
            started_at=started.get("started_at"),
            ended_at=time.time(),
            cause="lost",
            failure_class="node_failure",
            evidence=evidence,
        )
