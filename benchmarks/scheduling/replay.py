# SPDX-License-Identifier: Apache-2.0
"""How long whole logs take through the full policy, on one core, and what of that is the planner's.

    python -m benchmarks.scheduling.replay --philly philly_sia.csv.gz \
        --swf wagap-2013.swf.gz --machines wagap-2013.swf.machines \
        [--first N] [--output benchmarks/scheduling/results/replay.json]

The Philly log runs on 2,490 GPUs: 311 hosts of 8 and one of 2; its virtual clusters are queues. The
log of MetaCentrum runs on the hosts of its machines file, a processor as a GPU: a job of at most
as many processors as the widest host has runs on one host, a wider one as tasks of 16.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.scheduling.floors import at_most, status
from benchmarks.scheduling.virtual_clusters import open_trace
from gpuservice.planner.plan_types import Plan
from gpuservice.planner.session import Session
from gpuservice.planner.snapshot import Policy, Request
from gpuservice.simulation.cluster import Cluster, from_spec, plain_node
from gpuservice.simulation.replay import Replay, World
from gpuservice.simulation.report import summary
from gpuservice.simulation.traces import read_philly, read_swf
from gpuservice.simulation.workload import Reading, WorkloadJob

PHILLY_CLUSTER = "311x8:gpu+1x2:gpu"
#: Processor seconds that a whole log may take.
FLOORS_S = {"philly": 180.0, "swf": 60.0}
#: Tasks of a job that no single host holds, by processors.
WIDE_TASK = 16


class Timed(Session):
    """A session that counts the processor time of its plans."""

    spent = 0.0

    def plan(self, *args: Any, **options: Any) -> Plan:
        """The plan."""
        began = time.process_time()
        made = super().plan(*args, **options)
        Timed.spent += time.process_time() - began
        return made


def read_machines(lines: Iterable[str]) -> Cluster:
    """``number name hosts processors speed memory`` a line: hosts of several sizes."""
    nodes = []
    for line in lines:
        fields = line.split()
        if len(fields) < 4:
            continue
        for number in range(int(fields[2])):
            nodes.append(plain_node(f"{fields[1]}-{number:03d}", int(fields[3]), "cpu"))
    return Cluster(tuple(nodes))


def for_hosts(jobs: Sequence[WorkloadJob], widest: int) -> tuple[WorkloadJob, ...]:
    """Jobs as requests of such hosts: on one host where it can be, else in tasks of 16."""
    requests: dict[int, Request] = {}
    for job in jobs:
        processors = job.milli // 1000
        if processors not in requests:
            if processors <= widest:
                requests[processors] = Request(gpu_milli=1000 * processors)
            else:
                count = -(-processors // WIDE_TASK)
                requests[processors] = Request(count, count, gpu_milli=1000 * WIDE_TASK)
    return tuple(replace(job, request=requests[job.milli // 1000]) for job in jobs)


def measured(cluster: Cluster, jobs: Sequence[WorkloadJob], policy: Policy) -> dict[str, Any]:
    """The figures of one replay."""
    Timed.spent = 0.0
    began = time.process_time()
    made = Replay(cluster, jobs, policy, World(), session=Timed).run()
    spent = time.process_time() - began
    told = summary(made)
    return {
        "jobs": len(jobs),
        "hosts": len(cluster.nodes),
        "gpus": sum(len(node.devices) for node in cluster.nodes),
        "passes": made.passes,
        "cpu_s": round(spent, 1),
        "planner_cpu_s": round(Timed.spent, 1),
        "replay_cpu_s": round(spent - Timed.spent, 1),
        "utilisation": told["utilisation"],
        "wait_s": told["wait_s"],
        "never_started": told["never_started"],
        "statuses": told["statuses"],
    }


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Every log that is given."""
    found: dict[str, Any] = {}
    policy = Policy()
    if arguments.philly:
        with open_trace(arguments.philly) as file:
            jobs = read_philly(file, Reading(first=arguments.first), arguments.philly.name)
        found["philly"] = measured(from_spec(PHILLY_CLUSTER), jobs, policy)
        print(json.dumps(found["philly"]), file=sys.stderr, flush=True)
    if arguments.swf:
        cluster = read_machines(arguments.machines.read_text(encoding="utf-8").splitlines())
        with open_trace(arguments.swf) as file:
            jobs = read_swf(file, Reading(host_gpus=1 << 20, first=arguments.first))
        found["swf"] = measured(cluster, for_hosts(jobs, cluster.host_gpus), policy)
        print(json.dumps(found["swf"]), file=sys.stderr, flush=True)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """The command; 1 when a floor does not hold."""
    parser = argparse.ArgumentParser(prog="benchmarks.scheduling.replay", description=__doc__)
    parser.add_argument("--philly", type=Path)
    parser.add_argument("--swf", type=Path)
    parser.add_argument("--machines", type=Path, help="the hosts of the SWF log")
    parser.add_argument("--first", type=int, help="no more than that many jobs of each")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args(argv)
    if bool(arguments.swf) != bool(arguments.machines):
        parser.error("--swf and --machines go together")
    found = run(arguments)
    text = json.dumps(found, indent=1, sort_keys=True) + "\n"
    if arguments.output:
        arguments.output.write_text(text, encoding="utf-8")
    else:
        print(text)
    if arguments.first:
        return 0
    return status(at_most(f"{log}, CPU s", found[log]["cpu_s"], FLOORS_S[log]) for log in found)


if __name__ == "__main__":
    sys.exit(main())
