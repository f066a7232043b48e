# SPDX-License-Identifier: Apache-2.0
"""Clusters: by a spec, and as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuservice.simulation.cluster import BOUNDLESS, Outage, from_spec
from gpuservice.simulation.cluster_json import from_json
from gpuservice.simulation.faults import InputFault

NODE: dict[str, Any] = {"name": "a", "gpus": 4, "gpu_type": "a100-80gb"}


def read(**top: Any) -> Any:
    return from_json(json.dumps({"nodes": [NODE, {**NODE, "name": "b"}], **top}), "c.json")


def test_a_spec() -> None:
    cluster = from_spec("2x8:a100-80gb+1x4:h100,1x0")
    assert [(node.id, len(node.devices), node.pool_id) for node in cluster.nodes] == [
        ("n0000", 8, "a100-80gb"),
        ("n0001", 8, "a100-80gb"),
        ("n0002", 4, "h100"),
        ("n0003", 0, "no-gpu"),
    ]
    device = cluster.nodes[0].devices[7]
    assert (device.id, device.gpu_type, device.memory_mib) == ("n0000/7", "a100-80gb", 81920)
    assert cluster.nodes[0].vcpus == cluster.nodes[0].memory_mib == BOUNDLESS
    assert [(pool.id, pool.max_nodes) for pool in cluster.pools()] == [
        ("a100-80gb", 2),
        ("h100", 1),
        ("no-gpu", 1),
    ]
    assert cluster.host_gpus == 8


@pytest.mark.parametrize("spec", ["", "8", "0x8", "8x8:", "8x8:a b", "8 x 8", "8x8++8x8", "-1x8"])
def test_what_is_no_spec(spec: str) -> None:
    with pytest.raises(InputFault, match="such as 8x8:a100-80gb"):
        from_spec(spec)


def test_nodes() -> None:
    node = {
        **NODE,
        "gpu_memory_mib": 1000,
        "vcpus": 64,
        "memory_mib": 2000,
        "rack": "r",
        "zone": "z",
        "link_domain": "d",
        "link_groups": [[0, 1], [2]],
    }
    made = from_json(json.dumps({"nodes": [node]}), "c.json").nodes[0]
    assert (made.vcpus, made.memory_mib, made.rack, made.zone) == (64, 2000, "r", "z")
    assert made.link_domain == "d"
    assert [one.link_group for one in made.devices] == ["0", "0", "1", None]
    assert made.devices[0].memory_mib == 1000


def test_the_rest() -> None:
    cluster = read(
        queues=[
            {
                "name": "q",
                "weight": 2,
                "cohort": "c",
                "nominal": {"a100-80gb": 4},
                "borrowing_limit": {"a100-80gb": 2.5},
                "preemption": "reclaim",
                "projects": ["p"],
                "min_runtime_s": 30,
                "default_runtime_s": 60,
            }
        ],
        quotas=[{"project": "p", "gpus": 3, "gpus:a100-80gb": -1, "jobs:running": 2}],
        outages=[{"node": "a", "at_s": 5, "for_s": 6}],
        reservations=[
            {"name": "r", "queue": "q", "gpus": 5, "start_s": 1, "end_s": 2},
            {"name": "s", "project": "p", "nodes": ["a"], "start_s": 1, "end_s": 2},
        ],
    )
    (queue,) = cluster.queues
    assert (queue.weight, queue.nominal, queue.borrowing_limit) == (
        2,
        {"a100-80gb": 4000},
        {"a100-80gb": 2500},
    )
    assert queue.default_runtime_s == 60
    assert cluster.members == {"q": {"p"}}
    assert cluster.protected == {"q": 30}
    assert cluster.headroom == {("p", "gpus"): 3000, ("p", "jobs:running"): 2}
    assert cluster.outages == (Outage("a", 5, 6),)
    assert [one.node_ids for one in cluster.reservations] == [("b", "a"), ("a",)]


@pytest.mark.parametrize(
    ("top", "said"),
    [
        ({"nodes": []}, "a cluster has at least one node"),
        ({"nodes": None}, "'nodes' is missing"),
        ({"nodes": [NODE, NODE]}, "the name 'a' is there twice"),
        ({"nodes": [{**NODE, "gpus": -1}]}, "nodes[0]: 'gpus': -1 is wrong; it must be a whole"),
        ({"nodes": [{**NODE, "gpus": True}]}, "'gpus': true is wrong"),
        ({"nodes": [{**NODE, "link_groups": [[0], [0]]}]}, "each GPU at most once"),
        ({"nodes": [{**NODE, "gpu": 1}]}, "there is no field 'gpu'; there are gpu_memory_mib"),
        ({"nodes": ["a"]}, 'nodes[0]: "a" is wrong; it must be an object'),
        ({"node": []}, "there is no field 'node'"),
        (
            {"queues": [{"name": "q", "weight": 0}]},
            "'weight': 0 is wrong; it must be a num",
        ),
        ({"queues": [{"name": "q", "preemption": "yes"}]}, "one of none, lower_priority"),
        ({"queues": [{"name": "q", "nominal": 8}]}, "GPUs by type"),
        ({"quotas": [{"project": "p", "cpus": 3}]}, "there is no quota 'cpus'"),
        ({"outages": [{"node": "x", "at_s": 1, "for_s": 1}]}, "the name of a node of this file"),
        ({"outages": [{"node": "a", "at_s": "1", "for_s": 1}]}, "'at_s': \"1\" is wrong"),
        (
            {"reservations": [{"name": "r", "queue": "q", "gpus": 9, "start_s": 1, "end_s": 2}]},
            "no more than the cluster has",
        ),
        (
            {"reservations": [{"name": "r", "gpus": 1, "start_s": 1, "end_s": 2}]},
            "exactly one of 'queue' and 'project'",
        ),
        (
            {"reservations": [{"name": "r", "queue": "q", "gpus": 1, "start_s": 2, "end_s": 2}]},
            "later than start_s",
        ),
    ],
)
def test_mistakes(top: dict[str, Any], said: str) -> None:
    with pytest.raises(InputFault) as fault:
        read(**top)
    assert str(fault.value).startswith("c.json: ")
    assert said in str(fault.value)


def test_what_is_no_json() -> None:
    with pytest.raises(InputFault, match=r"c\.json: line 2: no JSON"):
        from_json("{\n,}", "c.json")
