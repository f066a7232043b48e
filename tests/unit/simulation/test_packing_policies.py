# SPDX-License-Identifier: Apache-2.0
"""Each packing policy on a few hosts where its choice can be told by hand."""

from __future__ import annotations

import numpy as np
import pytest
from packing_lists import MODELS, mixed_lists, node

from gpuservice.planner.fragmentation import OURS, Scores
from gpuservice.planner.mix import Shape
from gpuservice.simulation.openb import Node
from gpuservice.simulation.packing_board import (
    Board,
    Ints,
    Placement,
    Placer,
    Policy,
    models_of,
    shape_of,
)
from gpuservice.simulation.packing_policies import NAMES, make

WHOLE_GPU = Shape(1000, 1, 1000)


def placer(
    policy: str,
    nodes: list[Node],
    taken: list[tuple[int, list[int], Shape]] | None = None,
    mix: list[Shape] | None = None,
    known: str = "list",
) -> Placer:
    board = Board(nodes, MODELS)
    generator = np.random.default_rng(0)
    made = make(policy, board, mix or [], known=known, weights=OURS, generator=generator)
    for where, devices, shape in taken or []:
        board.take(Placement(where, devices), shape, 0)
    return Placer(board, made)


def part(milli: int, cores: int = 1) -> Shape:
    return Shape(cores * 1000, 1, milli)


@pytest.mark.parametrize("policy", NAMES)
def test_only_where_it_fits(policy: str) -> None:
    nodes = [node("small", 1), node("wrong", 8, model="B"), node("right", 8), node("none", 0)]
    one = placer(policy, nodes, mix=[WHOLE_GPU])

    placement = one.place(Shape(1000, 2, 1000, (0,)), 1)

    assert placement is not None
    assert placement.node == 2
    assert len(set(placement.devices)) == 2
    assert one.place(Shape(1000, 2, 1000, (0,)), 10**9) is None
    assert one.place(Shape(1000, 9, 1000), 1) is None
    assert one.place(Shape(10**9, 0, 0), 1) is None


@pytest.mark.parametrize("policy", [name for name in NAMES if name != "random"])
def test_equal_nodes_are_taken_in_order(policy: str) -> None:
    one = placer(policy, [node("a", 2), node("b", 2)], mix=[WHOLE_GPU])

    assert one.place(WHOLE_GPU, 1) == Placement(0, [0])


def test_best_fit_leaves_least_behind() -> None:
    nodes = [node("a", 8, cores=64), node("b", 4, cores=64), node("c", 4, cores=16)]

    assert placer("bestfit", nodes).place(WHOLE_GPU, 1) == Placement(2, [0])


def test_best_fit_takes_the_fullest_device() -> None:
    one = placer("bestfit", [node("a", 3)], [(0, [1], part(300)), (0, [2], part(500))])

    assert one.place(part(400), 1) == Placement(0, [2])


def test_packing_shares_then_opens_used_then_idle_nodes() -> None:
    taken = [(1, [0], WHOLE_GPU), (2, [0], part(600))]
    nodes = [node("idle", 2), node("used", 2), node("shared", 2)]

    one = placer("packing", nodes, taken)
    assert one.place(part(400), 1) == Placement(2, [0])
    assert one.place(part(400), 1) == Placement(1, [1])
    assert one.place(WHOLE_GPU, 1) == Placement(2, [1])
    assert one.place(WHOLE_GPU, 1) == Placement(0, [0])


def test_clustering_keeps_kinds_together() -> None:
    taken = [(0, [0], part(500)), (1, [0], WHOLE_GPU)]
    nodes = [node("fractions", 4), node("wholes", 4), node("idle", 4)]

    one = placer("clustering", nodes, taken)
    assert one.place(part(500), 1) == Placement(0, [0])
    assert one.place(WHOLE_GPU, 1) == Placement(1, [1])
    assert one.place(Shape(1000, 2, 1000), 1) == Placement(2, [0, 1])


def test_dot_product_avoids_what_is_most_like_the_request() -> None:
    nodes = [node("plenty", 8, cores=128), node("few", 2, cores=128)]

    assert placer("dotprod", nodes).place(Shape(1000, 2, 1000), 1) == Placement(1, [0, 1])


def test_random_is_any_that_fits() -> None:
    nodes = [node("a", 8), node("b", 1, model="B"), node("c", 8)]
    one = placer("random", nodes)

    where = [one.place(Shape(0, 1, 100, (0,)), 0) for _ in range(40)]

    assert {placement.node for placement in where if placement} == {0, 2}
    assert len({placement.devices[0] for placement in where if placement}) > 3


def test_fgd_keeps_whole_gpus_for_those_who_ask() -> None:
    mix = [WHOLE_GPU] * 5 + [part(500)] * 5
    one = placer("fgd", [node("idle", 2), node("used", 2)], [(1, [1], part(500))], mix)

    assert one.place(part(500), 1) == Placement(1, [1])


@pytest.mark.parametrize("known", ["list", "arrivals"])
def test_ours_keeps_the_rest_that_somebody_asks_for(known: str) -> None:
    mix = [part(530)] * 20 + [part(310)] * 10
    taken = [(0, [0], part(470)), (0, [1], part(400))]
    one = placer("default", [node("a", 3)], taken, mix, known)
    if known == "arrivals":
        for shape in mix:
            one.arrived(shape)

    # FGD would take the 0.53 or the 0.6, which then hold nothing more.
    assert one.place(part(310), 1) == Placement(0, [2])


def test_words_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="no packing policy 'best'"):
        placer("best", [node("a", 1)])
    with pytest.raises(ValueError, match="known is 'all'"):
        placer("default", [node("a", 1)], known="all")


def test_taking_more_than_there_is_is_a_fault() -> None:
    board = Board([node("a", 1)], MODELS)
    board.take(Placement(0, [0]), part(600), 1)

    with pytest.raises(ValueError, match="node a does not hold"):
        board.take(Placement(0, [0]), part(600), 1)


class Forgetful:
    """A policy whose scores are void with every arrival."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def arrived(self, shape: Shape) -> bool:
        self._policy.arrived(shape)
        return True

    def scores(self, board: Board, rows: Ints, shape: Shape) -> Scores:
        return self._policy.scores(board, rows, shape)

    def choose(self, board: Board, scores: Scores, shape: Shape) -> Placement:
        return self._policy.choose(board, scores, shape)


@pytest.mark.parametrize("policy", NAMES)
@pytest.mark.parametrize("known", ["list", "arrivals"])
def test_kept_scores_are_those_of_now(policy: str, known: str) -> None:
    for seed in range(3):
        nodes, pods = mixed_lists(seed, hosts=20, requests=120)
        models = models_of(nodes, pods)
        shapes = [shape_of(pod, models) for pod in pods]
        found = []
        for forgetful in (False, True):
            board = Board(nodes, models)
            generator = np.random.default_rng(seed)
            made = make(policy, board, shapes, known=known, weights=OURS, generator=generator)
            one = Placer(board, Forgetful(made) if forgetful else made)
            for shape, pod in zip(shapes, pods, strict=True):
                one.arrived(shape)
                found.append(one.place(shape, pod.memory_mib))
        assert found[: len(pods)] == found[len(pods) :]
        assert any(found)
        assert not all(found)
