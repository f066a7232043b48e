# SPDX-License-Identifier: Apache-2.0
"""The value of idle capacity: which place for a request leaves the most useful rest.

A place is scored by what it does to its node, higher is better:

* the *fragment measure* of FGD (Weng et al., "Beware of Fragmentation", USENIX ATC 2023): the idle
  GPU that a random request of the recent mix could not use. The score is in steps, because a
  difference smaller than a step says less than the order of the nodes does;
* the *value of free parts* of GPUs at the dual prices of the cutting-stock problem
  (``cutting_stock``): a rest that fits a fraction somebody asks for is worth keeping whole;
* the *lack of cores*: GPUs whose host has no cores left for them are stranded;
* the *price of the model*: a request that may run anywhere leaves the models that others insist on.

Everything is learned from a ``Mix`` of requests and everything is a plain function of arrays:
``free`` (N, D) idle milli-GPU of each device, 0..1000 (0 where a node has fewer than D), ``cores``
(N,) idle milli-cores, ``model`` (N,) index of the node's GPU model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpuservice.planner.cutting_stock import dual_prices, value_table
from gpuservice.planner.mix import WHOLE, Mix, Shape

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Weights(NamedTuple):
    """How much each part of the score counts; found by experiment on the openb lists."""

    #: Of the fragment measure: the score runs from 0 to ``fragment`` ...
    fragment: float = 100.0
    #: ... in this many steps.
    steps: int = 200
    #: Of one whole GPU's worth of free parts.
    value: float = 300.0
    #: Of one idle GPU without cores.
    lack: float = 5.0
    #: Of one GPU of a model that is fully booked by requests that insist on it.
    model: float = 3.0
    #: Cores kept for each idle GPU, as a multiple of what a GPU's worth of requests asks for.
    headroom: float = 1.2


#: The first columns of ``Prices.parts``.
IDLE, WORTH = 0, 1
MILLIONTHS = 10**6
#: Sizes of fractions that are priced; the time grows with their cube, for 40 it is some 50 ms.
MOST_SIZES = 40
#: What our placement goes by.
OURS = Weights()
#: FGD as published: its own measure alone, in whole steps.
FGD = Weights(steps=100, value=0.0, lack=0.0, model=0.0)


class Scores(NamedTuple):
    """A score for each node, and where in it."""

    #: (N,); minus infinity where the request does not fit.
    value: Floats
    #: (N,) the device to cut a fraction from (-1: none fits); the first device of the rest.
    device: Ints


@dataclass(frozen=True, slots=True)
class Prices:
    """What a mix of requests teaches: made by ``learn``, read by ``fragment`` and ``score``.

    Requests that differ only in cores and models share a group g = (devices, milli).
    """

    #: Requests in the typical mix.
    total: int
    #: (G,) devices that a request of the group needs.
    devices: Ints
    #: (1001, 2 + 2 G) for a device with so much free: that much, its value in millionths of a GPU,
    #: by group 1 where it holds a task's part, and by group that much again where it does. Sums
    #: over the devices of a node say all of it but its cores. Narrow, to stay in the cache.
    parts: NDArray[np.int32]
    #: (C,) the different core requests, ascending.
    core_steps: Ints
    #: (models, C + 1, G) requests of the group that a node of the model with at least the first so
    #: many core requests satisfies can run, as far as cores and model go.
    runs: Floats
    #: Milli-cores asked for with each whole GPU; 0 when no GPU was asked for.
    cores_per_gpu: float
    #: (models,) share of each model that is booked by requests that may not run everywhere.
    model_price: Floats


def learn(mix: Mix, capacity: Sequence[int] | Ints, *, share: float = 1.0) -> Prices:
    """The prices that a mix of requests makes on a cluster.

    :param capacity: (models,) milli-GPU of each model that the cluster has, idle or not.
    :param share: share of all requests that the most frequent shapes, those of the fragment
        measure, must cover. FGD has 0.95; the rare large ones are what it then overlooks.
    """
    typical = mix.typical(share)
    sizes = np.asarray(capacity, dtype=np.float64)
    groups = sorted({(shape.devices, shape.milli) for shape, _ in typical if shape.devices})
    column = {group: index for index, group in enumerate(groups)}
    core_steps = np.array(sorted({shape.cores_milli for shape, _ in typical}), dtype=np.int64)
    runs = np.zeros((len(sizes), len(core_steps) + 1, len(groups)))
    for shape, count in typical:
        if not shape.devices:
            continue
        enough = int(np.searchsorted(core_steps, shape.cores_milli)) + 1
        rows = list(shape.models) if shape.models else slice(None)
        runs[rows, enough:, column[shape.devices, shape.milli]] += count
    demanded = sum(shape.total_milli * count for shape, count in mix.counts.items())
    cores = sum(shape.cores_milli * count for shape, count in mix.counts.items())
    amounts = np.arange(WHOLE + 1)[:, None]
    holds = amounts >= np.array([milli for _, milli in groups])
    # Differences of equal values must come out equal, so what the solver rounds is cut off.
    worth = np.round(worth_of_parts(mix)[:, None] * MILLIONTHS)
    return Prices(
        total=sum(count for _, count in typical),
        devices=np.array([devices for devices, _ in groups], dtype=np.int64),
        parts=np.concatenate([amounts, worth, holds, holds * amounts], axis=1).astype(np.int32),
        core_steps=core_steps,
        runs=runs,
        cores_per_gpu=cores / demanded * WHOLE if demanded else 0.0,
        model_price=_model_prices(mix, sizes),
    )


def worth_of_parts(mix: Mix) -> Floats:
    """(1001,) the value of so many free milli-GPU on one device; a whole GPU is worth 1.

    Of more than ``MOST_SIZES`` sizes those that take the most GPU have prices, and the others none.
    """
    demand: dict[int, int] = {}
    for shape, count in mix.counts.items():
        if shape.devices and shape.milli < WHOLE:
            demand[shape.milli] = demand.get(shape.milli, 0) + count * shape.devices
    by_weight = sorted(demand, key=lambda size: (-size * demand[size], size))
    sizes = sorted(by_weight[:MOST_SIZES])
    worth = value_table(sizes, dual_prices(sizes, [demand[size] for size in sizes]))
    worth[WHOLE] = 1.0
    return worth


def _model_prices(mix: Mix, capacity: Floats) -> Floats:
    """(models,) milli-GPU bound to each model for each one of it, spread by capacity.

    As it would be were as much asked for as the cluster has: the prices of the first hundred
    requests then mean the same as those of the first ten thousand.
    """
    bound = np.zeros(len(capacity))
    demand = 0
    for shape, count in mix.counts.items():
        demand += shape.total_milli * count
        if shape.models and shape.devices:
            rows = list(shape.models)
            held = capacity[rows].sum()
            if held > 0:
                bound[rows] += shape.total_milli * count * capacity[rows] / held
    prices = np.divide(bound, capacity, out=np.zeros(len(capacity)), where=capacity > 0)
    return np.round(prices * (capacity.sum() / demand), 6) if demand else prices


def fragment(prices: Prices, free: Ints, cores: Ints, model: Ints) -> Floats:
    """(N,) idle milli-GPU of each node that a random request of the mix could not use.

    For a request that does not fit the node, or needs no GPU, all that is idle is a fragment; for
    one that fits, the parts too small for it.
    """
    if not prices.total:
        return np.zeros(len(free))
    states = prices.parts[free].sum(axis=1, dtype=np.int32)
    left: Floats = states[:, IDLE] - _usable(prices, states, cores, model) / prices.total
    return left


def _usable(prices: Prices, states: NDArray[np.int32], cores: Ints, model: Ints) -> Floats:
    """(M,) idle milli-GPU that a request can use, summed over the requests of the mix.

    Whole numbers, so that equal places compare equal.

    :param states: (M, 2 + 2 G) ``Prices.parts`` summed over the devices of each node.
    """
    groups = len(prices.devices)
    runs = prices.runs[model, prices.core_steps.searchsorted(cores, side="right")]
    fits = states[:, 2 : 2 + groups] >= prices.devices
    usable: Floats = (fits * states[:, 2 + groups :] * runs).sum(axis=1)
    return usable


def score(
    prices: Prices,
    free: Ints,
    cores: Ints,
    model: Ints,
    request: Shape,
    weights: Weights = OURS,
) -> Scores:
    """How good each node is for one task, and on which device it is best there.

    Equal places have equal scores: the caller's order of the nodes decides among them. A request of
    whole GPUs takes the node's first idle ones; one of fractions of several GPUs those that it
    fills best (``devices_for``).
    """
    value = np.full(len(free), -np.inf)
    device = np.full(len(free), -1, dtype=np.int64)
    places = _places(free, cores, model, request)
    if len(places.node):
        gain = _gain(prices, free, cores, model, request, weights, places)
        if len(places.node) == len(places.of):
            value[places.node], device[places.node] = gain, places.device
            return Scores(value, device)
        # Places come by node, then device: of the best of a node the first one stays.
        value[places.node] = np.maximum.reduceat(gain, places.first)
        best = np.flatnonzero(gain == value[places.node[places.of]])[::-1]
        device[places.node[places.of[best]]] = places.device[best]
    return Scores(value, device)


class _Places(NamedTuple):
    """Where a request fits: P places on M nodes."""

    #: (M,) the nodes, ascending, and the index of the first place on each.
    node: Ints
    first: Ints
    #: (P,) index into ``node``; the places are in its order.
    of: Ints
    #: (P,) the device where they differ, else the node's first that fits; -1: no GPU needed.
    device: Ints
    #: (P, devices of the request) what is idle of each device that it would take.
    parts: Ints


def _places(free: Ints, cores: Ints, model: Ints, request: Shape) -> _Places:
    """All places, without those that are as good as an earlier one of their node."""
    room = free >= max(request.milli, 1)
    fits = (cores >= request.cores_milli) & (room.sum(axis=1) >= request.devices)
    if request.models:
        fits &= np.isin(model, request.models)
    node = np.flatnonzero(fits)
    each = np.arange(len(node))
    room, idle = room[node], free[node]
    if request.devices != 1 or request.milli == WHOLE:
        if request.milli == WHOLE:
            parts = np.full((len(node), request.devices), WHOLE, dtype=np.int64)
        else:
            tightest = np.sort(np.where(room, idle, WHOLE + 1), axis=1)
            parts = tightest[:, : request.devices]
        device = room.argmax(axis=1) if request.devices else np.full(len(node), -1)
        return _Places(node, each, each, device, parts)
    # Of devices with equally much idle the first stands for all.
    same = ((idle[:, :, None] == idle[:, None, :]) & _earlier(free.shape[1])).any(axis=2)
    of, device = np.nonzero(room & ~same)
    return _Places(node, of.searchsorted(each), of, device, idle[of, device][:, None])


@lru_cache
def _earlier(devices: int) -> NDArray[np.bool_]:
    """(D, D) true where the second device comes before the first."""
    return np.tri(devices, k=-1, dtype=np.bool_)


def devices_for(free: Ints, request: Shape, device: int) -> list[int]:
    """The devices of one node that the request takes.

    :param free: (D,) idle milli-GPU of that node.
    :param device: what ``score`` said of it.
    """
    if not request.devices:
        return []
    if request.devices == 1:
        return [device]
    room = np.flatnonzero(free >= request.milli)
    tightest = room[np.argsort(free[room], kind="stable")]
    return sorted(tightest[: request.devices].tolist())


def _gain(
    prices: Prices,
    free: Ints,
    cores: Ints,
    model: Ints,
    request: Shape,
    weights: Weights,
    places: _Places,
) -> Floats:
    """(P,) the score of each place: a sum of what taking it changes."""
    of = places.of
    # The nodes as they are, and behind them as each place would leave its node.
    before = prices.parts[free[places.node]].sum(axis=1, dtype=np.int32)
    after = before[of]
    for part in places.parts.T:
        after += prices.parts[part - request.milli]
        after -= prices.parts[part]
    states = np.concatenate([before, after])
    cores, model = cores[places.node], model[places.node]
    cores = np.concatenate([cores, cores[of] - request.cores_milli])
    models = np.concatenate([model, model[of]])
    nodes, idle = len(places.node), states[:, IDLE].astype(np.float64)

    unusable = idle * prices.total - _usable(prices, states, cores, models)
    change = (unusable[:nodes][of] - unusable[nodes:]) / (WHOLE * max(prices.total, 1))
    gain: Floats = np.floor(weights.steps / (1.0 + np.exp(-change)))
    gain *= weights.fragment / weights.steps

    per_gpu = prices.cores_per_gpu
    potential = weights.value / MILLIONTHS * states[:, WORTH]
    if weights.lack and per_gpu:
        lack = np.maximum(0.0, weights.headroom * per_gpu / WHOLE * idle - cores)
        potential -= weights.lack / per_gpu * lack
    gain += potential[nodes:] - potential[:nodes][of]

    if weights.model:
        if request.devices:
            used = request.total_milli / WHOLE
        else:  # cores without a GPU strand GPUs too, but not for certain
            used = 0.5 * request.cores_milli / per_gpu if per_gpu else 0.0
        gain -= weights.model * used * prices.model_price[models[nodes:]]
    # What the order of additions did to the last digits must not decide.
    return np.round(gain, 6)
