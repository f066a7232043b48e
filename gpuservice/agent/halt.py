# SPDX-License-Identifier: Apache-2.0
"""A node's power cut, for simulated nodes: every process of every task ends at once."""

from __future__ import annotations

import contextlib
import os
import signal

from gpuservice.agent import process_tree, task_files
from gpuservice.agent.cgroups import TaskGroup
from gpuservice.agent.lease import boot_id


def kill_node(state_dir: str, within_s: float = 10) -> None:
    """End all supervisors and tasks whose place is in ``state_dir``, without a result.

    No agent may be at work on the directory.

    :raises OSError: when it cannot be told what runs there, as no further file can be opened.
    """
    tasks = f"{os.path.realpath(state_dir)}/tasks"
    for task_id in os.listdir(tasks) if os.path.isdir(tasks) else ():
        directory = f"{tasks}/{task_id}"
        task_files.claim(directory, {"pid": 0, "start": 0, "boot": ""})
        held = task_files.read_json(f"{directory}/{task_files.SUPERVISOR}") or {}
        pid = int(held.get("pid") or 0)
        if pid and held.get("boot") == boot_id():
            handle = process_tree.handle_of(pid, held.get("start"))
            if handle is not None:
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                os.close(handle)
        order = task_files.read_json(f"{directory}/{task_files.ORDER}") or {}
        launch = order.get("launch") or {}
        process_tree.sweep(directory, launch.get("uid"), within_s)
        TaskGroup(launch.get("groups") or {}, directory).remove()
