# SPDX-License-Identifier: Apache-2.0
"""Small node and pod lists for the tests of packing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpuservice.simulation.openb import Node, Pod

MODELS = ("A", "B")


def node(name: str, gpus: int, cores: int = 64, model: str = "A", memory: int = 4096) -> Node:
    return Node(name, cores * 1000, memory, gpus, model)


def pod(
    name: str,
    gpus: int = 1,
    milli: int = 1000,
    cores: int = 1,
    models: Sequence[str] = (),
    memory: int = 1,
) -> Pod:
    return Pod(name, cores * 1000, memory, gpus, milli if gpus else 0, tuple(models))


def mixed_lists(seed: int, hosts: int = 12, requests: int = 60) -> tuple[list[Node], list[Pod]]:
    """Hosts of one to eight GPUs, and all kinds of requests."""
    generator = np.random.default_rng(seed)
    nodes = [
        node(
            f"n{index}",
            int(generator.choice([1, 2, 4, 8])),
            cores=int(generator.choice([4, 16, 64])),
            model=str(generator.choice(MODELS)),
            memory=int(generator.choice([8, 64])),
        )
        for index in range(hosts)
    ]
    kinds = [(0, 0), (1, 190), (1, 470), (1, 650), (1, 810), (1, 1000), (2, 1000), (8, 1000)]
    pods = []
    for index in range(requests):
        gpus, milli = kinds[int(generator.integers(len(kinds)))]
        models = [(), (), ("A",), ("B",), ("A", "B"), ("C",)][int(generator.integers(6))]
        cores, memory = int(generator.integers(0, 9)), int(generator.integers(0, 9))
        pods.append(pod(f"p{index}", gpus, milli, cores, models, memory))
    return nodes, pods
