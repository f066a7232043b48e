# SPDX-License-Identifier: Apache-2.0
"""The value of idle capacity against a slow calculation request by request."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gpuservice.planner.fragmentation import (
    FGD,
    Weights,
    devices_for,
    fragment,
    learn,
    score,
    worth_of_parts,
)
from gpuservice.planner.mix import Mix, Shape

NOTHING = Weights(fragment=0.0, value=0.0, lack=0.0, model=0.0)
CAPACITY = [8000, 4000, 0]


def slow_fragment(mix: Mix, free: list[int], cores: int, model: int) -> float:
    """The published definition, one request after the other."""
    total = 0
    for shape, count in mix.counts.items():
        room = [idle for idle in free if idle >= shape.milli]
        fits = (
            shape.devices > 0
            and len(room) >= shape.devices
            and cores >= shape.cores_milli
            and (not shape.models or model in shape.models)
        )
        total += count * (sum(free) - sum(room) if fits else sum(free))
    return total / mix.total


def random_mix(generator: np.random.Generator) -> Mix:
    mix = Mix()
    for _ in range(int(generator.integers(1, 12))):
        devices, milli = [(0, 0), (1, 310), (1, 470), (1, 810), (1, 1000), (2, 1000), (2, 500)][
            int(generator.integers(7))
        ]
        models = [(), (0,), (1,), (0, 1), (2,)][int(generator.integers(5))]
        cores = int(generator.integers(0, 9)) * 1000
        mix.add(Shape(cores, devices, milli, models), int(generator.integers(1, 9)))
    return mix


def test_fragments_are_those_of_the_definition() -> None:
    generator = np.random.default_rng(3)
    for _ in range(100):
        mix = random_mix(generator)
        free = generator.choice([0, 190, 310, 530, 1000], (7, 4))
        cores = generator.integers(0, 12, 7) * 1000
        model = generator.integers(0, 2, 7)

        found = fragment(learn(mix, CAPACITY), free, cores, model)

        wanted = [
            slow_fragment(mix, list(row), int(left), int(kind))
            for row, left, kind in zip(free, cores, model, strict=True)
        ]
        assert found == pytest.approx(wanted)


def test_fgd_score_is_that_of_the_definition() -> None:
    generator = np.random.default_rng(4)
    for _ in range(60):
        mix = random_mix(generator)
        free = generator.choice([0, 310, 530, 1000], (5, 3))
        cores = generator.integers(2, 12, 5) * 1000
        model = np.zeros(5, dtype=np.int64)
        request = Shape(2000, 1, 310)

        found = score(learn(mix, CAPACITY), free, cores, model, request, FGD)

        for node in range(5):
            best, device = -math.inf, -1
            before = slow_fragment(mix, list(free[node]), int(cores[node]), 0)
            for index, idle in enumerate(free[node]):
                if idle >= 310:
                    after = free[node].copy()
                    after[index] -= 310
                    change = before - slow_fragment(mix, list(after), int(cores[node]) - 2000, 0)
                    points = math.floor(100 / (1 + math.exp(-round(change, 9) / 1000)))
                    if points > best:
                        best, device = points, index
            assert found.value[node] == best
            assert found.device[node] == device


def test_what_does_not_fit_has_no_score() -> None:
    prices = learn(Mix([Shape(1000, 1, 500)]), CAPACITY)
    free = np.array([[1000, 0], [400, 400], [1000, 1000], [1000, 1000]])
    cores = np.array([8000, 8000, 500, 8000])
    model = np.array([0, 0, 0, 1])

    found = score(prices, free, cores, model, Shape(1000, 1, 500, (0,)))

    assert (found.value > -np.inf).tolist() == [True, False, False, False]
    assert found.device.tolist() == [0, -1, -1, -1]


def test_nothing_learned_still_finds_places() -> None:
    prices = learn(Mix(), CAPACITY)
    free, cores, model = np.array([[1000, 600]]), np.array([4000]), np.array([0])

    assert fragment(prices, free, cores, model).tolist() == [0.0]
    assert score(prices, free, cores, model, Shape(1000, 1, 500)).value[0] > -np.inf


def test_a_fraction_goes_where_the_rest_stays_of_use() -> None:
    mix = Mix()
    mix.add(Shape(0, 1, 530), 20)
    mix.add(Shape(0, 1, 310), 10)
    free = np.array([[530, 600, 1000]])

    found = score(
        learn(mix, CAPACITY), free, np.array([64000]), np.array([0]), Shape(0, 1, 310),
        NOTHING._replace(value=1.0),
    )  # fmt: skip

    # A 0.53 fits beside it on the whole GPU alone; best fit would have spoilt the first.
    assert found.device.tolist() == [2]
    assert found.value.tolist() == [0.0]


def test_gpus_are_not_left_without_cores() -> None:
    prices = learn(Mix([Shape(8000, 1, 1000)]), CAPACITY)
    free = np.array([[1000] * 8, [1000] * 8])
    cores = np.array([64000, 128000])

    found = score(
        prices, free, cores, np.zeros(2, dtype=np.int64), Shape(16000, 1, 1000),
        NOTHING._replace(lack=1.0),
    )  # fmt: skip

    assert found.value.tolist() == pytest.approx([-(16000 - 1.2 * 8000) / 8000, 0.0])


def test_wanted_models_are_left_to_those_who_insist() -> None:
    mix = Mix([Shape(1000, 1, 1000, (1,)), Shape(1000, 1, 1000)])
    prices = learn(mix, CAPACITY)

    # Half of the demand is bound to a third of the cluster.
    assert prices.model_price.tolist() == pytest.approx([0.0, 1.5, 0.0])
    free = np.array([[1000], [1000]])
    found = score(
        prices, free, np.array([4000, 4000]), np.array([1, 0]), Shape(1000, 1, 1000),
        NOTHING._replace(model=1.0),
    )  # fmt: skip
    assert found.value.tolist() == pytest.approx([-1.5, 0.0])


def test_prices_do_not_grow_with_the_number_of_arrivals() -> None:
    shapes = [Shape(4000, 1, 1000, (1,)), Shape(6000, 1, 470), Shape(1000, 0, 0)]
    few, many = learn(Mix(shapes), CAPACITY), learn(Mix(shapes * 50), CAPACITY)

    assert few.model_price.tolist() == many.model_price.tolist()
    assert few.cores_per_gpu == pytest.approx(many.cores_per_gpu)
    assert few.parts.tolist() == many.parts.tolist()


def test_whole_and_shared_devices_of_several() -> None:
    assert devices_for(np.array([500, 1000, 0, 1000]), Shape(0, 2, 1000), 1) == [1, 3]
    assert devices_for(np.array([500, 1000, 300, 600]), Shape(0, 2, 500), 0) == [0, 3]
    assert devices_for(np.array([500, 1000]), Shape(0, 1, 300), 1) == [1]
    assert devices_for(np.array([500, 1000]), Shape(4000, 0, 0), -1) == []


def test_parts_of_several_devices_count_as_often() -> None:
    worth = worth_of_parts(Mix([Shape(0, 2, 500)]))

    assert worth[499] == 0.0
    assert worth[500] == 0.5
    assert worth[1000] == 1.0


def test_of_very_many_sizes_the_heaviest_are_priced() -> None:
    mix = Mix()
    mix.add(Shape(0, 1, 600), 1000)
    for milli in range(100, 160):
        mix.add(Shape(0, 1, milli))

    worth = worth_of_parts(mix)

    assert worth[600] == 1.0
    assert worth[1000] == 1.0
    assert (np.diff(worth) >= 0).all()


def test_typical_shapes_cover_the_share_asked_for() -> None:
    mix = Mix()
    mix.add(Shape(1000, 1, 1000), 90)
    mix.add(Shape(2000, 1, 1000), 6)
    mix.add(Shape(3000, 8, 1000), 4)

    assert mix.typical(0.95) == [(Shape(1000, 1, 1000), 90), (Shape(2000, 1, 1000), 6)]
    assert len(mix.typical()) == 3


def test_learning_is_due_at_growing_intervals() -> None:
    mix = Mix(first=4, growth=2.0)
    due = []
    for arrival in range(1, 33):
        mix.add(Shape(1000, 1, 1000))
        if mix.due():
            due.append(arrival)

    assert due == [4, 8, 16, 32]


@pytest.mark.parametrize("wrong", [{"first": 0}, {"growth": 1.0}])
def test_intervals_that_never_grow_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="growing intervals"):
        Mix(**wrong)  # type: ignore[arg-type]
