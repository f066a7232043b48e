# SPDX-License-Identifier: Apache-2.0
"""What holds for every run of the packing mode, whatever the lists and the policy."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpuservice.simulation.openb import Node, Pod
from gpuservice.simulation.packing import run_packing
from gpuservice.simulation.packing_policies import NAMES

MODELS = ("A", "B")

nodes = st.lists(
    st.builds(
        Node,
        name=st.uuids().map(str),
        cpu_milli=st.sampled_from([0, 4000, 64000]),
        memory_mib=st.sampled_from([2, 64]),
        gpus=st.sampled_from([0, 1, 2, 4]),
        model=st.sampled_from(MODELS),
    ),
    min_size=1,
    max_size=6,
).filter(lambda hosts: any(host.gpus for host in hosts))

gpus = st.sampled_from([(0, 0), (1, 190), (1, 470), (1, 500), (1, 810), (1, 1000), (2, 1000)])
pods = st.lists(
    st.builds(
        lambda name, cores, memory, gpu, models: Pod(
            str(name), cores * 500, memory, *gpu, tuple(sorted(models))
        ),
        st.uuids(),
        st.integers(0, 12),
        st.integers(0, 3),
        gpus,
        st.sets(st.sampled_from((*MODELS, "C"))),
    ),
    min_size=1,
    max_size=14,
)
policies = st.sampled_from(
    [(name, {}) for name in NAMES]
    + [("default", {"known": "arrivals"}), ("default", {"hold": "true", "batch": 3})]
)


def _placed(
    result: dict[str, Any], requests: list[Pod], hosts: list[Node]
) -> list[tuple[Pod, Node, dict[str, Any]]]:
    by_name = {request.name: request for request in requests}
    host_of = {host.name: host for host in hosts}
    return [
        (by_name[job["name"].partition("+")[0]], host_of[place["node"]], place)
        for job in result["jobs"]
        for place in job["placement"]
    ]


@given(nodes, pods, policies, st.booleans(), st.integers(0, 3))
def test_nothing_holds_more_than_it_has(
    hosts: list[Node],
    requests: list[Pod],
    policy: tuple[str, dict[str, Any]],
    queue: bool,
    seed: int,
) -> None:
    name, options = policy
    result = run_packing(hosts, requests, policy=name, seed=seed, queue=queue, options=options)

    devices: Counter[tuple[str, int]] = Counter()
    cores: Counter[str] = Counter()
    memory: Counter[str] = Counter()
    for request, host, place in _placed(result, requests, hosts):
        assert len(place["devices"]) == len(set(place["devices"])) == request.gpus
        assert all(0 <= device < host.gpus for device in place["devices"])
        assert not request.models or host.model in request.models
        assert place["milli"] == request.gpu_milli
        cores[host.name] += request.cpu_milli
        memory[host.name] += request.memory_mib
        for device in place["devices"]:
            devices[host.name, device] += request.gpu_milli
    host_of = {host.name: host for host in hosts}
    assert all(held <= 1000 for held in devices.values())
    assert all(held <= host_of[name].cpu_milli for name, held in cores.items())
    assert all(held <= host_of[name].memory_mib for name, held in memory.items())


@given(nodes, pods, policies, st.booleans(), st.integers(0, 3))
def test_what_is_left_out_fits_nowhere_at_the_end(
    hosts: list[Node],
    requests: list[Pod],
    policy: tuple[str, dict[str, Any]],
    queue: bool,
    seed: int,
) -> None:
    name, options = policy
    result = run_packing(hosts, requests, policy=name, seed=seed, queue=queue, options=options)

    free = {host.name: [1000] * host.gpus for host in hosts}
    cores = {host.name: host.cpu_milli for host in hosts}
    memory = {host.name: host.memory_mib for host in hosts}
    for request, host, place in _placed(result, requests, hosts):
        for device in place["devices"]:
            free[host.name][device] -= request.gpu_milli
        cores[host.name] -= request.cpu_milli
        memory[host.name] -= request.memory_mib
    by_name = {request.name: request for request in requests}
    for job in result["jobs"]:
        request = by_name[job["name"].partition("+")[0]]
        fits = [
            host.name
            for host in hosts
            if cores[host.name] >= request.cpu_milli
            and memory[host.name] >= request.memory_mib
            and (not request.models or host.model in request.models)
            and sum(idle >= max(1, request.gpu_milli) for idle in free[host.name]) >= request.gpus
        ]
        assert job["placement"] or not fits


@given(nodes, pods, policies, st.integers(0, 3))
def test_shares_are_shares(
    hosts: list[Node], requests: list[Pod], policy: tuple[str, dict[str, Any]], seed: int
) -> None:
    name, options = policy
    summary = run_packing(hosts, requests, policy=name, seed=seed, options=options)["summary"]

    assert summary["placed"] + summary["not_placed"] == summary["requests"]
    for measure in ("allocation_ratio", "fragmentation_ratio", "fragments_of_all"):
        values = [value for value in summary[measure].values() if value is not None]
        assert all(-1e-9 <= value <= 100 + 1e-9 for value in values)
