# SPDX-License-Identifier: Apache-2.0
"""The simulated cloud's files: what any number of processes see of it, and change, together.

``control.json`` says what befalls the cloud; ``servers/<id>/server.json`` is a server,
``servers/<id>/user-data.json`` what its guest reads at boot; ``running/<id>`` is there from before
a guest boots until nothing of it is left. Every change happens under one file lock and replaces a
whole file, on disk before the next begins: a server is written two or three times in its life.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpuservice.drivers import durable_files

LOG = logging.getLogger(__name__)

#: What ``control.json`` may say, with what holds when it does not.
#: ``build_delay_s``: how long a server builds; ``fail_next_builds``: how many of the next servers
#: end in error; ``fail_rate``: the share of all others that do; ``call_delay_s``: how slow each
#: call is, ``create_delay_s``: how much slower one that creates is; ``lost_hosts``: hosts without
#: power; ``unhealthy_devices``: ``host/address`` of GPUs that are.
CONTROL_DEFAULTS: dict[str, Any] = {
    "build_delay_s": 0.0,
    "fail_next_builds": 0,
    "fail_rate": 0.0,
    "call_delay_s": 0.0,
    "create_delay_s": 0.0,
    "lost_hosts": [],
    "unhealthy_devices": [],
}


class SimulatedState:
    """Reads and writes the files below one directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.servers_dir = root / "servers"
        self._running_dir = root / "running"

    def control(self) -> dict[str, Any]:
        """What befalls the cloud now."""
        return {**CONTROL_DEFAULTS, **(_read(self.root / "control.json") or {})}

    def set_control(self, **values: Any) -> None:
        """Change what befalls the cloud.

        :raises KeyError: for a word the cloud does not know.
        """
        for name in values:
            CONTROL_DEFAULTS[name]
        with self.locked():
            self.write_control(values)

    def write_control(self, values: Mapping[str, Any]) -> None:
        """The same for a caller that holds the lock."""
        _write(self.root / "control.json", {**self.control(), **values})

    def servers(self) -> list[dict[str, Any]]:
        """Every server, oldest first."""
        if not self.servers_dir.is_dir():
            return []
        found = [_read(path / "server.json") for path in sorted(self.servers_dir.iterdir())]
        return sorted((one for one in found if one), key=lambda one: (one["created"], one["id"]))

    def server(self, server_id: str) -> dict[str, Any] | None:
        """One server, or None."""
        return _read(self.servers_dir / server_id / "server.json")

    def user_data_path(self, server_id: str) -> Path:
        """Where a server's user data is."""
        return self.servers_dir / server_id / "user-data.json"

    def save_server(self, server: dict[str, Any], user_data: str | None = None) -> None:
        """Write a server; its user data first, so that no guest boots without it."""
        folder = self.servers_dir / server["id"]
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if user_data is not None:
            durable_files.replace(folder / "user-data.json", user_data)
        _write(folder / "server.json", server)

    def remove_server(self, server_id: str) -> None:
        """Forget a server; ``server.json`` goes first, so that its guest stops."""
        folder = self.servers_dir / server_id
        (folder / "server.json").unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)

    def switch_off(self, server_id: str) -> bool:
        """Take a server's power for good (the lock is held); whether nothing of it runs any more.

        Whoever boots the guests sees it and ends them.
        """
        server = self.server(server_id)
        if server is not None and not server.get("off"):
            self.save_server({**server, "off": True})
        return server_id not in self.running()

    def delete_server(self, server_id: str) -> None:
        """Forget a server (the lock is held), once nothing of it runs any more."""
        if self.switch_off(server_id):
            self.remove_server(server_id)
            return
        server = self.server(server_id)
        if server is not None:
            self.save_server({**server, "deleted": True})

    def running(self) -> set[str]:
        """Servers of which something may run."""
        return set(os.listdir(self._running_dir)) if self._running_dir.is_dir() else set()

    def guest_boots(self, server_id: str) -> bool:
        """Note that a guest is about to boot; False when it must not."""
        with self.locked():
            server = self.server(server_id)
            if server is None or server.get("off"):
                return False
            self._running_dir.mkdir(exist_ok=True)
            (self._running_dir / server_id).touch()
            return True

    def guest_ended(self, server_id: str) -> None:
        """Note that nothing of a guest is left; a deleted server goes with it."""
        with self.locked():
            (self._running_dir / server_id).unlink(missing_ok=True)
            server = self.server(server_id)
            if server is None or server.get("deleted"):
                self.remove_server(server_id)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """The lock that every change holds."""
        self.root.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _read(path: Path) -> dict[str, Any] | None:
    """A file's content, None where there is none. One that a power failure cut off is as good as
    none: a server of which nothing is known is built anew, while an error here would keep all
    others from being looked after."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        value = None
    if not isinstance(value, dict):
        LOG.error("%s is not whole; nothing is known of what it said", path)
        return None
    return value


def _write(path: Path, value: dict[str, Any]) -> None:
    durable_files.replace(path, json.dumps(value, indent=1, sort_keys=True))
