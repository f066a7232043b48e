# SPDX-License-Identifier: Apache-2.0
"""The levels at which turns go round: cohorts, queues, their projects, their users; by number."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gpuservice.planner.ledger import Ints
from gpuservice.planner.snapshot import QueueState

#: The levels of a share, outer to inner.
COHORT, QUEUE, PROJECT, USER = range(4)

#: The numbers of a share's levels.
Path = tuple[int, int, int, int]


class Levels:
    """Numbers of levels, given in order of first sight, and their weights.

    A queue without a cohort is alone in one of its own, as heavy as itself.
    """

    def __init__(self, queues: Mapping[str, QueueState]) -> None:
        self._queues = queues
        self._numbers: dict[tuple[str, ...], int] = {}
        self._weights: list[float] = []
        self._weight_of = _weights(queues)
        self._paths: dict[tuple[str, str, str], Path] = {}
        self._of_share: list[Path] = []
        self._kept_paths: Ints = np.zeros((0, 4), dtype=np.int64)
        self._kept_weights = np.zeros(0)
        self.queues: list[int] = []
        self._queue_ids: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._weights)

    def add_share(self, queue_id: str, project_id: str, user_id: str) -> None:
        """The next share is of these."""
        self._of_share.append(self.path(queue_id, project_id, user_id))

    def path(self, queue_id: str, project_id: str, user_id: str) -> Path:
        """The numbers of cohort, queue, project in it, and user of that."""
        key = (queue_id, project_id, user_id)
        known = self._paths.get(key)
        if known is None:
            state = self._queues.get(queue_id)
            cohort = ("", state.cohort) if state and state.cohort else ("", "", queue_id, "")
            known = self._paths[key] = (
                self._number(cohort, queue_id),
                self.queue(queue_id),
                self._number(("", queue_id, project_id), None),
                self._number(("", queue_id, project_id, "", user_id), None),
            )
        return known

    def of_share(self, share: int) -> Path:
        """The levels of a share."""
        return self._of_share[share]

    def queue(self, queue_id: str) -> int:
        """The number of a queue."""
        number = self._number((queue_id,), queue_id)
        if not self.queues or number > self.queues[-1]:
            self.queues.append(number)
            self._queue_ids[number] = queue_id
        return number

    def queue_id(self, level: int) -> str:
        """The queue of a level that is one's."""
        return self._queue_ids[level]

    @property
    def paths(self) -> Ints:
        """(shares, 4): the levels of every share."""
        if len(self._kept_paths) < len(self._of_share):
            self._kept_paths = np.array(self._of_share, dtype=np.int64)
        return self._kept_paths

    def weight(self, level: int) -> float:
        """The weight of a level."""
        return self._weights[level]

    @property
    def weights(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """(levels,): the weight of each."""
        if len(self._kept_weights) < len(self._weights):
            self._kept_weights = np.array(self._weights)
        return self._kept_weights

    @property
    def weights_of_queues(self) -> float:
        """The weights of all queues that there are, summed up."""
        return sum(self._weight_of.get((queue_id,), 0.0) for queue_id in self._queues)

    def _number(self, key: tuple[str, ...], queue_id: str | None) -> int:
        """The number of a level; of whose queue it has its weight, where no other is known."""
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._weights)
            own = 1.0 if queue_id is None else self._weight_of.get((queue_id,), 1.0)
            self._weights.append(self._weight_of.get(key, own))
        return number


def _weights(queues: Mapping[str, QueueState]) -> dict[tuple[str, ...], float]:
    """Weights of queues and, as sums, of cohorts."""
    weights: dict[tuple[str, ...], float] = {}
    for queue in queues.values():
        weight = max(float(queue.weight), 1e-9)
        weights[queue.id,] = weight
        if queue.cohort:
            weights["", queue.cohort] = weights.get(("", queue.cohort), 0.0) + weight
    return weights
