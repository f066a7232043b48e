# SPDX-License-Identifier: Apache-2.0
"""The cluster of a packing study, and the placing of one request on it.

Scores are kept by shape: between two requests of one shape only the nodes that changed meanwhile
are scored anew, so that a run of ten thousand requests takes a second or two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gpuservice.planner.fragmentation import Scores, devices_for
from gpuservice.planner.mix import WHOLE, Shape
from gpuservice.simulation.openb import Node, Pod

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Placement(NamedTuple):
    """Where one request went."""

    node: int
    devices: list[int]


class Board:
    """What is idle on each node, as arrays; nodes are in the order in which ties are decided."""

    def __init__(self, nodes: Sequence[Node], models: Sequence[str]) -> None:
        self.names = [node.name for node in nodes]
        self.gpus = np.array([node.gpus for node in nodes], dtype=np.int64)
        width = max(1, int(self.gpus.max(initial=1)))
        self.free: Ints = np.where(np.arange(width) < self.gpus[:, None], WHOLE, 0)
        self.cores: Ints = np.array([node.cpu_milli for node in nodes], dtype=np.int64)
        self.memory: Ints = np.array([node.memory_mib for node in nodes], dtype=np.int64)
        self.model: Ints = np.array([models.index(node.model) for node in nodes], dtype=np.int64)
        self.capacity: Ints = np.bincount(
            self.model, weights=self.gpus * WHOLE, minlength=len(models)
        ).astype(np.int64)
        #: (N, devices + 1) running requests by kind: column 0 fractions, n those of n whole GPUs.
        self.kinds: Ints = np.zeros((len(nodes), width + 1), dtype=np.int64)
        #: Nodes in the order in which they changed.
        self.changes: list[int] = []
        kinds = [(node.gpus, node.cpu_milli, node.memory_mib, node.model) for node in nodes]
        numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
        self._kind: Ints = np.array([numbers[kind] for kind in kinds], dtype=np.int64)
        self._touched = np.zeros(len(nodes), dtype=np.bool_)

    def different(self) -> tuple[Ints, Ints]:
        """Nodes that stand for all, and for each node the position there of its stand-in.

        A node that never held anything is as good as another one with the same hardware.
        """
        idle = np.flatnonzero(~self._touched)
        _, first, which = np.unique(self._kind[idle], return_index=True, return_inverse=True)
        used = np.flatnonzero(self._touched)
        stands = np.empty(len(self._touched), dtype=np.int64)
        stands[used] = np.arange(len(used))
        stands[idle] = len(used) + which
        return np.concatenate([used, idle[first]]), stands

    def take(self, placement: Placement, shape: Shape, memory_mib: int) -> None:
        """Give the request its place; a fault of the caller when it does not fit there."""
        node, devices = placement
        self.free[node, devices] -= shape.milli
        self.cores[node] -= shape.cores_milli
        self.memory[node] -= memory_mib
        if self.free[node].min() < 0 or self.cores[node] < 0 or self.memory[node] < 0:
            raise ValueError(f"node {self.names[node]} does not hold {shape}")
        if devices:
            self.kinds[node, 0 if shape.milli < WHOLE else len(devices)] += 1
        self.changes.append(node)
        self._touched[node] = True


class Policy(Protocol):
    """A way to choose among the places where a request fits."""

    def arrived(self, shape: Shape) -> bool:
        """A request came; True when all scores given so far are void."""

    def scores(self, board: Board, rows: Ints, shape: Shape) -> Scores:
        """The scores of these nodes, minus infinity where the request does not fit."""

    def choose(self, board: Board, scores: Scores, shape: Shape) -> Placement:
        """The place, of at least one node that fits."""


@dataclass(slots=True)
class _Kept:
    """The scores of one shape, and how many changes of the board they know."""

    scores: Scores
    known: int


@dataclass(slots=True)
class Placer:
    """Places requests one by one by a policy; nothing ever leaves."""

    board: Board
    policy: Policy
    _kept: dict[Shape, _Kept] = field(default_factory=dict)
    #: Shapes that fit nowhere: as nothing leaves, they never will.
    _hopeless: set[Shape] = field(default_factory=set)

    def arrived(self, shape: Shape) -> None:
        """Tell the policy of a request, before it is placed or left waiting."""
        if self.policy.arrived(shape):
            self._kept.clear()

    def place(self, shape: Shape, memory_mib: int) -> Placement | None:
        """Take a place for the request; None when no node holds it."""
        if shape in self._hopeless:
            return None
        scores = self._scores(shape)
        if scores.value.max() == -np.inf:
            self._hopeless.add(shape)
            return None
        # Host memory decides whether a node holds a request, not how good it is there.
        held = np.where(self.board.memory >= memory_mib, scores.value, -np.inf)
        if held.max() == -np.inf:
            return None
        placement = self.policy.choose(self.board, Scores(held, scores.device), shape)
        self.board.take(placement, shape, memory_mib)
        return placement

    def _scores(self, shape: Shape) -> Scores:
        changes = self.board.changes
        kept = self._kept.get(shape)
        if kept is None:
            rows, stands = self.board.different()
            scores = self.policy.scores(self.board, rows, shape)
            kept = _Kept(Scores(scores.value[stands], scores.device[stands]), len(changes))
            self._kept[shape] = kept
        elif kept.known < len(changes):
            rows = np.array(sorted(set(changes[kept.known :])), dtype=np.int64)
            # Where it did not fit it does not fit now.
            rows = rows[kept.scores.value[rows] > -np.inf]
            if len(rows):
                anew = self.policy.scores(self.board, rows, shape)
                kept.scores.value[rows] = anew.value
                kept.scores.device[rows] = anew.device
            kept.known = len(changes)
        return kept.scores


def best(board: Board, scores: Scores, shape: Shape) -> Placement:
    """The first of the nodes with the highest score."""
    node = int(np.argmax(scores.value))
    return Placement(node, devices_for(board.free[node], shape, int(scores.device[node])))


def shape_of(pod: Pod, models: Sequence[str]) -> Shape:
    """The shape of a request; all but its memory and its name."""
    allowed = tuple(sorted(models.index(name) for name in pod.models))
    return Shape(pod.cpu_milli, pod.gpus, pod.gpu_milli, allowed)


def models_of(nodes: Sequence[Node], pods: Sequence[Pod]) -> list[str]:
    """All models that a list names, also those that no node has."""
    return sorted({node.model for node in nodes} | {name for pod in pods for name in pod.models})
