# SPDX-License-Identifier: Apache-2.0
"""Which answers to a registration are worth another try, and what the others mean for people.

A first registration may come before the service knows its token: a server that was built for an
intent the service believed lost is found, and its token taken over, only at the conductor's next
look. So an unknown token is tried for a while; nothing runs on the node meanwhile. An agent that
was registered before is refused because its node was deleted, rebuilt or repaired, and ends what
runs there at once.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable

from gpuservice.agent.errors import ApiError, Revoked
from gpuservice.agent.runner import Runner
from gpuservice.agent.settings import UserData
from gpuservice.agent.wire import Device, DeviceHealth, Registration

AGENT_VERSION = "1"

#: The pause between two tries grows between these, seconds.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 10.0

_MEANING = {
    "gpu.agent.bootstrap_invalid": (
        "its bootstrap token is not known: it was replaced (the node was deleted, rebuilt or "
        "repaired), or is older than [agent] bootstrap_ttl_s; repair or delete the node"
    ),
    "gpu.agent.secret_conflict": (
        "it registered before with another secret: its state directory was lost or is not its "
        "own; repair the node"
    ),
    "gpu.agent.devices_mismatch": (
        "the devices found here are not those the cloud gave it (are the driver and all cards "
        "there?); mend that and repair the node"
    ),
}


class Registering:
    """Patience with refusals of one agent's registration.

    :param first: whether this node was never registered with its present secret.
    """

    def __init__(
        self,
        patience_s: float,
        first: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._patience_s, self._clock = patience_s, clock
        self._first = first
        self._since: float | None = None
        self._pause_s = _FIRST_PAUSE_S

    def succeeded(self) -> None:
        """The node is known from now on: a later refusal means that it is revoked."""
        self._first = False

    def pause_after(self, error: ApiError) -> float | None:
        """Seconds until the next try; null when there is none."""
        if not self._first or not isinstance(error, Revoked):
            return None
        now = self._clock()
        if self._since is None:
            self._since = now
        left = self._since + self._patience_s - now
        if left <= 0:
            return None
        pause, self._pause_s = self._pause_s, min(self._pause_s * 2, _LONGEST_PAUSE_S)
        return min(pause * random.uniform(0.5, 1.0), left)


def registration(
    bootstrap: str,
    secret: str,
    instance: str,
    runner: Runner,
    devices: tuple[Device, ...],
    health: Iterable[DeviceHealth],
) -> Registration:
    """What this machine says of itself."""
    return Registration(
        bootstrap=bootstrap,
        secret=secret,
        instance=instance,
        fault=runner.fault,
        agent_version=AGENT_VERSION,
        devices=devices,
        health=tuple(health),
        capabilities=runner.capabilities,
        vcpus=os.cpu_count() or 1,
        memory_mib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (1 << 20),
    )


def verdict(error: Exception, user_data: UserData) -> str:
    """One sentence for the log of a machine that nobody watches: who refused, and what to do."""
    if not isinstance(error, ApiError):
        return f"The agent failed: {type(error).__name__}: {error}"
    meaning = _MEANING.get(error.code)
    if meaning is None and isinstance(error, Revoked):
        meaning = "its secret is no longer good: the node was deleted, rebuilt or repaired"
    return (
        f"The service at {user_data.api_url} refuses node {user_data.node_id}: "
        f"{meaning or 'the request is wrong for good'} ({error})."
    )
