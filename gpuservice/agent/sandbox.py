# SPDX-License-Identifier: Apache-2.0
"""Which means of isolation this machine really grants, found by running a probe in each."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gpuservice.agent import cgroups, isolation
from gpuservice.agent.probing import CannotIsolate
from gpuservice.agent.settings import AgentSettings
from gpuservice.agent.wire import Capabilities

_ALL = ("mount", "pid", "ipc")
#: Prints user id, own pid, how many names /tmp holds (one at most: the way to
#: the box, when the state directory lies there), and whether the work directory is writable.
_PROBE = """#!/bin/sh
set -e
: > proof
set -- "$(id -u)" "$$" "$(ls -A /tmp | wc -l)"
echo "$1 $2 $3 $(cat proof | wc -c)"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """How tasks are kept apart here; ``cover``: see ``isolation.cover_of``."""

    own_uid: bool = False
    namespaces: tuple[str, ...] = ()
    cover: str = ""
    groups: Mapping[str, str] = field(default_factory=dict)
    #: Memory limit of the probe, so that control groups are proved with it.
    probe_memory_mib: int | None = None

    @property
    def capabilities(self) -> Capabilities:
        """As told to the service. Devices are not filtered: visibility is by environment."""
        return Capabilities(
            own_uid=self.own_uid,
            namespaces=self.namespaces,
            private_tmp="mount" in self.namespaces,
            cgroups="memory" in self.groups,
        )

    @property
    def needs_passage(self) -> bool:
        """Whether tasks must be able to pass (not read) the agent's state directory."""
        return self.own_uid and "mount" not in self.namespaces

    @classmethod
    def prove(
        cls, state_dir: str, settings: AgentSettings, try_out: Callable[[Sandbox, str], str | None]
    ) -> Sandbox:
        """The strongest sandbox in which the probe ran and saw what it should.

        :raises CannotIsolate: when tasks would have to run as root and nobody asked for that.
        """
        root = os.geteuid() == 0
        cover = isolation.cover_of(state_dir)
        groups = cgroups.bases()
        for uid in (True,) if root and settings.own_uid is not False else (False,):
            for spaces in (_ALL, ()):
                if spaces and (not root or settings.namespaces is False):
                    continue
                for where in [groups, {}] if groups else [{}]:
                    one = cls(
                        own_uid=uid,
                        namespaces=spaces,
                        cover=cover,
                        groups=where,
                        probe_memory_mib=64 if where else None,
                    )
                    if not spaces and uid:
                        os.chmod(state_dir, 0o711)
                    if one._holds(try_out(one, _PROBE)):
                        return one
        if root and settings.own_uid is not False:
            raise CannotIsolate(
                "no task could be run under a user id of its own, and tasks are not run as root "
                "unless own_uid is false in the agent's settings"
            )
        return cls(cover=cover)

    def _holds(self, said: str | None) -> bool:
        """Whether what the probe saw is what this sandbox promises."""
        if said is None or len(said.split()) != 4:
            return False
        uid, pid, in_tmp, _ = map(int, said.split())
        apart = not self.namespaces or (pid < 10 and in_tmp <= 1)
        return apart and (uid != os.geteuid()) == self.own_uid
