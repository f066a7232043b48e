# SPDX-License-Identifier: Apache-2.0
"""Which means of isolation this machine really grants, found by running a probe in each."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from gpuservice.agent import cgroups, device_nodes, isolation
from gpuservice.agent.probing import CannotIsolate
from gpuservice.agent.settings import AgentSettings
from gpuservice.agent.wire import Capabilities

_ALL = ("mount", "pid", "ipc")
#: Prints user id, own pid, how many names /tmp holds (one at most: the way to
#: the box, when the state directory lies there), whether the work directory is writable, and
#: whether the device that the filter of a probe leaves out can be opened.
_PROBE = """#!/bin/sh
set -e
: > proof
open=0
(: < /dev/full) 2> /dev/null && open=1
set -- "$(id -u)" "$$" "$(ls -A /tmp | wc -l)"
echo "$1 $2 $3 $(cat proof | wc -c) $open"
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
    #: Why a task can open devices that are not its own, null if it cannot.
    unfiltered: str | None = "not tried"

    @property
    def filters_devices(self) -> bool:
        """Whether tasks can open no device nodes but their own."""
        return self.unfiltered is None

    @property
    def capabilities(self) -> Capabilities:
        """As told to the service."""
        return Capabilities(
            own_uid=self.own_uid,
            namespaces=self.namespaces,
            device_filter=self.filters_devices,
            device_filter_reason=self.unfiltered,
            private_tmp="mount" in self.namespaces,
            cgroups="memory" in self.groups,
        )

    @property
    def needs_passage(self) -> bool:
        """Whether tasks must be able to pass (not read) the agent's state directory."""
        return self.own_uid and "mount" not in self.namespaces

    @classmethod
    def prove(
        cls,
        state_dir: str,
        settings: AgentSettings,
        nodes: device_nodes.DeviceNodes,
        try_out: Callable[[Sandbox, str], str | None],
    ) -> Sandbox:
        """The strongest sandbox in which the probe ran and saw what it should.

        :raises CannotIsolate: when tasks would have to run as root and nobody asked for that.
        """
        return cls._apart(state_dir, settings, try_out)._filtering(settings, nodes, try_out)

    def _filtering(
        self,
        settings: AgentSettings,
        nodes: device_nodes.DeviceNodes,
        try_out: Callable[[Sandbox, str], str | None],
    ) -> Sandbox:
        """This sandbox with the device filter, or with the reason why there is none."""
        fault = nodes.fault()
        if settings.device_filter is False:
            fault = "it is switched off in the agent's settings (device_filter)"
        elif not self.own_uid:
            fault = "tasks have no user of their own here, so that they could leave any filter"
        elif fault is None and not device_nodes.can_be_proved():
            fault = "there is no /dev/full to prove it with"
        if fault is not None:
            return replace(self, unfiltered=fault)
        bases = cgroups.device_bases()
        for base in bases:
            one = replace(self, groups={**self.groups, "devices": base}, unfiltered=None)
            if one._holds(try_out(one, _PROBE)):
                return one
        places = " and ".join(bases)
        return replace(
            self,
            unfiltered=f"the kernel did not filter devices by groups in {places}"
            if bases
            else "no control group that filters devices may be made here",
        )

    @classmethod
    def _apart(
        cls, state_dir: str, settings: AgentSettings, try_out: Callable[[Sandbox, str], str | None]
    ) -> Sandbox:
        root = os.geteuid() == 0
        cover = isolation.cover_of(state_dir, settings.cover)
        groups = cgroups.bases()
        without_pids = {name: base for name, base in groups.items() if name != "pids"}
        places = [one for one in (groups, without_pids) if one] + [{}]
        for uid in (True,) if root and settings.own_uid is not False else (False,):
            for spaces in (_ALL, ()):
                if spaces and (not root or settings.namespaces is False):
                    continue
                for where in places:
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
                "no task could be run under a user id of its own (the agent's log says why; is "
                f"the way to {state_dir} open to all users?), and none is run as root unless "
                "own_uid is false in the agent's settings"
            )
        return cls(cover=cover)

    def _holds(self, said: str | None) -> bool:
        """Whether what the probe saw is what this sandbox promises."""
        if said is None or len(said.split()) != 5:
            return False
        uid, pid, in_tmp, _, opened = map(int, said.split())
        if self.filters_devices and opened:
            return False
        apart = not self.namespaces or (pid < 10 and in_tmp <= 1)
        return apart and (uid != os.geteuid()) == self.own_uid
