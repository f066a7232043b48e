# SPDX-License-Identifier: Apache-2.0
"""What a packing study gets: the openb lists, or any other cluster and workload as such lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gpuservice.planner.snapshot import Request
from gpuservice.simulation import openb, reading
from gpuservice.simulation.faults import InputFault
from gpuservice.simulation.workload import Reading, WorkloadJob

_NODE_COLUMNS = {"sn", "cpu_milli", "gpu"}


def nodes(given: str) -> list[openb.Node]:
    """The hosts of an openb node list, of a cluster file or of a spec.

    :raises InputFault: if it is none of these.
    """
    if Path(given).is_file():
        header = reading.text_of(given, "--cluster").partition("\n")[0]
        names = {name.strip() for name in header.split(",")}
        if names & _NODE_COLUMNS or given.endswith((".csv", ".csv.gz")):
            try:
                return openb.read_nodes(Path(given))
            except openb.ListError as fault:
                raise InputFault(str(fault)) from None
    return [
        openb.Node(
            node.id,
            1000 * node.vcpus,
            node.memory_mib,
            len(node.devices),
            node.devices[0].gpu_type if node.devices else "",
        )
        for node in reading.cluster(given).nodes
    ]


def pods(path: str, form: str, hosts: Sequence[openb.Node]) -> list[openb.Pod]:
    """The requests of an openb pod list; of any other workload each task, whatever its gang.

    :raises InputFault: if it cannot be read.
    """
    text = reading.text_of(path, "--workload")
    if form == reading.OPENB or (form == "auto" and reading.format_of(path, text) == reading.OPENB):
        try:
            return openb.read_pods(Path(path))
        except openb.ListError as fault:
            raise InputFault(str(fault)) from None
    host_gpus = max((host.gpus for host in hosts), default=1)
    jobs = reading.workload(path, replace(Reading(), host_gpus=max(host_gpus, 1)), form)
    return [_pod(job, rank) for job in jobs for rank in range(job.request.count)]


def _pod(job: WorkloadJob, rank: int) -> openb.Pod:
    request: Request = job.request
    if request.gpu_memory_mib is not None:
        raise InputFault(
            f"job '{job.name}': gpu_memory_mib depends on the GPU it gets; a packing study needs "
            "gpu_milli"
        )
    return openb.Pod(
        job.name if request.count == 1 else f"{job.name}/{rank}",
        1000 * request.vcpus,
        request.memory_mib,
        1 if request.shared else request.whole,
        request.gpu_milli if request.shared else 1000,
        tuple(sorted(request.gpu_types)),
    )
