# SPDX-License-Identifier: Apache-2.0
"""Packing mode: what share of the GPUs requests get that come one by one and never leave.

The set-up of the FGD paper (USENIX ATC 2023) as its simulator runs it: the list once, shuffled;
behind it requests drawn from the list with replacement, until they ask for ``inflation`` times the
GPUs of the cluster (a list above that loses random requests); the nodes in a random order that is
fixed for the run, which decides among equal scores; what does not fit is dropped. A figure "at 100"
is the mean over all arrivals at which the demand so far, over capacity, rounds to 100 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpuservice.planner.fragmentation import OURS, Prices, Weights, fragment, learn
from gpuservice.planner.mix import Mix, Shape
from gpuservice.simulation import packing_policies, packing_queue
from gpuservice.simulation.faults import InputFault
from gpuservice.simulation.openb import Node, Pod
from gpuservice.simulation.packing_board import (
    Board,
    Floats,
    Ints,
    Placement,
    Placer,
    models_of,
    shape_of,
)

#: Demand so far in % of the cluster's GPUs, at which the summary says how it went.
POINTS = (50, 80, 90, 95, 100, 110, 120, 130)


@dataclass(frozen=True, slots=True)
class Options:
    """What ``--set packing.NAME=VALUE`` chooses."""

    #: "list": the default policy knows how often each shape of the list is asked for (as FGD does);
    #: "arrivals": it learns that from the requests so far.
    known: str = "list"
    #: With a queue: decide when so many requests have come since the last time, largest first.
    batch: int = 100
    #: With a queue: hold the requests that waste most, as many as could not all run once as much is
    #: asked for as the cluster has, until ``hold_until`` of that came. GPUs idle meanwhile although
    #: somebody waits for them.
    hold: bool = False
    hold_until: float = 0.995
    #: Share of the GPUs that is lost to other causes than fractions.
    hold_slack: float = 0.01
    weights: Weights = OURS


@dataclass(slots=True)
class Arrival:
    """One request and what became of it."""

    name: str
    shape: Shape
    memory_mib: int
    placement: Placement | None = None
    #: Number of the arrival at which it was placed.
    placed_at: int | None = None
    held: bool = False


@dataclass(slots=True)
class Run:
    """A run as it goes: what came, and each node as it was after each change."""

    arrivals: list[Arrival]
    placer: Placer
    #: What the FGD paper measures fragments with, for every policy.
    typical: Prices
    _at: list[int] = field(default_factory=list)
    _free: list[Ints] = field(default_factory=list)
    _cores: list[int] = field(default_factory=list)

    def place(self, index: int, now: int) -> bool:
        """Try to place the request ``index`` when the request ``now`` has just come."""
        one, board = self.arrivals[index], self.placer.board
        one.placement = self.placer.place(one.shape, one.memory_mib)
        if one.placement is None:
            return False
        one.placed_at = now
        self._at.append(now)
        self._free.append(board.free[one.placement.node].copy())
        self._cores.append(int(board.cores[one.placement.node]))
        return True

    def allocated(self) -> Ints:
        """(arrivals,) milli-GPU in use after each arrival."""
        taken = np.zeros(len(self.arrivals), dtype=np.int64)
        for one in self.arrivals:
            if one.placed_at is not None:
                taken[one.placed_at] += one.shape.total_milli
        return np.cumsum(taken)

    def fragments(self, start: Board) -> Floats:
        """(arrivals,) milli-GPU that is idle and a fragment after each arrival.

        :param start: the cluster before the first arrival.
        """
        change = np.zeros(len(self.arrivals))
        first = fragment(self.typical, start.free, start.cores, start.model)
        nodes = self.placer.board.changes
        if nodes:
            after = fragment(
                self.typical, np.array(self._free), np.array(self._cores), start.model[nodes]
            )
            last = first.copy()
            for at, node, value in zip(self._at, nodes, after, strict=True):
                change[at] += value - last[node]
                last[node] = value
        fragments: Floats = first.sum() + np.cumsum(change)
        return fragments


def run_packing(
    nodes: Sequence[Node],
    pods: Sequence[Pod],
    *,
    policy: str = "default",
    seed: int = 42,
    inflation: float = 1.3,
    queue: bool = False,
    options: Mapping[str, Any] | Options | None = None,
) -> dict[str, Any]:
    """One run; equal arguments give equal results.

    :param policy: one of ``packing_policies.NAMES``.
    :param queue: keep what did not fit waiting, and look ahead (``Options``).
    :raises InputFault: a policy, an option or a number that there is not.
    """
    chosen = options if isinstance(options, Options) else parse_options(options or {})
    capacity = sum(node.gpus for node in nodes) * 1000
    if not capacity:
        raise InputFault("the node list has no GPU")
    if not 0 < inflation <= 100:
        raise InputFault(f"inflation is {inflation}, not above 0 and at most 100")
    if seed < 0:
        raise InputFault(f"seed is {seed}, not 0 or more")
    generator = np.random.default_rng(seed)
    models = models_of(nodes, pods)
    shapes = [shape_of(pod, models) for pod in pods]
    order = arrival_order(shapes, capacity, inflation, generator)
    permuted = [nodes[index] for index in generator.permutation(len(nodes))]
    board = Board(permuted, models)
    made = packing_policies.make(
        policy,
        board,
        shapes,
        known=chosen.known,
        weights=chosen.weights,
        generator=generator,
    )
    typical = learn(Mix(shapes), board.capacity, share=packing_policies.TYPICAL)
    arrivals = [
        Arrival(_name(pods[index].name, copy), shapes[index], pods[index].memory_mib)
        for index, copy in order
    ]
    run = Run(arrivals, Placer(board, made), typical)
    if queue:
        packing_queue.drive(run, chosen, capacity, shapes)
    else:
        for index, one in enumerate(arrivals):
            run.placer.arrived(one.shape)
            run.place(index, index)
    result = _result(run, Board(permuted, models), capacity)
    result["mode"] = "packing+queue" if queue else "packing"
    result["settings"] = {"policy": policy, "seed": seed, "inflation": inflation}
    result["settings"].update(_shown(chosen, policy, queue))
    return result


def parse_settings(words: Sequence[str]) -> Options:
    """Options from the words behind ``--set``, such as ``packing.known=arrivals``."""
    given: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        group, dot, option = name.partition(".")
        if group != "packing" or not dot or not equals:
            raise InputFault(f"--set {word}: in packing mode write packing.NAME=VALUE")
        given[option] = value
    return parse_options(given)


def parse_options(given: Mapping[str, Any]) -> Options:
    """Options from words, as a command line has them."""
    values: dict[str, Any] = {}
    weights: dict[str, Any] = {}
    for name, value in given.items():
        if name in Weights._fields:
            weights[name] = _as(name, float, value)
        elif name in ("hold_until", "hold_slack"):
            values[name] = _as(name, float, value)
        elif name == "batch":
            values[name] = _as(name, int, value)
        elif name == "hold" and str(value).lower() in ("true", "false"):
            values[name] = str(value).lower() == "true"
        elif name == "known" and value in ("list", "arrivals"):
            values[name] = value
        elif name in ("hold", "known"):
            wanted = "true or false" if name == "hold" else "list or arrivals"
            raise InputFault(f"{name} is {value!r}, not {wanted}")
        else:
            there = ("known", "batch", "hold", "hold_until", "hold_slack")
            raise InputFault(
                f"no packing option {name!r}; there are {', '.join(there + Weights._fields)}"
            )
    if values.get("batch", 1) < 1:
        raise InputFault(f"batch is {values['batch']}, not 1 or more")
    if weights.get("steps", 1.0) < 1:
        raise InputFault(f"steps is {weights['steps']}, not 1 or more")
    return Options(weights=Weights(**weights), **values)


def _as(name: str, kind: Callable[[Any], Any], value: Any) -> Any:
    try:
        number = kind(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InputFault(f"{name} is {value!r}, not a number")
    return number


def _shown(chosen: Options, policy: str, queue: bool) -> dict[str, Any]:
    """Those of the options that bear on the result."""
    shown: dict[str, Any] = {}
    if policy == "default":
        shown["known"] = chosen.known
        shown["weights"] = chosen.weights._asdict()
    if queue:
        shown["known"] = chosen.known
        shown["batch"] = chosen.batch
        shown["hold"] = chosen.hold
        if chosen.hold:
            for name in ("hold_until", "hold_slack"):
                shown[name] = getattr(chosen, name)
    return shown


def arrival_order(
    shapes: Sequence[Shape], capacity: int, inflation: float, generator: np.random.Generator
) -> list[tuple[int, int]]:
    """Which requests come, as (index in the list, number of the copy), in their order."""
    target = inflation * capacity
    order = [(int(index), 0) for index in generator.permutation(len(shapes))]
    demand = sum(shape.total_milli for shape in shapes)
    while demand > target:
        index, _ = order.pop(int(generator.integers(len(order))))
        demand -= shapes[index].total_milli
    if not any(shape.devices for shape in shapes):
        return order
    copies = 0
    if len(order) == len(shapes):
        while True:
            index = int(generator.integers(len(shapes)))
            # As published: a request of several GPUs may end above the target.
            if demand + shapes[index].milli > target:
                break
            copies += 1
            demand += shapes[index].total_milli
            order.append((index, copies))
    return order


def _name(name: str, copy: int) -> str:
    return f"{name}+{copy}" if copy else name


def _result(run: Run, start: Board, capacity: int) -> dict[str, Any]:
    """What the run came to."""
    arrived = np.cumsum([one.shape.total_milli for one in run.arrivals]) / capacity * 100
    rounded = np.round(arrived)
    allocated = run.allocated()
    fragments = run.fragments(start)
    idle = np.maximum(capacity - allocated, 1)
    placed = sum(one.placement is not None for one in run.arrivals)
    return {
        "summary": {
            "gpus": capacity // 1000,
            "requests": len(run.arrivals),
            "placed": placed,
            "not_placed": len(run.arrivals) - placed,
            "held": sum(one.held for one in run.arrivals),
            "allocation_ratio": _at_points(rounded, allocated / capacity * 100),
            "fragmentation_ratio": _at_points(rounded, fragments / idle * 100),
            "fragments_of_all": _at_points(rounded, fragments / capacity * 100),
        },
        "jobs": [_job(one, run.placer.board) for one in run.arrivals],
    }


def _at_points(rounded: Floats, value: Floats) -> dict[str, float | None]:
    """The mean at each point, else within 1 of it; None where the demand did not come to it."""
    means: dict[str, float | None] = {}
    for point in POINTS:
        there = rounded == point
        if not there.any():
            there = np.abs(rounded - point) <= 1
        means[str(point)] = round(float(value[there].mean()), 4) if there.any() else None
    return means


def _job(one: Arrival, board: Board) -> dict[str, Any]:
    placement: list[dict[str, Any]] = []
    if one.placement is not None:
        node, devices = one.placement
        place = {"task": 0, "node": board.names[node], "devices": devices, "milli": one.shape.milli}
        placement.append(place)
    status = "placed" if placement else "not_placed"
    return {"name": one.name, "status": status, "held": one.held, "placement": placement}
