# SPDX-License-Identifier: Apache-2.0
"""The last steps of a forked process before it becomes the task's program."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import stat
from typing import NoReturn

from gpuservice.agent import isolation
from gpuservice.agent.cgroups import TaskGroup
from gpuservice.agent.data import beneath
from gpuservice.agent.task_files import Launch

#: Reasons of exec(2) that speak of the program, not of the node.
_PROGRAM_FAULTS = frozenset(
    {
        errno.ENOENT,
        errno.EACCES,
        errno.ENOEXEC,
        errno.ENOTDIR,
        errno.ELOOP,
        errno.EISDIR,
        errno.ENAMETOOLONG,
        errno.EPERM,
        errno.ELIBBAD,
        errno.EINVAL,
    }
)
#: Signals that supervisors ignore or handle, given back their meaning before the program starts.
_RESET = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGPIPE,
    signal.SIGCHLD,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGXFSZ,
)


def become_task(launch: Launch, group: TaskGroup, stdout: int, stderr: int, tell: int) -> NoReturn:
    """Turn this process into the task's program; what goes wrong is told through ``tell``.

    ``tell`` closes by itself when the program starts. Never returns, never raises.
    """
    try:
        step = "platform"
        os.setsid()
        isolation.usual_signals(_RESET)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        group.join()
        if "mount" in launch.namespaces:
            isolation.private_mounts(launch.namespaces, launch.box, launch.cover)
        isolation.be_bounded(launch.max_processes)
        if launch.uid is not None:
            isolation.become(launch.uid)
        isolation.gain_no_rights()
        isolation.die_with_parent()
        os.umask(0o022)
        nothing = os.open("/dev/null", os.O_RDONLY)
        for source, target in ((nothing, 0), (stdout, 1), (stderr, 2)):
            os.dup2(source, target, inheritable=True)
        _close_all_but(tell)
        step = "user_code"
        _enter(launch)
        step = "image"
        _execute(launch)
    except OSError as error:
        fault = step if step != "image" or error.errno in _PROGRAM_FAULTS else "platform"
        message = {"class": fault, "evidence": _evidence(error, launch, step)}
        os.write(tell, json.dumps(message).encode())
    except BaseException as error:
        os.write(tell, json.dumps({"class": "platform", "evidence": repr(error)}).encode())
    finally:
        os._exit(127)


def _close_all_but(kept: int) -> None:
    """Leave the program its three streams alone, whoever forgot to close what."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != kept:
            with contextlib.suppress(OSError):  # the listing's own
                os.close(int(name))


def _enter(launch: Launch) -> None:
    """Go to the working directory, making it beneath the task's own without following links."""
    os.chdir(launch.work)
    if launch.workdir:
        here = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        os.fchdir(beneath.make_directory(here, beneath.parts(launch.workdir)))


def _execute(launch: Launch) -> None:
    """Replace the process; a script without #! line is run by /bin/sh, as a shell would do."""
    if launch.argv is None:
        script = f"{launch.box}/script"
        handle = os.open(script, os.O_RDONLY | os.O_CLOEXEC)
        direct = os.read(handle, 2) == b"#!"
        os.close(handle)
        if direct:
            os.execve(script, [script], launch.env)
        os.execve("/bin/sh", ["/bin/sh", script], launch.env)
    try:
        os.execvpe(launch.argv[0], launch.argv, launch.env)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
        os.execvpe("/bin/sh", ["/bin/sh", *launch.argv], launch.env)


def _evidence(error: OSError, launch: Launch, step: str) -> str:
    """One sentence on what could not be started and why."""
    reason = error.strerror or str(error)
    if step == "user_code":
        return f"working directory {launch.workdir!r} cannot be entered: {reason}"
    if step != "image":
        return f"the task's surroundings could not be made: {reason}"
    name = "script" if launch.argv is None else launch.argv[0]
    places = [f"{place}/{name}" for place in launch.env.get("PATH", "").split(":") if place]
    if "/" not in name and launch.argv and not any(map(os.path.isfile, places)):
        return f"program {name!r} not found"
    interpreter = _interpreter(launch)
    if interpreter is not None and error.errno in (errno.ENOENT, errno.EACCES):
        return f"interpreter {interpreter!r} of {name!r} cannot be run: {reason}"
    if error.errno == errno.ENOENT:
        return f"program {name!r} not found"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"program {name!r} is not executable: {reason}"
    return f"program {name!r} cannot be run: {reason}"


def _interpreter(launch: Launch) -> str | None:
    """The #! line's program, if the file to run is there and has one."""
    path = f"{launch.box}/script" if launch.argv is None else launch.argv[0]
    if "/" not in path:
        found = [f"{place}/{path}" for place in launch.env.get("PATH", "").split(":") if place]
        path = next((one for one in found if os.access(one, os.X_OK)), path)
    try:
        if not stat.S_ISREG(os.stat(path).st_mode) or not os.access(path, os.X_OK):
            return None
        with open(path, "rb") as file:
            line = file.readline(4096)
    except OSError:
        return None
    words = line[2:].split() if line.startswith(b"#!") else []
    return os.fsdecode(words[0]) if words else None
