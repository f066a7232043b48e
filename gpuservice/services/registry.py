# SPDX-License-Identifier: Apache-2.0
"""All use cases, one attribute a noun: what the API is given."""

from __future__ import annotations

from dataclasses import dataclass

from gpuservice.services.agent_data import AgentData
from gpuservice.services.agent_nodes import AgentNodes
from gpuservice.services.agent_sync import AgentSync
from gpuservice.services.catalogue import Devices, Flavors, GpuTypes, Processes
from gpuservice.services.cohorts import Cohorts
from gpuservice.services.deps import Deps
from gpuservice.services.events import Events
from gpuservice.services.hosts import Hosts
from gpuservice.services.job_actions import JobActions
from gpuservice.services.job_logs import JobLogs
from gpuservice.services.job_reads import JobReads
from gpuservice.services.jobs import Jobs
from gpuservice.services.pools import Nodes, Pools
from gpuservice.services.queues import Queues
from gpuservice.services.quotas import Quotas
from gpuservice.services.simulations import Simulations
from gpuservice.services.waiting_room import WaitingRoom


@dataclass(frozen=True, slots=True)
class Services:
    """The use cases."""

    gpu_types: GpuTypes
    hosts: Hosts
    devices: Devices
    flavors: Flavors
    pools: Pools
    nodes: Nodes
    cohorts: Cohorts
    queues: Queues
    quotas: Quotas
    events: Events
    processes: Processes
    jobs: Jobs
    job_actions: JobActions
    job_reads: JobReads
    job_logs: JobLogs
    agent_nodes: AgentNodes
    agent_sync: AgentSync
    agent_data: AgentData
    waiting_room: WaitingRoom
    simulations: Simulations


def build(deps: Deps) -> Services:
    """The use cases on their ports."""
    room = WaitingRoom(deps.hints, deps.conf.api.max_waiting)
    actions, nodes = JobActions(deps), AgentNodes(deps)
    return Services(
        GpuTypes(deps),
        Hosts(deps),
        Devices(deps),
        Flavors(deps),
        Pools(deps),
        Nodes(deps),
        Cohorts(deps),
        Queues(deps),
        Quotas(deps),
        Events(deps),
        Processes(deps),
        Jobs(deps, actions),
        actions,
        JobReads(deps),
        JobLogs(deps, room),
        nodes,
        AgentSync(deps, nodes, room),
        AgentData(deps, nodes),
        room,
        Simulations(deps),
    )
