# SPDX-License-Identifier: Apache-2.0
"""The node's secret in use, and its change for a new one now and then.

The new secret is on disk before the service hears of it, so that whatever is lost (the request,
its answer, this process) one of the two is known to the service, and asking again with each in
turn tells which.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from gpuservice.agent.credentials import IdentityFile
from gpuservice.agent.errors import Refused, Revoked

LOG = logging.getLogger(__name__)


class TellsSecrets(Protocol):
    """What this needs of the client."""

    def change_secret(self, new: str, bearer: str) -> None:
        """Have the service know the node by ``new``; the same again succeeds."""


class NodeSecret:
    """One for all threads; ``settle`` and ``rotate_if_due`` are called by one of them.

    :param every_s: how old a secret may become, null: it is never changed.
    """

    def __init__(
        self, file: IdentityFile, every_s: float | None, clock: Callable[[], float] = time.time
    ) -> None:
        self._file, self._every_s, self._clock = file, every_s, clock
        self._lock = threading.Lock()
        self._identity = file.load()

    @property
    def current(self) -> str:
        """The secret to use."""
        return self._identity.secret

    @property
    def epoch(self) -> int | None:
        """The epoch last heard of, null before the first registration."""
        return self._identity.epoch

    @property
    def in_doubt(self) -> bool:
        """Whether the service may know the node by the next secret already."""
        return self._identity.next_secret is not None

    def know_epoch(self, epoch: int) -> None:
        """Keep the epoch."""
        with self._lock:
            self._identity = replace(self._identity, epoch=epoch)
            self._file.save(self._identity)

    def newer_than(self, used: str) -> str | None:
        """The secret, if it is no longer the one that was refused; waits for a change at work."""
        with self._lock:
            return self.current if self.current != used else None

    def rotate_if_due(self, client: TellsSecrets) -> None:
        """Change a secret that is old enough; raises as the client does."""
        age = self._clock() - self._identity.made_at
        if not self.in_doubt and self._every_s and age >= self._every_s:
            with self._lock:
                self._identity = replace(self._identity, next_secret=secrets.token_hex(32))
                self._file.save(self._identity)
        self.settle(client)

    def settle(self, client: TellsSecrets) -> None:
        """Finish a change that was begun, by whomever; raises as the client does."""
        with self._lock:
            new = self._identity.next_secret
            if new is None:
                return
            adopted = self._ask(client, new)
            self._identity = replace(
                self._identity,
                secret=new if adopted else self._identity.secret,
                next_secret=None,
                made_at=self._clock(),
            )
            self._file.save(self._identity)

    def _ask(self, client: TellsSecrets, new: str) -> bool:
        for bearer in (self._identity.secret, new):
            try:
                client.change_secret(new, bearer)
            except Revoked:
                continue  # known by neither: the node was revoked, the next sync says so
            except Refused as error:
                LOG.warning("the node's secret was not changed: %s", error)
                return False
            LOG.info("the node's secret was changed")
            return True
        return False
