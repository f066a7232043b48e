# SPDX-License-Identifier: Apache-2.0
"""A process that dies at a chosen moment: right after one of its writes or calls of the cloud."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oslo_config import cfg

from gpuservice.db.store import DatabaseStore
from gpuservice.domain.ports import CloudNode, NodeRequest
from gpuservice.domain.ports_store import UnitOfWork
from gpuservice.drivers.cloud.simulated import SimulatedCloud


class Broken(BaseException):
    """The process dies: nothing that it would catch."""


class Life:
    """Of one process: ``after`` is called after each of its effects and may end it."""

    def __init__(self) -> None:
        self.after: Callable[[str], None] = lambda what: None
        self.dead = False

    def check(self) -> None:
        """The dead do nothing more, not even tidy up."""
        if self.dead:
            raise Broken("dead")

    def did(self, what: str) -> None:
        try:
            self.after(what)
        except Broken:
            self.dead = True
            raise


class FragileStore:
    """The store as a process with this life has it."""

    def __init__(self, store: DatabaseStore, life: Life) -> None:
        self.store = store
        self.life = life

    def write(self, work: Callable[[UnitOfWork], Any]) -> Any:
        self.life.check()
        result = self.store.write(work)
        self.life.did("write")
        return result

    def read(self, work: Callable[[UnitOfWork], Any]) -> Any:
        self.life.check()
        return self.store.read(work)


class FragileCloud(SimulatedCloud):
    """The simulated cloud as a process with this life has it."""

    def __init__(self, conf: cfg.ConfigOpts, life: Life) -> None:
        super().__init__(conf)
        self.life = life
        self.created = 0

    def create_node(self, request: NodeRequest) -> CloudNode:
        self.life.check()
        made = super().create_node(request)
        self.created += 1
        self.life.did("create_node")
        return made

    def delete_node(self, server_id: str) -> None:
        self.life.check()
        super().delete_node(server_id)
        self.life.did("delete_node")

    def power_off(self, server_id: str) -> bool:
        self.life.check()
        done = super().power_off(server_id)
        self.life.did("power_off")
        return done
