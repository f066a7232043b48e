# SPDX-License-Identifier: Apache-2.0
"""Limits of a task through control groups, version 2 or 1: memory, CPU, number of processes, and
which devices it may open; each where the machine allows it.

Without control groups there is no memory limit at all: limits on address space would end
programs that only reserve it (every CUDA program does).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterable

from gpuservice.agent import device_program, plain_files
from gpuservice.agent.device_program import Numbers

_ROOT = "/sys/fs/cgroup"
_OURS = "gpuservice-agent"
_CONTROLLERS = ("memory", "cpu", "pids")
#: Period of the CPU quota, microseconds: the kernel's own default.
_PERIOD_US = 100_000


def _write(path: str, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def _read(path: str) -> str:
    try:
        return plain_files.read(path).decode()
    except OSError:
        return ""


def _own_paths() -> dict[str, str]:
    """Controller -> path of this process in version 1 hierarchies."""
    paths = {}
    for line in _read("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in filter(None, controllers.split(",")):
            paths[controller] = path
    return paths


def bases() -> dict[str, str]:
    """Where groups for tasks may be made: controller -> directory; empty if nowhere.

    All controllers lie in one directory with version 2. A directory named here was not proved
    yet: that is what making a group in it does.
    """
    if os.path.exists(f"{_ROOT}/cgroup.controllers"):
        base = f"{_ROOT}/{_OURS}"
        try:
            os.makedirs(base, exist_ok=True)
            for directory in (_ROOT, base):
                for name in _CONTROLLERS:
                    with contextlib.suppress(OSError):
                        _write(f"{directory}/cgroup.subtree_control", f"+{name}")
        except OSError:
            return {}
        enabled = _read(f"{base}/cgroup.subtree_control").split()
        return {name: base for name in _CONTROLLERS if name in enabled}
    own = _own_paths()
    found = {}
    for name in _CONTROLLERS:
        base = f"{_ROOT}/{name}{own.get(name, '/').rstrip('/')}"
        if os.path.isdir(base) and os.access(base, os.W_OK):
            found[name] = base
    return found


def device_bases(root: str = _ROOT) -> list[str]:
    """Where groups that filter devices may be made, the best place first; not proved either.

    The controller ``devices`` is of version 1; with version 2, alone or beside version 1, any
    group will do, since a program is attached to it.
    """
    found = []
    old = f"{root}/devices{_own_paths().get('devices', '/').rstrip('/')}"
    if os.path.isfile(f"{old}/devices.deny") and os.access(old, os.W_OK):
        found.append(old)
    for unified in (root, f"{root}/unified"):
        if os.path.exists(f"{unified}/cgroup.controllers"):
            with contextlib.suppress(OSError):
                os.makedirs(f"{unified}/{_OURS}", exist_ok=True)
                found.append(f"{unified}/{_OURS}")
    return found


def _is_v2(directory: str) -> bool:
    return os.path.exists(f"{directory}/cgroup.controllers")


def group_name(place: str) -> str:
    """What a task's group is called, by its directory: an id alone may be another agent's, too."""
    digest = hashlib.sha256(os.fsencode(place)).hexdigest()[:12]
    return f"{_OURS}-{os.path.basename(place)}-{digest}"


class TaskGroup:
    """The control groups of one task.

    :param where: controller -> directory to make its group in.
    :param place: the task's directory.
    :raises OSError: from ``create`` when a group cannot be made or limited.
    """

    def __init__(self, where: dict[str, str], place: str) -> None:
        name = group_name(place)
        self._directories = {controller: f"{base}/{name}" for controller, base in where.items()}

    def create(
        self,
        memory_mib: int | None,
        vcpus: float | None,
        devices: Iterable[Numbers] | None = None,
        processes: int | None = None,
    ) -> None:
        """Make the groups that are needed and set their limits; null: no limit of that kind.

        ``devices`` are the nodes that may be opened, and no other may. ``processes`` counts
        threads as well.
        """
        wanted = {
            "memory": bool(memory_mib),
            "cpu": bool(vcpus),
            "pids": bool(processes),
            "devices": devices is not None,
        }
        self._directories = {name: path for name, path in self._directories.items() if wanted[name]}
        for path in self._directories.values():
            os.makedirs(path, exist_ok=True)
        self._limit(memory_mib, vcpus)
        if "pids" in self._directories:
            _write(f"{self._directories['pids']}/pids.max", str(processes))
        if devices is not None:
            _filter(self._directories["devices"], devices)

    def _limit(self, memory_mib: int | None, vcpus: float | None) -> None:
        memory, cpu = self._directories.get("memory"), self._directories.get("cpu")
        if memory and memory_mib:
            limit = str(memory_mib * 1024 * 1024)
            if _is_v2(memory):
                _write(f"{memory}/memory.max", limit)
                with contextlib.suppress(OSError):
                    _write(f"{memory}/memory.swap.max", "0")
                    _write(f"{memory}/memory.oom.group", "1")
            else:
                _write(f"{memory}/memory.limit_in_bytes", limit)
                with contextlib.suppress(OSError):
                    _write(f"{memory}/memory.memsw.limit_in_bytes", limit)
        if cpu and vcpus:
            quota = max(1000, int(vcpus * _PERIOD_US))
            if _is_v2(cpu):
                _write(f"{cpu}/cpu.max", f"{quota} {_PERIOD_US}")
            else:
                _write(f"{cpu}/cpu.cfs_period_us", str(_PERIOD_US))
                _write(f"{cpu}/cpu.cfs_quota_us", str(quota))

    def join(self) -> None:
        """Put the calling process, and so all its descendants, into the groups."""
        for path in set(self._directories.values()):
            _write(f"{path}/cgroup.procs", "0")

    def killed_for_memory(self) -> bool:
        """Whether the kernel ended a process of the group because memory ran out."""
        memory = self._directories.get("memory")
        if memory is None:
            return False
        text = _read(
            f"{memory}/memory.events" if _is_v2(memory) else f"{memory}/memory.oom_control"
        )
        counts = dict(line.split() for line in text.splitlines() if len(line.split()) == 2)
        return int(counts.get("oom_kill", "0")) > 0

    def remove(self) -> None:
        """Remove the groups; the kernel may need a moment after the last process."""
        for path in set(self._directories.values()):
            for _ in range(20):
                try:
                    os.rmdir(path)
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.01)
                else:
                    break


def _filter(directory: str, allowed: Iterable[Numbers]) -> None:
    """Refuse every device but these to what joins the group."""
    if _is_v2(directory):
        device_program.attach(directory, allowed)
        return
    _write(f"{directory}/devices.deny", "a")
    for kind, major, minor in allowed:
        _write(
            f"{directory}/devices.allow", f"{kind} {major}:{'*' if minor is None else minor} rwm"
        )


def kernel_oom_kills() -> int:
    """How many processes the kernel ended for lack of memory since it started; 0 if unknown."""
    for line in _read("/proc/vmstat").splitlines():
        if line.startswith("oom_kill "):
            return int(line.split()[1])
    return 0
