# SPDX-License-Identifier: Apache-2.0
"""What the all-in-one program has from the start: flavor, pool, queue, each named default."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from gpuservice.domain.context import Caller
from gpuservice.domain.inventory import Flavor, Host, Pool
from gpuservice.domain.ports_store import Page, Where
from gpuservice.services.idempotency import Kept, Once
from gpuservice.services.registry import Services

T = TypeVar("T")

#: The pool's nodes must be ready within this time, seconds.
READY_S = 60.0
PROJECT = "operator"
OPERATOR = Caller(
    PROJECT, "all-in-one", frozenset({"admin"}), is_admin=True, is_manager=True, sees_all=True
)


class NotReady(Exception):
    """The pool did not become ready in time."""


def seed(services: Services, stop: threading.Event) -> None:
    """Make what is missing, and wait until the pool's nodes are ready.

    :raises NotReady: after ``READY_S``.
    """
    until = time.monotonic() + READY_S
    hosts = _wait(lambda: _hosts(services), until, stop)
    if hosts:
        pool = _pool(services, hosts)
        _queue(services, pool)
        _wait(lambda: services.pools.show(OPERATOR, pool.id).status == "active", until, stop)


def _hosts(services: Services) -> list[Host]:
    views, _ = services.hosts.page(OPERATOR, Page(limit=1000), False)
    return [view.host for view in views if view.devices_total]


def _wait(look: Callable[[], T], until: float, stop: threading.Event) -> T:
    while True:
        found = look()
        if found or stop.is_set():
            return found
        if time.monotonic() > until:
            raise NotReady("the nodes of the default pool are not ready in time")
        stop.wait(0.05)


def _once() -> Once:
    def render(created: object) -> Kept:
        return 201, {}, {}

    return Once(None, render)


_NAMED = (Where("name", "eq", "default"),)


def _flavor(services: Services, hosts: list[Host]) -> Flavor:
    known, _ = services.flavors.page(OPERATOR, Page(_NAMED), False)
    if known:
        return known[0]
    devices, _ = services.devices.page(
        OPERATOR, Page((Where("host_id", "eq", hosts[0].id),)), False
    )
    return services.flavors.create(
        OPERATOR,
        {
            "name": "default",
            "gpu_type": devices[0].gpu_type,
            "gpu_count": len(devices),
            "vcpus": hosts[0].vcpus,
            "memory_mib": hosts[0].memory_mib,
        },
        _once(),
    )


def _pool(services: Services, hosts: list[Host]) -> Pool:
    known, _ = services.pools.page(
        OPERATOR, Page((*_NAMED, Where("project_id", "eq", PROJECT))), False
    )
    if known:
        return known[0]
    flavor = _flavor(services, hosts)
    return services.pools.create(
        OPERATOR,
        {
            "name": "default",
            "flavor": flavor.name,
            "min_nodes": len(hosts),
            "max_nodes": len(hosts),
            "shared_with": ["*"],
            "isolation": "none",
        },
        _once(),
    )


def _queue(services: Services, pool: Pool) -> None:
    known, _ = services.queues.page(OPERATOR, Page(_NAMED), False)
    if not known:
        services.queues.create(
            OPERATOR,
            {
                "name": "default",
                "project_id": None,
                "projects": ["*"],
                "pools": [pool.id],
                "max_priority": 1000,
            },
            _once(),
        )
        return
    present, _ = services.pools.page(
        OPERATOR, Page((Where("id", "in", list(known[0].pool_ids)),)), False
    )
    if not present:  # what it had is gone: nothing in it would ever start
        services.queues.change(OPERATOR, known[0].id, {"pools": [pool.id]}, None)
