# SPDX-License-Identifier: Apache-2.0
"""A cloud that takes its time: nodes are built side by side and nothing else waits for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from conductor_world import World

from gpuservice.conductor.hands import Hands
from gpuservice.domain.ports import CloudNode, NodeRequest

#: For what takes milliseconds when it works and would never happen when it does not.
ENOUGH_S = 20


def eventually(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + ENOUGH_S
    while time.monotonic() < deadline:
        if true():
            return True
        time.sleep(0.02)
    return False


@contextmanager
def running(world: World) -> Iterator[None]:
    """The conductor's threads."""
    world.conf.set_override("interval_s", 0.05, "conductor")
    stop = threading.Event()
    thread = threading.Thread(target=world.conductor.run, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=ENOUGH_S)
        assert not thread.is_alive()


def test_eight_creates_are_under_way_together(world: World) -> None:
    together = threading.Barrier(8, timeout=ENOUGH_S)
    create = world.cloud.create_node

    def meet(request: NodeRequest) -> CloudNode:
        together.wait()
        return create(request)

    world.cloud.create_node = meet  # type: ignore[method-assign]
    pool = world.pool(nodes=8, max_nodes=8)
    nodes = world.settled(pool)
    assert len({node.server_id for node in nodes}) == 8
    assert len(world.cloud.find_nodes()) == 8


def test_one_stuck_create_keeps_nobody_waiting(world: World) -> None:
    go_on = threading.Event()
    create, stuck = world.cloud.create_node, []

    def first_hangs(request: NodeRequest) -> CloudNode:
        if not stuck:
            stuck.append(request.node_id)
            go_on.wait(4 * ENOUGH_S)
        return create(request)

    world.cloud.create_node = first_hangs  # type: ignore[method-assign]
    slow = world.pool()
    with running(world):
        try:
            assert eventually(lambda: bool(stuck))
            quick = world.pool(nodes=2)

            def ready() -> bool:
                world.register()
                return len(world.nodes(quick, "ready")) == 2

            assert eventually(ready)
            job = world.submit()
            attempt = world.start(job, world.nodes(quick)[:1])
            world.report(attempt)
            assert eventually(lambda: world.job(job).status == "running")
            world.end(attempt)
            assert eventually(lambda: world.job(job).status == "succeeded")
            assert world.nodes(slow)[0].status == "building"
            assert stuck == [world.nodes(slow)[0].id]
        finally:
            go_on.set()

        def all_ready() -> bool:
            world.register()
            return len(world.nodes(slow, "ready")) == 1

        assert eventually(all_ready)
    assert len(world.cloud.find_nodes([stuck[0]])) == 1


def test_a_create_that_outlives_its_claim_leaves_one_server(world: World) -> None:
    """Another conductor takes over meanwhile; the first call takes effect all the same."""
    go_on, begun = threading.Event(), threading.Event()
    create = world.cloud.create_node

    def hang_once(request: NodeRequest) -> CloudNode:
        if not begun.is_set():
            begun.set()
            go_on.wait(4 * ENOUGH_S)
        return create(request)

    world.cloud.create_node = hang_once  # type: ignore[method-assign]
    pool = world.pool()
    first = world.conductor
    world.step(1, 0.1)
    thread = threading.Thread(target=first.step)
    if not begun.is_set():
        thread.start()
        assert begun.wait(ENOUGH_S)
    world.clock.pass_(1 + world.conf.conductor.claim_s)
    world.restart()
    (node,) = world.settled(pool)
    go_on.set()
    thread.join(ENOUGH_S)
    world.step(2)
    (server,) = world.cloud.find_nodes([node.id])
    assert server.server_id == world.nodes(pool)[0].server_id


def test_what_is_at_work_is_not_begun_again() -> None:
    hands, go_on, begun = Hands(2, "t"), threading.Event(), []

    def slow(thing: str) -> bool:
        begun.append(thing)
        return go_on.wait(ENOUGH_S)

    assert hands.work([("a", "a")], slow, 0) == 0
    assert hands.work([("a", "a")], slow, 0) == 0
    go_on.set()
    assert hands.work([("a", "a"), ("b", "b")], slow, None) == 2
    assert sorted(begun) == ["a", "b"]
    hands.close()


def test_a_failure_is_raised_when_the_others_are_done() -> None:
    hands, done = Hands(2, "t"), []

    def work(thing: str) -> bool:
        if thing == "bad":
            raise KeyboardInterrupt
        done.append(thing)
        return True

    with pytest.raises(KeyboardInterrupt):
        hands.work([(one, one) for one in ("bad", "a", "b")], work, None)
    assert sorted(done) == ["a", "b"]
    assert hands.work([("c", "c")], work, None) == 1
    hands.close()
