# SPDX-License-Identifier: Apache-2.0
"""The conductor may die between any two steps: the next one comes to the same end.

Each story is told once to count its writes and cloud calls, then once for each of them with a
crash right after it, followed by a new conductor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from conductor_world import World
from mortal_process import Broken

Make = Callable[..., World]

#: Passes with time between them; enough for every pause of the story.
PASSES, SECONDS = 14, 3.0


class CrashAt:
    """Raises at the n-th step, once."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.seen = 0

    def __call__(self, what: str) -> None:
        self.seen += 1
        self.left -= 1
        if self.left == 0:
            raise Broken(what)


def grow_and_run(world: World, crash: CrashAt) -> dict[str, Any]:
    """A pool comes up, a gang fails on a lost node, runs again, succeeds; the pool goes."""
    pool = world.pool(nodes=2)
    world.life.after = crash
    passes(world)
    job = world.submit(tasks={"count": 2}, retry={"backoff_s": 1})
    array = world.submit(array={"size": 3})
    first = world.start(job, world.nodes(pool))
    world.start(array, world.nodes(pool)[:1], times=2)
    world.end(first, 1, exit_code=None, failure_class="node_failure")
    passes(world, 2)
    world.end(first, 0, exit_code=None, signal=15)
    for attempt in world.attempts(array):
        world.end(attempt, exit_code=attempt.index)
    passes(world, 3)
    second = world.start(job, world.nodes(pool))
    world.start(array, world.nodes(pool)[:1])
    world.report(second)
    passes(world, 2)
    world.end(second)
    world.end(world.attempts(array)[-1])
    passes(world, 2)
    world.real_store.write(lambda uow: uow.pools.change(pool.id, {"status": "deleting"}))
    passes(world, 4)
    done = world.job(array)
    return {
        "job": world.job(job).status,
        "attempts": [(one.number, one.outcome) for one in world.attempts(job)],
        "array": (done.status, done.succeeded_elements, done.failed_elements),
        "replayed": world.replayed(job),
        "pool": world.fresh_pool(pool).status,
        "nodes": len(world.nodes(pool)),
        "servers": len(world.cloud.find_nodes()),
        "held": world.held_milli(),
    }


def passes(world: World, times: int = PASSES) -> None:
    """Passes of the conductor; after a crash with a new one, which gets its passes too."""
    for _ in range(times):
        try:
            world.step(1, SECONDS)
        except Broken:
            world.restart()
            for _ in range(8):
                world.step(1, SECONDS)
                world.register()
        world.register()
        world.renew(*world.real_store.read(lambda uow: uow.nodes.find()))


@pytest.fixture
def patient(make_world: Make) -> Callable[[], World]:
    """Worlds whose leases on work end soon, since crashed conductors leave theirs behind."""
    return lambda: make_world(conductor__claim_s=5, conductor__inventory_interval_s=1)


def test_the_end_is_the_same_whatever_step_the_conductor_died_after(
    patient: Callable[[], World],
) -> None:
    calm = CrashAt(-1)
    expected = grow_and_run(patient(), calm)
    assert expected == {
        "job": "succeeded",
        "attempts": [(1, "node_failure"), (2, "succeeded")],
        "array": ("failed", 2, 1),
        "replayed": "succeeded",
        "pool": "deleted",
        "nodes": 0,
        "servers": 0,
        "held": 0,
    }
    # Not a divisor of what one pass writes: each crash meets another kind of step.
    for at in range(1, calm.seen, max(1, calm.seen // 20) | 1):
        world = patient()
        assert grow_and_run(world, CrashAt(at)) == expected, f"crash after step {at}"
        world.check()
