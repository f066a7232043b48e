# SPDX-License-Identifier: Apache-2.0
"""A node that cannot start tasks does not burn the line: it is left alone for a while."""

from __future__ import annotations

import pytest
from conductor_world import World

from gpuservice.conductor.start_trouble import IN_A_ROW, PAUSE, REASON, SOON
from gpuservice.domain.inventory import Node

FULL = {"exit_code": None, "failure_class": "node_failure", "failure_evidence": "disk full"}


@pytest.fixture
def node(world: World) -> Node:
    return world.settled(world.pool())[0]


def run(world: World, node: Node, **how: object) -> None:
    """A job of its own comes to the node and ends."""
    job = world.submit(retry={"max_attempts": 1})
    world.end(world.start(job, [node]), **how)
    world.step()


def fresh(world: World, node: Node) -> Node:
    found = world.real_store.read(lambda uow: uow.nodes.get(node.id))
    assert found is not None
    return found


def test_after_some_failures_in_a_row_it_is_cordoned_and_tried_again_later(
    world: World, node: Node
) -> None:
    for _ in range(IN_A_ROW):
        assert fresh(world, node).status == "ready"
        run(world, node, **FULL)
    held = fresh(world, node)
    assert (held.status, held.status_reason) == ("cordoned", REASON)
    told = world.events(node.id)[-1]
    assert (told.action, told.reason, told.detail["message"]) == (
        "node.cordon",
        REASON,
        "disk full",
    )
    world.renew(node)
    world.step(1, PAUSE.total_seconds() / 2)
    assert fresh(world, node).status == "cordoned"
    world.renew(node)
    world.step(1, PAUSE.total_seconds() / 2)
    back = fresh(world, node)
    assert (back.status, back.status_reason) == ("ready", None)
    for _ in range(IN_A_ROW):
        run(world, node, **FULL)
    assert fresh(world, node).status == "cordoned"


def test_failures_far_apart_say_nothing(world: World, node: Node) -> None:
    for _ in range(2 * IN_A_ROW):
        run(world, node, **FULL)
        world.renew(node)
        world.clock.pass_(SOON.total_seconds())
        world.renew(node)
    assert fresh(world, node).status == "ready"


def test_what_was_given_up_with_an_epoch_says_nothing_of_the_next(world: World, node: Node) -> None:
    run(world, node, **FULL)
    world.real_store.write(lambda uow: uow.nodes.change(node.id, {"epoch": node.epoch + 1}))
    run(world, fresh(world, node), **FULL)
    assert fresh(world, node).status == "ready"


@pytest.mark.parametrize(
    "between",
    [
        {"exit_code": 1, "claimed_started_at": ...},
        {"exit_code": None, "failure_class": "node_failure", "claimed_started_at": ...},
    ],
)
def test_a_task_that_started_speaks_for_the_node(
    world: World, node: Node, between: dict[str, object]
) -> None:
    started = {**between, "claimed_started_at": world.clock.now()}
    for how in (FULL, started, FULL):
        run(world, node, **how)
    assert fresh(world, node).status == "ready"


@pytest.mark.parametrize("failure", ["platform", "data", "image", "permission"])
def test_what_may_be_the_jobs_own_fault_says_nothing(
    world: World, node: Node, failure: str
) -> None:
    for _ in range(IN_A_ROW + 1):
        run(world, node, exit_code=None, failure_class=failure)
    assert fresh(world, node).status == "ready"


def test_what_people_cordon_stays_cordoned(world: World, node: Node) -> None:
    world.real_store.write(
        lambda uow: uow.nodes.change(
            node.id,
            {"status": "cordoned", "status_reason": "dust", "status_changed_at": uow.now()},
        )
    )
    world.step(1, 2 * PAUSE.total_seconds())
    assert fresh(world, node).status == "cordoned"
