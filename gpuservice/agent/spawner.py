# SPDX-License-Identifier: Apache-2.0
"""The small single-threaded process that forks supervisors and data helpers for an agent.

An agent has threads and must not fork; starting a fresh interpreter per task would cost ten times
a fork. So one process with nothing but the standard library in it waits for requests on a socket
and forks. It ends when its agent does; what it forked stays.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import sys

from gpuservice.agent import isolation, lease, supervisor
from gpuservice.agent.data import helper

#: Longest request in bytes; requests name files, they do not carry content.
MESSAGE_BYTES = 65536


def main() -> None:
    """Serve requests from the socket whose number is the first argument, until it closes."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    requests.set_inheritable(False)  # whoever holds it can order the agent about
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.chdir("/")
    own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    lease.boot_id()  # known once here, not found out anew by every child
    gc.collect()
    gc.freeze()
    while True:
        data, handles, _, _ = socket.recv_fds(requests, MESSAGE_BYTES, 4)
        if not data:
            return
        request = json.loads(data)
        try:
            if request["op"] == "launch":
                _launch(request, requests, own_pids)
            else:
                _help(request, handles, requests)
        except OSError as error:
            reply = {"event": "refused", "task_id": request.get("task_id"), "evidence": str(error)}
            with contextlib.suppress(OSError):
                requests.send(json.dumps(reply).encode())
        for handle in handles:
            os.close(handle)


def _launch(request: dict[str, object], events: socket.socket, own_pids: int) -> None:
    """Fork a supervisor, as process 1 of a new pid namespace if that is wanted."""
    apart = bool(request["pid_namespace"])
    if apart:
        isolation.unshare(isolation.CLONE_NEWPID)
    try:
        child = os.fork()
    finally:
        # In the child this changes only where *its* children go: back where it already is.
        if apart and os.getpid() != 1:
            isolation.enter(own_pids, isolation.CLONE_NEWPID)
    if child == 0:
        os.close(own_pids)
        supervisor.run(str(request["directory"]), events)


def _help(request: dict[str, object], handles: list[int], requests: socket.socket) -> None:
    """Fork a data helper that works as the task's user and talks through the given socket."""
    if os.fork() == 0:
        try:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            requests.close()
            helper.run(request, socket.socket(fileno=handles[0]))
        finally:
            os._exit(0)


if __name__ == "__main__":
    main()
