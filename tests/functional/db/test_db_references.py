# SPDX-License-Identifier: Apache-2.0
"""What a new row refers to cannot go while the row comes: two requests at the same moment.

A request is halted in the middle of its transaction (where it asks for an id); the other one runs
against it. Whoever is first, in the end nothing refers to what is not there.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Waits
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from database_rows import SystemClock
from oslo_config import cfg

from gpuservice.conf import opts
from gpuservice.db.store import DatabaseStore
from gpuservice.domain.context import Caller
from gpuservice.domain.errors import Conflict, GpuServiceError, QueueClosed, UnknownReference
from gpuservice.domain.ports import Hint
from gpuservice.services.deps import Deps
from gpuservice.services.idempotency import Once
from gpuservice.services.registry import Services, build

ROOT = Caller("operators", "root", frozenset({"admin"}), is_admin=True, sees_all=True)
ENOUGH_S = 30
#: So long the other request is watched: it must wait, or (SQLite) is kept waiting.
A_MOMENT_S = 0.5
TYPE = {
    "name": "a100",
    "vendor": "nvidia",
    "memory_mib": 81920,
    "partitions": [{"name": "1g", "kind": "mig"}],
}
FLAVOR = {"name": "f", "gpu_type": "a100", "gpu_count": 1}
QUEUE = {"name": "default", "projects": ["*"]}


@dataclass
class HaltingIds:
    """Halts the thread that was told to, at its n-th id."""

    halt_at: dict[str, int] = field(default_factory=dict)
    halted: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    def new(self) -> str:
        name = threading.current_thread().name
        left = self.halt_at.get(name)
        if left is not None:
            self.halt_at[name] = left - 1
            if left == 1:
                self.halted.set()
                assert self.go_on.wait(ENOUGH_S)
        return str(uuid.uuid4())

    def secret(self) -> str:
        return uuid.uuid4().hex * 2


class NoHints:
    def send(self, hint: Hint) -> None: ...

    def subscribe(self, kinds: Any, listener: Any) -> Callable[[], None]:
        return lambda: None


@dataclass
class Place:
    store: DatabaseStore
    ids: HaltingIds
    services: Services

    def race(self, halted: Callable[[], Any], at: int, other: Callable[[], Any]) -> tuple[Any, Any]:
        """What both gave (or raised): ``halted`` stops at its id number ``at`` until ``other``
        is done or waits."""
        self.ids.halt_at = {"halted_0": at}
        with (
            ThreadPoolExecutor(1, "halted") as one,
            ThreadPoolExecutor(1, "other") as two,
        ):
            first = one.submit(halted)
            assert self.ids.halted.wait(ENOUGH_S)
            second = two.submit(other)
            with suppress(Waits):  # as it should
                second.exception(A_MOMENT_S)
            self.ids.go_on.set()
            return outcome(first), outcome(second)


def outcome(future: Future[Any]) -> Any:
    error = future.exception(ENOUGH_S)
    if error is None:
        return future.result()
    assert isinstance(error, GpuServiceError), error
    return error


@pytest.fixture
def place(store: DatabaseStore) -> Iterator[Place]:
    conf = cfg.ConfigOpts()
    opts.register_all(conf)
    conf([], project="gpuservice", default_config_files=[], default_config_dirs=[])
    ids = HaltingIds()
    nothing: Any = None
    deps = Deps(store, NoHints(), SystemClock(), ids, conf, nothing, nothing, nothing)
    yield Place(store, ids, build(deps))
    assert store.read(lambda uow: uow.quotas.recount()) == []


def once() -> Once:
    return Once(None, lambda row: (201, {}, {}))


def job(place: Place) -> Any:
    return place.services.jobs.create(ROOT, {"name": "j", "command": ["true"]}, once())


@pytest.mark.parametrize("kind", ["job and queue", "pool and flavor", "flavor and GPU type"])
@pytest.mark.parametrize("first", ["the new one", "the deletion"])
def test_a_new_row_and_the_end_of_what_it_names(place: Place, kind: str, first: str) -> None:
    services = place.services
    if kind == "job and queue":
        named = services.queues.create(ROOT, QUEUE, once())
        create: Callable[[], Any] = lambda: job(place)  # noqa: E731
        delete: Callable[[], Any] = lambda: services.queues.delete(ROOT, named.id, None)  # noqa: E731
    elif kind == "pool and flavor":
        services.gpu_types.create(ROOT, TYPE, once())
        flavor = services.flavors.create(ROOT, FLAVOR, once())
        create = lambda: services.pools.create(ROOT, {"name": "p", "flavor": "f"}, once())  # noqa: E731
        delete = lambda: services.flavors.delete(ROOT, flavor.id, None)  # noqa: E731
    else:
        kept = services.gpu_types.create(ROOT, TYPE, once())
        create = lambda: services.flavors.create(ROOT, FLAVOR, once())  # noqa: E731
        delete = lambda: services.gpu_types.delete(ROOT, kept.id, None)  # noqa: E731

    if first == "the new one":
        # Its first id comes after what it names was found, and before it is there itself.
        created, deleted = place.race(create, 1, delete)
        assert not isinstance(created, GpuServiceError)
        assert type(deleted) is Conflict
    else:
        # The id of the event comes after the row was removed.
        deleted, created = place.race(delete, 1, create)
        assert deleted is None
        assert type(created) is UnknownReference and created.pointer is not None


def test_a_new_job_and_a_queue_that_closes(place: Place) -> None:
    queue = place.services.queues.create(ROOT, QUEUE, once())
    closed, created = place.race(
        lambda: place.services.queues.change(ROOT, queue.id, {"status": "closed"}, None),
        1,
        lambda: job(place),
    )
    assert closed.status == "closed"
    assert type(created) is QueueClosed


def test_two_cohorts_do_not_get_one_pool(place: Place) -> None:
    services = place.services
    services.gpu_types.create(ROOT, TYPE, once())
    services.flavors.create(ROOT, FLAVOR, once())
    services.pools.create(ROOT, {"name": "p", "flavor": "f"}, once())
    for name in ("red", "blue"):
        services.cohorts.create(ROOT, {"name": name}, once())

    def queue(name: str) -> Any:
        body = {"name": name, "cohort": name, "pools": ["p"]}
        return services.queues.create(ROOT, body, once())

    # The second id is that of its event: the queue is written, but not yet to be seen.
    one, other = place.race(lambda: queue("red"), 2, lambda: queue("blue"))
    assert not isinstance(one, GpuServiceError)
    assert type(other) is Conflict and other.pointer == "/queue/cohort"


def test_a_cohort_does_not_go_from_under_a_new_queue(place: Place) -> None:
    services = place.services
    cohort = services.cohorts.create(ROOT, {"name": "red"}, once())
    created, deleted = place.race(
        lambda: services.queues.create(ROOT, {"name": "q", "cohort": "red"}, once()),
        2,
        lambda: services.cohorts.delete(ROOT, cohort.id, None),
    )
    assert created.cohort == "red"
    assert type(deleted) is Conflict


def test_a_partition_does_not_go_from_under_a_new_flavor(place: Place) -> None:
    services = place.services
    kept = services.gpu_types.create(ROOT, TYPE, once())
    body = {**FLAVOR, "mode": "mig", "partition": "1g"}
    created, changed = place.race(
        lambda: services.flavors.create(ROOT, body, once()),
        1,
        lambda: services.gpu_types.change(ROOT, kept.id, {"partitions": []}, None),
    )
    assert created.partition == "1g"
    assert type(changed) is Conflict and changed.pointer == "/gpu_type/partitions"
