# SPDX-License-Identifier: Apache-2.0
"""The node's secret and who this node is, kept in the state directory.

The secret is made here, before the first word to the service, so that a lost answer to the
registration can be asked for again with the very same pair.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import time
import uuid
from dataclasses import asdict, dataclass, field

from gpuservice.agent import task_files
from gpuservice.agent.lease import boot_id


class StateDirectoryBusy(RuntimeError):
    """Another agent works on this state directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What must be the same over restarts; ``epoch`` null before the first registration.

    ``next_secret``: one that the service may know the node by already; ``made_at``: when the
    present one was made, seconds of the node's clock.
    """

    secret: str = field(repr=False)
    epoch: int | None = None
    next_secret: str | None = field(default=None, repr=False)
    made_at: float = 0


class IdentityFile:
    """Reads and writes the identity, for one node id; one agent at a time."""

    def __init__(self, state_dir: str, node_id: str) -> None:
        self._path = f"{state_dir}/identity.json"
        self._node_id = node_id
        self._lock = os.open(f"{state_dir}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def hold(self) -> None:
        """Keep other agents off this state directory until ``release`` or the process's end.

        :raises StateDirectoryBusy: when one is there already.
        """
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StateDirectoryBusy("another agent holds this state directory") from error

    def process(self) -> str:
        """A name for this process as the node's agent: ``<place>.<random>``.

        The place is this boot of this machine and this very state directory: a copy of it, or the
        machine after a restart, is another one.
        """
        held = os.fstat(self._lock)
        place = f"{boot_id()} {held.st_dev} {held.st_ino}"
        return f"{hashlib.sha256(place.encode()).hexdigest()[:16]}.{uuid.uuid4()}"

    def release(self) -> None:
        """Let another agent in."""
        os.close(self._lock)

    def load(self) -> Identity:
        """The stored identity; made and stored first if this node has none."""
        held = task_files.read_json(self._path)
        if held is None or held.get("node_id") != self._node_id:
            fresh = Identity(secret=secrets.token_hex(32), made_at=time.time())
            self.save(fresh)
            return fresh
        return Identity(
            secret=held["secret"],
            epoch=held.get("epoch"),
            next_secret=held.get("next_secret"),
            made_at=float(held.get("made_at") or time.time()),
        )

    def save(self, identity: Identity) -> None:
        """Store it readable by this user alone, on disk when this returns."""
        task_files.write_json(
            self._path,
            {"node_id": self._node_id, **asdict(identity)},
            durable=True,
        )
